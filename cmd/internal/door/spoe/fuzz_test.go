package spoe

import (
	"bytes"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/internal/policytest"
)

// tape is a connection with a fixed input.
type tape struct {
	net.Conn // nil: methods that are not defined below must not be called
	input    *bytes.Reader
	heard    bytes.Buffer
}

func (t *tape) Read(p []byte) (int, error)      { return t.input.Read(p) }
func (t *tape) Write(p []byte) (int, error)     { return t.heard.Write(p) }
func (t *tape) Close() error                    { return nil }
func (t *tape) SetReadDeadline(time.Time) error { return nil }
func (t *tape) RemoteAddr() net.Addr            { return &net.UnixAddr{} }

// For any input, the agent answers with valid frames of at most the agreed size, and its memory is bounded by the
// length of the input.
func FuzzConnection(f *testing.F) {
	hello := helloOf("2.0", 16380)
	body := text("body") + "\x09" + text("user=a")
	for _, input := range []string{
		hello, helloOf("2.0", minFrame) + strings.Repeat(message(1, asked("GET", "/")...), 3), "GET / HTTP/1.1\r\n\r\n",
		hello + message(1, asked("GET", "/a", "accept", "text/html", "host", "x")...) + message(300, asked("POST", "/login")...),
		hello + message(1, append(asked("POST", "/login", "content-length", "6"), body, stringArg("id", "x"), numberArg("wait", 0))...),
		hello + message(1, append(asked("GET", "/country"), stringArg("country", "fr"), text("x")+"\x11", text("y")+"\x06abcd")...),
		hello + framed(haproxyDisconnect, 0, 0, ""), hello + framed(notify, 1, 1, zeros(15000)), hello + "\x00\x00\x3f\x00\x03", hello + "\x00\x00\x00\x01\x03", hello + "\xff\xff\xff\xff", hello + "\x00\x00\x00\x00",
	} {
		f.Add([]byte(input))
	}
	engine := policytest.Engine(f, document)
	agent := New(door.Config{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, input []byte) {
		wire := &tape{input: bytes.NewReader(input)}
		c := newConn(agent, wire)
		c.Serve()
		if len(c.frames.buf) > max(2*len(input), firstBuffer) {
			t.Errorf("a buffer of %d bytes for an input of %d", len(c.frames.buf), len(input))
		}
		for wire.heard.Len() > 0 {
			before := wire.heard.Len()
			a, err := readFrame(&wire.heard)
			switch size := before - wire.heard.Len() - frameLength; {
			case err != nil:
				t.Fatalf("the answer is not a valid frame: %v", err)
			case c.size > 0 && size > c.size && a.kind == ack:
				t.Errorf("an answer of %d bytes, larger than the agreed %d", size, c.size)
			case a.kind == ack && (!slices.Contains([]any{200, 400, 403, 413, 429, 503}, a.set["status"]) || a.set["allowed"] != (a.set["status"] == 200)):
				t.Errorf("answer: %v", a)
			}
		}
	})
}

// Decoding returns what was encoded, and nothing else.
func FuzzQuestion(f *testing.F) {
	f.Add("GET", "/a", "x=1", "accept", "text/html", "id", []byte("body"))
	f.Add("POST", "/a%2fb", "", "X-Api-Key", "k", "", []byte{})
	f.Fuzz(func(t *testing.T, method, path, query, name, value, id string, body []byte) {
		args := asked(method, path+"?"+query, name, value)
		args = append(args, stringArg("id", id), text("body")+"\x09"+text(string(body)))
		q := newQuestion()
		if err := q.decode([]byte(message(5, args...)[frameLength:])); err != nil {
			t.Fatal(err)
		}
		r := &q.request
		if got := r.Path + "?" + r.RawQuery; got != path+"?"+query || r.Method != method || r.ID != id || q.body != string(body) {
			t.Errorf("read as %q %q %q %q", r.Method, got, r.ID, q.body)
		}
		total := 0
		for name, values := range r.Header {
			total += len(name)
			for _, v := range values {
				total += len(v)
			}
		}
		if total > len(name)+len(value) {
			t.Errorf("fields: %q", r.Header)
		}
		q.forget()
		if err := q.decode([]byte(message(6)[frameLength:])); err != nil || r.Path+r.Method+r.ID+q.body+r.Host != "" || len(r.Header) > 0 || r.Peer.IsValid() || q.seen != (arguments{}) {
			t.Errorf("the question still has data of the previous request: %v %v", q, err)
		}
	})
}
