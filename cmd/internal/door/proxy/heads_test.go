package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"
)

// certified returns a server for its certificate.
var certified = sync.OnceValue(func() *httptest.Server {
	s := httptest.NewTLSServer(nil)
	s.Close()
	return s
})

// virtual serves HTTP/2 in virtual time, and returns a function that connects to it.
func virtual(t *testing.T, h http.HandlerFunc, c Client) (dial func() *raw) {
	t.Helper()
	c.MaxHeader, c.Log = 64<<10, slog.New(slog.DiscardHandler)
	server, l := Server(h, c), bufconn.Listen(64<<10)
	go server.Serve(tls.NewListener(l, &tls.Config{Certificates: certified().TLS.Certificates, NextProtos: []string{"h2"}}))
	t.Cleanup(func() { server.Close() })
	return func() *raw {
		c, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		return newRaw(t, tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))
	}
}

// The head of a request has to end within the timeout, however its client delays it. Idle connections and long requests
// may last longer.
func TestUnfinishedHeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		dial := virtual(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
			Client{HeaderTimeout: timeout, StallTimeout: time.Hour})
		head := func(r *raw) []byte {
			return r.encode(":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/")
		}

		idle, long := dial(), dial()
		idle.get()
		block := head(long) // sent in pieces within the timeout
		long.must(0, long.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:9]}))
		time.Sleep(timeout - 1)
		long.must(0, long.WriteContinuation(1, true, block[9:]))
		long.must(long.Write([]byte("\x00\x00\x05\x00\x00\x00\x00\x00\x01up"))) // the beginning of a DATA frame

		stuck, begun := make(map[string]*raw), time.Now()
		for name, send := range map[string]func(r *raw){
			"no end": func(r *raw) {
				r.must(0, r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head(r), EndStream: true}))
			},
			"no end beside a call": func(r *raw) {
				r.ask(false, ":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/")
				r.must(0, r.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: head(r)}))
			},
			"half a frame":  func(r *raw) { r.must(r.Write([]byte("\x00\x00\xff\x01\x04\x00\x00\x00\x01half"))) },
			"half a header": func(r *raw) { r.must(r.Write([]byte("\x00\x00\xff\x01"))) },
			"half a PING":   func(r *raw) { r.must(r.Write([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00half"))) },
			"always more": func(r *raw) {
				r.must(0, r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head(r)}))
				go func() {
					for r.WriteContinuation(1, false, nil) == nil {
						time.Sleep(timeout / 3)
					}
				}()
			},
		} {
			stuck[name] = dial()
			send(stuck[name])
		}
		for name, r := range stuck {
			var err error
			for err == nil {
				_, err = r.ReadFrame()
			}
			if d := time.Since(begun); d != timeout {
				t.Errorf("%s: the connection ends after %v: %v", name, d, err)
			}
		}

		time.Sleep(timeout) // until the client of "always more" notices the end
		if a := idle.get(); a.status != "200" {
			t.Errorf("an idle connection: %+v", a)
		}
		long.must(io.WriteString(long, "and"))
		long.must(0, long.WriteData(1, true, nil))
		if a, err := long.await(1); err != nil || a.body != "upand" {
			t.Errorf("a long call: %+v, %v", a, err)
		}
	})
}

// unfinishedAt returns the position at which an unfinished frame or head of the stream begins, or -1. It is independent
// of the type frames.
func unfinishedAt(stream []byte) int64 {
	r := bytes.NewReader(stream)
	at := func() int64 { return r.Size() - int64(r.Len()) }
	_, _ = r.Seek(int64(len(http2.ClientPreface)), io.SeekStart)
	head := int64(-1)
	for r.Len() > 0 {
		begin := at()
		if head >= 0 {
			begin = head
		}
		h, err := http2.ReadFrameHeader(r)
		if err != nil {
			return begin
		}
		switch h.Type {
		case http2.FrameHeaders, http2.FrameContinuation:
			head = -1
			if !h.Flags.Has(http2.FlagHeadersEndHeaders) {
				head = begin
			}
		}
		if int(h.Length) > r.Len() {
			if h.Type == http2.FrameData {
				return head
			}
			return begin
		}
		_, _ = r.Seek(int64(h.Length), io.SeekCurrent)
	}
	return head
}

// The result of scan does not depend on how the stream is split.
func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16384})
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("fields"), PadLength: 3})
	_ = w.WriteContinuation(1, false, []byte("more"))
	_ = w.WriteContinuation(1, true, nil)
	_ = w.WriteDataPadded(1, false, []byte("data"), make([]byte, 5))
	_ = w.WritePing(true, [8]byte{})
	_ = w.WriteRSTStream(1, 0)
	f.Add(b.Bytes(), []byte{1, 2, 3, 200})
	f.Add(b.Bytes()[:30], []byte{1})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		stream := append([]byte(http2.ClientPreface), data...)
		var s frames
		for from := 0; from < len(stream); {
			to := len(stream)
			if len(cuts) > 0 {
				to, cuts = min(to, from+int(cuts[0])), cuts[1:]
			}
			unfinished, began := s.scan(stream[from:to])
			want := int64(-1)
			if to > len(http2.ClientPreface) {
				want = unfinishedAt(stream[:to])
			}
			if unfinished != (want >= 0) || unfinished && began != (want >= int64(from)) {
				t.Fatalf("%q then %q: %v, %v; the unfinished frame or head begins at %d", stream[:from], stream[from:to], unfinished, began, want)
			}
			from = to
		}
	})
}

// Streams of other protocols are ignored.
func TestFramesOfOthers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"GET / HTTP/1.1\r\n", "PRI * HTTP/1.1\r\n", strings.Replace(preface, "SM", "SN", 1)} {
		var s frames
		for i := range text {
			if unfinished, _ := s.scan([]byte(text[i : i+1])); unfinished {
				t.Errorf("%q is treated as a head", text[:i+1])
			}
		}
		if !s.other {
			t.Errorf("%q is treated as HTTP/2", text)
		}
	}
}

// Scanning the frames of a request does not allocate.
func TestFramesCostNoMemory(t *testing.T) {
	request := append([]byte{0, 0, 40, frameHeaders, flagEndHeaders, 0, 0, 0, 1}, make([]byte, 40)...)
	s := frames{preface: len(preface)}
	if n := testing.AllocsPerRun(100, func() {
		s.scan(request[:frameHeader])
		s.scan(request[frameHeader:])
	}); n > 0 || s.have > 0 || s.left > 0 {
		t.Errorf("%v allocations for a request; the state afterwards: %+v", n, s)
	}
}
