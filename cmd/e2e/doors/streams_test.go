package doors

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluicehq/sluice/internal/testkit"
)

const question = `{"rule": "held", "key": {"client_ip": "192.0.2.1"}}`

// A client of HTTP/2 that reads its connection, but gives its streams no window, does not hold them for longer than
// --stall-timeout: each such stream keeps an answer in memory.
func TestUnreadStreamsEnd(t *testing.T) {
	t.Parallel()
	l := limit(t, "version: 1\nrules: [{name: held, key: [client_ip], limit: 5/hour}]\n", "--stall-timeout", "1s", "--auth", "envoy")
	c, err := net.Dial("tcp", l.Check)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	ask := func(stream uint32, path, body string) {
		var block bytes.Buffer
		fields := hpack.NewEncoder(&block)
		for _, one := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", path}, {"content-type", "application/json"}} {
			_ = fields.WriteField(hpack.HeaderField{Name: one[0], Value: one[1]})
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteData(stream, true, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	ask(1, "/v1/peek", question)
	ask(3, "/v1/peek", `{"checks": [`+strings.Repeat(question+",", 63)+question+`]}`)
	ask(5, "/auth/envoy/", "") // lacks the client's address
	open := map[uint32]bool{1: true, 3: true, 5: true}
	for len(open) > 0 {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%v, and of streams 1, 3 and 5 these are still open: %v", err, open)
		}
		if frame.Header().Type == http2.FrameRSTStream {
			delete(open, frame.Header().StreamID)
		}
	}
}
