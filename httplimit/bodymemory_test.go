package httplimit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// calls is a policy with a rule that matches by the body.
const calls = `
version: 1
body_limit: 1MiB
rules: [{name: calls, match: POST /, body: {method: call}, limit: 1000000/second}]
`

// callOf returns a body of size bytes.
func callOf(size int) string {
	const start, end = `{"method":"call","text":"`, `"}`
	return start + strings.Repeat("x", size-len(start)-len(end)) + end
}

// unsized hides the length of a body.
func unsized(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

// checkBodyMemory waits until the memory for bodies is released. Tests that call it must not be parallel.
func checkBodyMemory(t *testing.T) {
	t.Helper()
	testkit.Await(t, "the memory for bodies is released", func() bool { return bodyMemory.used.Load() == 0 })
}

// A body is read up to body_limit, whether its length is known or not. A larger one is rejected with 413, not as
// malformed.
func TestBodyLimit(t *testing.T) {
	h := Policy(policytest.Engine(t, calls))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	for _, size := range []int{100, 64 << 10, 64<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20} {
		for name, body := range map[string]io.Reader{"sized": strings.NewReader(callOf(size)), "unsized": unsized(callOf(size))} {
			a, err := http.Post(server.URL, "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(a.Body)
			a.Body.Close()
			switch {
			case size <= 1<<20 && (a.StatusCode != 200 || string(text) != fmt.Sprint(size, nil)):
				t.Errorf("%s, %d bytes: %d %s", name, size, a.StatusCode, text)
			case size > 1<<20 && (a.StatusCode != 413 || a.Header.Get("Retry-After") != "" || !strings.Contains(string(text), `"detail":"The body is larger than 1MiB, the maximum.","error":"body_too_large"`)):
				t.Errorf("%s, %d bytes: %d %v %s", name, size, a.StatusCode, a.Header, text)
			}
		}
	}
	checkBodyMemory(t)
}

// If the bodies of other requests use up the memory, a request is rejected with 503. It is allowed again when they are
// gone.
func TestBodyMemory(t *testing.T) {
	h := Policy(policytest.Engine(t, calls))(things)
	ask := func(body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/", body)
		r.Header.Set("Content-Type", "application/json")
		return recorded(h, r)
	}
	const left = 200 << 10
	if !bodyMemory.take(maxBodyMemory - left) {
		t.Fatal("memory is in use")
	}
	for range 5 {
		for size, want := range map[int]int{100 << 10: 200, 300 << 10: 503} {
			for _, body := range []io.Reader{strings.NewReader(callOf(size)), unsized(callOf(size))} {
				w := ask(body)
				if w.Code != want {
					t.Errorf("%d bytes: %d %s, want %d", size, w.Code, w.Body, want)
				}
				if want == 503 && (w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"The bodies of other requests take up the memory for bodies. Retry in 1 s."`)) {
					t.Errorf("%v %s", w.Header(), w.Body)
				}
			}
		}
	}
	bodyMemory.release(maxBodyMemory - left)
	if w := ask(strings.NewReader(callOf(300 << 10))); w.Code != 200 {
		t.Errorf("after all memory is free: %d %s", w.Code, w.Body)
	}
	checkBodyMemory(t)
}

// The body of a request is kept in memory once, until the handler has read or closed it.
func TestBodyMemoryHeld(t *testing.T) {
	const size = 300 << 10
	for name, read := range map[string]func(io.ReadCloser) (released bool){
		"not read":  func(io.ReadCloser) bool { return false },
		"half read": func(b io.ReadCloser) bool { _, _ = io.CopyN(io.Discard, b, size/2); return false },
		"read":      func(b io.ReadCloser) bool { _, _ = io.Copy(io.Discard, b); return true },
		"closed":    func(b io.ReadCloser) bool { b.Close(); return true },
	} {
		h := Policy(policytest.Engine(t, calls))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if n := bodyMemory.used.Load(); n < size || n > size+1 {
				t.Errorf("%s: %d bytes of memory are used for a body of %d", name, n, size)
			}
			released := read(r.Body)
			if n := bodyMemory.used.Load(); released != (n == 0) {
				t.Errorf("%s: %d bytes are used after reading", name, n)
			}
		}))
		recorded(h, httptest.NewRequest("POST", "/", strings.NewReader(callOf(size))))
		if n := bodyMemory.used.Load(); n != 0 {
			t.Errorf("%s: %d bytes are used after the request", name, n)
		}
	}
}

// All memory is released, however a request ends.
func TestBodyMemoryReleased(t *testing.T) {
	engine := policytest.Engine(t, calls)
	refused := policytest.Engine(t, strings.Replace(calls, "1000000/second", "1/day", 1))
	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	hijacks := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	whole := callOf(200 << 10)
	request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(whole))
	for name, test := range map[string]struct {
		handler http.Handler
		sent    string
	}{
		"served":             {Policy(engine)(things), request + whole},
		"twice":              {Policy(engine)(Policy(engine)(things)), request + whole},
		"refused":            {Policy(refused)(things), request + whole},
		"the handler panics": {Policy(engine)(panics), request + whole},
		"panics before it":   {Policy(engine)(Config{Attributes: func(*http.Request, map[string]string) { panic(http.ErrAbortHandler) }}.Policy(engine)(things)), request + whole},
		"hijacked":           {Policy(engine)(hijacks), request + whole},
		"breaks off":         {Policy(engine)(things), request + whole[:100<<10]},
		"malformed":          {Policy(engine)(things), "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n19000\r\n" + whole[:100<<10] + "x"},
	} {
		server := httptest.NewServer(test.handler)
		for range 2 {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, test.sent)
			_ = conn.(*net.TCPConn).CloseWrite()
			if a, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_, _ = io.Copy(io.Discard, a.Body)
			}
			conn.Close()
		}
		testkit.Await(t, name+": the memory is released", func() bool { return bodyMemory.used.Load() == 0 })
		server.Close()
	}
}

// A panic of an observer releases the memory, too.
func TestBodyMemoryPanic(t *testing.T) {
	engine := policytest.Engine(t, calls)
	engine.Observe(func(context.Context, *policy.Observation) { panic("observer") })
	func() {
		defer func() { _ = recover() }()
		recorded(Policy(engine)(things), httptest.NewRequest("POST", "/", strings.NewReader(callOf(100<<10))))
	}()
	checkBodyMemory(t)
}

// The handler reads the whole body after a part of it was peeked, in whatever pieces the body arrives, even if it was
// too large to be peeked as a whole.
func TestReplayCuts(t *testing.T) {
	text := callOf(150 << 10)
	for _, limit := range []int64{10, 64 << 10, 64<<10 + 1, 100 << 10, int64(len(text)), int64(len(text)) + 1} {
		for _, cut := range []int{1, 7, 4096, 64 << 10, len(text)} {
			body := &failing{Reader: &cutReader{[]byte(text), cut}}
			b := &replay{rest: body}
			got, err := b.peek(-1, limit, func() {})
			if err != nil || (got != nil) != (int64(len(text)) <= limit) || got != nil && string(got) != text {
				t.Fatalf("cut %d, limit %d: %d bytes, %v", cut, limit, len(got), err)
			}
			all, err := io.ReadAll(b)
			if err != nil || !bytes.Equal(all, []byte(text)) {
				t.Fatalf("cut %d, limit %d: the handler reads %d bytes: %v", cut, limit, len(all), err)
			}
			if err := b.Close(); err == nil || !body.closed {
				t.Error("not closed")
			}
		}
	}
	checkBodyMemory(t)
}

// cutReader returns at most cut bytes at a time.
type cutReader struct {
	rest []byte
	cut  int
}

func (r *cutReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.cut)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
