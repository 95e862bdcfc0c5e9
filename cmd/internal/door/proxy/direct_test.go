package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/telemetry"
)

// scripted is an upstream that answers a request with the field "Step: N" with the bytes for step N.
type scripted struct {
	net.Listener
	answer func(step int) (raw []byte, end bool)

	mu   sync.Mutex
	seen map[int]string // requests by step
	busy sync.WaitGroup // answers that are being written

	opened atomic.Int32 // accepted connections
}

func newScripted(t testing.TB, answer func(int) ([]byte, bool)) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &scripted{Listener: l, answer: answer, seen: make(map[int]string)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.opened.Add(1)
			go s.serve(c)
		}
	}()
	return s
}

func (s *scripted) serve(c net.Conn) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		s.busy.Add(1)
		body, err := io.ReadAll(r.Body)
		step, _ := strconv.Atoi(r.Header.Get("Step"))
		r.Header.Del("Connection")
		s.mu.Lock()
		s.seen[step] = fmt.Sprintf("%s %s %s %d %q %v %v", r.Method, r.Host, r.RequestURI, r.ContentLength, body, r.Header, err)
		s.mu.Unlock()
		raw, end := s.answer(step)
		_, err = c.Write(raw)
		if end {
			c.Close()
		}
		s.busy.Done()
		if err != nil || end {
			return
		}
	}
}

// clients returns the two clients under comparison for an address.
func clients(t testing.TB, address string) map[string]http.RoundTripper {
	u := &Upstream{URL: &url.URL{Scheme: "http", Host: address}, Timeout: time.Minute}
	plain := transport(u)
	plain.DisableKeepAlives = true // every answer has its own connection
	log.SetOutput(io.Discard)      // a Transport logs unsolicited answers
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	ours := roundTripper(u)
	t.Cleanup(plain.CloseIdleConnections)
	t.Cleanup(func() {
		ours.(*direct).rest.CloseIdleConnections()
		for _, l := range ours.(*direct).idle {
			l.Conn.Close()
		}
	})
	return map[string]http.RoundTripper{"direct": ours, "transport": plain}
}

// outcome sends a request and describes the response as a text, or returns "error".
func outcome(by http.RoundTripper, r *http.Request) string {
	resp, err := by.RoundTrip(r)
	if err != nil {
		return "error"
	}
	if resp.StatusCode < 100 || resp.StatusCode == 101 { // direct refuses these, and the gateway would, too
		resp.Body.Close()
		return "error"
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		// The amount of body before the error depends on timing.
		return fmt.Sprintf("%s %v, and an error in the body", resp.Status, resp.Header)
	}
	return fmt.Sprintf("%s %v %d %q %v", resp.Status, resp.Header, resp.ContentLength, body, resp.Trailer)
}

// randomAnswer returns an answer, in most cases a valid one, and whether the connection closes after it.
func randomAnswer(r *rand.Rand) (raw []byte, end bool) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var b bytes.Buffer
	for range max(r.IntN(6)-3, 0) {
		b.WriteString(pick("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 102 \r\n\r\n"))
	}
	fmt.Fprintf(&b, "%s %s\r\n", pick("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "http/1.1"),
		pick("200 OK", "200 OK", "200 OK", "200", "204 None", "304 Not", "404 Not Found", "500 x", "20 OK", "2000 OK", "999 z", "-10 x"))
	for range r.IntN(4) {
		b.WriteString(pick("X-A: b\r\n", "X-A: c\r\n", "Set-Cookie: a=1\r\n", "X-Empty:\r\n", "X-Fold: a\r\n b\r\n", "x_under: s\r\n", "X-Bytes: \xff\r\n",
			"No colon\r\n", " : x\r\n", "X A: b\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n", "Content-Type: text/event-stream\r\n", "Trailer: X-T\r\n"))
	}
	body := strings.Repeat(pick("x", "0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "\n"), r.IntN(3)*r.IntN(3000))
	switch r.IntN(10) {
	case 0:
		b.WriteString("\r\n" + body) // the body lasts until the connection closes
		end = true
	case 1, 2:
		fmt.Fprintf(&b, "Transfer-Encoding: %s\r\n\r\n", pick("chunked", "chunked", "Chunked", "gzip, chunked", "identity"))
		for rest := body; ; {
			n := min(r.IntN(2000), len(rest))
			fmt.Fprintf(&b, "%x%s\r\n%s\r\n", n, pick("", "", ";a=b"), rest[:n])
			if rest = rest[n:]; n == 0 {
				b.Truncate(b.Len() - 2)
				break
			}
		}
		b.WriteString(pick("\r\n", "\r\n", "X-T: t\r\n\r\n", "X-T: t\r\nX-U: u\r\n\r\n", "bad\r\n\r\n", ""))
	default:
		fmt.Fprintf(&b, "Content-Length: %s\r\n\r\n%s", pick(fmt.Sprint(len(body)), fmt.Sprint(len(body)), fmt.Sprint(len(body)), fmt.Sprint(len(body))+"\r\nContent-Length: 3", "-1", "x"), body)
	}
	switch r.IntN(12) {
	case 0:
		b.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nelse's!!!") // an unsolicited answer
	case 1:
		b.Truncate(r.IntN(b.Len()))
	}
	return b.Bytes(), end || r.IntN(5) == 0
}

// For any answer of an upstream, direct returns the same response as http.Transport. Both send the same request.
func TestDirectAgainstTransport(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	different := make(map[string]bool)
	for round := range 60 {
		const steps = 20
		var answers [steps][]byte
		var ends [steps]bool
		var requests [steps]func() *http.Request
		for i := range steps {
			answers[i], ends[i] = randomAnswer(random)
			ends[i] = ends[i] || !complete(answers[i]) // otherwise the client would wait for the rest
			method := []string{"GET", "GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT"}[random.IntN(7)]
			if i > 0 && ends[i-1] { // if the connection closes, only a GET is repeated
				method = "GET"
			}
			body := strings.Repeat("b", random.IntN(2)*random.IntN(30000))
			query := []string{"", "?", "?a=b&c", "?q=%zz"}[random.IntN(4)]
			requests[i] = func() *http.Request {
				var from io.Reader
				if method == "POST" || method == "PUT" {
					from = strings.NewReader(body)
				}
				r, err := http.NewRequest(method, "http://x/p/%2F"+query, from)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = "A.test:80"
				r.Header = http.Header{"Step": {fmt.Sprint(i)}, "User-Agent": {""}, "X-Two": {" a ", "b"}, "X-Bytes": {"\xff"}, "Te": {"trailers"}, "Content-Length": {"7"}}
				if from != nil {
					r.GetBody = nil
				}
				return r
			}
		}
		got := make(map[string][]string)
		for name := range clients(t, "") {
			s := newScripted(t, func(i int) ([]byte, bool) { return answers[i], ends[i] })
			by := clients(t, s.Addr().String())[name]
			for i := range steps {
				r := requests[i]()
				r.URL.Host = s.Addr().String()
				text := outcome(by, r)
				s.busy.Wait()
				s.mu.Lock()
				got[name] = append(got[name], text+" <- "+s.seen[i])
				s.mu.Unlock()
				different[text] = true
			}
			s.Close()
		}
		for i := range steps {
			if a, b := got["direct"][i], got["transport"][i]; a != b {
				t.Fatalf("seed %d, round %d, step %d: %q\n direct    %s\n transport %s", seed, round, i, answers[i], a, b)
			}
		}
	}
	if len(different) < 100 {
		t.Errorf("seed %d: only %d outcomes", seed, len(different))
	}
}

// complete reports whether a client can read the whole answer without waiting for the end of the connection.
func complete(raw []byte) bool {
	in := bufio.NewReader(bytes.NewReader(append(slices.Clone(raw), "\x00"...)))
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return false
		}
		if resp.StatusCode < 200 {
			continue
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_, more := in.ReadByte() // false if the body lasts until the connection closes
		return err == nil && more == nil
	}
}

// FuzzDirect compares the responses of direct and http.Transport.
func FuzzDirect(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n1\r\na\r\n0\r\nT: x\r\n\r\n",
		"HTTP/1.0 200\r\n\r\nall", "HTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	var raw atomic.Pointer[[]byte]
	s := newScripted(f, func(int) ([]byte, bool) { return *raw.Load(), true })
	both := clients(f, s.Addr().String())
	f.Fuzz(func(t *testing.T, data []byte) {
		raw.Store(&data)
		got := make(map[string]string)
		for name, by := range both {
			r, _ := http.NewRequest("GET", "http://"+s.Addr().String()+"/", nil)
			got[name] = outcome(by, r)
		}
		if got["direct"] != got["transport"] {
			t.Errorf("%q\n direct    %s\n transport %s", data, got["direct"], got["transport"])
		}
	})
}

// An answer that arrives on an idle connection is never used for the next request.
func TestUnsolicitedAnswers(t *testing.T) {
	t.Parallel()
	late := make(chan bool)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
				<-late
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
				late <- true
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	d := roundTripper(&Upstream{URL: &url.URL{Scheme: "http", Host: l.Addr().String()}}).(*direct)
	for range 3 {
		r, _ := http.NewRequest("POST", "http://"+l.Addr().String(), strings.NewReader("x"))
		if got := outcome(d, r); !strings.Contains(got, "good") {
			t.Error(got)
		}
		late <- true
		<-late
	}
}

// Many concurrent requests end in different ways. None of them gets another's body, and the count of connections stays
// correct.
func TestDirectUnderCancellation(t *testing.T) {
	t.Parallel()
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if n%7 == 0 {
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, strings.Repeat(r.URL.Path, n))
	}))
	defer behind.Close()
	address := behind.Listener.Addr().String()
	d := roundTripper(&Upstream{URL: &url.URL{Scheme: "http", Host: address}, MaxConnections: 16, Timeout: time.Minute}).(*direct)
	defer d.rest.CloseIdleConnections()
	var callers sync.WaitGroup
	seed := seed.Of(t)
	var whole atomic.Int64
	for caller := range 32 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(caller)))
			for i := range 80 {
				ctx, cancel := context.WithCancel(t.Context())
				path, n := fmt.Sprintf("/%d-%d.", caller, i), random.IntN(2000)
				r, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%s%s?n=%d", address, path, n), nil)
				way := random.IntN(5)
				if way == 0 {
					go cancel()
				}
				resp, err := d.RoundTrip(r)
				if err != nil {
					if way != 0 {
						t.Errorf("seed %d: %v", seed, err)
					}
					cancel()
					continue
				}
				switch way {
				case 1:
					go resp.Body.Close()
				case 2:
					cancel()
				case 3:
					resp.Body.Close()
				}
				body, err := io.ReadAll(resp.Body)
				if err == nil {
					whole.Add(1)
				}
				if want := strings.Repeat(path, n); !strings.HasPrefix(want, string(body)) || err == nil && string(body) != want || err != nil && way == 4 {
					t.Errorf("seed %d, way %d: %d bytes, %v", seed, way, len(body), err)
				}
				resp.Body.Close()
				cancel()
			}
		})
	}
	callers.Wait()
	d.rest.CloseIdleConnections()
	// The Transport's connections close with a delay.
	testkit.Await(t, fmt.Sprintf("seed %d: the only counted connections are idle ones", seed), func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		free := int64(16 - len(d.idle))
		if !d.slots.TryAcquire(free) {
			return false
		}
		defer d.slots.Release(free)
		if d.slots.TryAcquire(1) {
			d.slots.Release(1)
			return false
		}
		return true
	})
	if whole.Load() < 250 {
		t.Errorf("seed %d: only %d answers were read to the end", seed, whole.Load())
	}
}

// If an upstream closes a reused connection, direct repeats a GET, but not a POST. If the upstream does not respond,
// direct waits once and does not repeat the request.
func TestDirectRepeats(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method string
		silent bool
		calls  int64
		ok     bool
	}{{"GET", false, 3, true}, {"POST", false, 2, false}, {"GET", true, 2, false}} {
		var calls atomic.Int64
		held := make(chan struct{})
		behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) != 2 {
				return
			}
			if test.silent {
				<-held
				return
			}
			c, _, err := w.(http.Hijacker).Hijack() // close the connection after the request without an answer
			if err == nil {
				c.Close()
			}
		}))
		timeout := time.Minute
		if test.silent {
			timeout = 3 * time.Second
		}
		d := roundTripper(&Upstream{URL: &url.URL{Scheme: "http", Host: behind.Listener.Addr().String()}, Timeout: timeout})
		var err error
		for range 2 {
			r, _ := http.NewRequest(test.method, behind.URL, nil)
			var resp *http.Response
			if resp, err = d.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
		}
		close(held)
		behind.Close()
		if calls.Load() != test.calls || (err == nil) != test.ok || test.silent && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%+v: %d calls, %v", test, calls.Load(), err)
		}
	}
}

// A client reads only a limited amount of an endless head.
func TestDirectLargeHeads(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", "a", "\r\n\r\nHTTP/1.1 103 E\r\nX-A: b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		const most = 256 << 20
		sent := make(chan int, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, err = io.WriteString(c, "HTTP/1.1 103 E\r\nX-B: c\r\n")
			block, n := bytes.Repeat([]byte(piece), 64<<10/len(piece)), 0
			for ; n < most && err == nil; n += len(block) {
				_, err = c.Write(block)
			}
			sent <- n
		}()
		r, _ := http.NewRequest("GET", "http://"+l.Addr().String(), nil)
		if got := outcome(clients(t, l.Addr().String())["direct"], r); got != "error" {
			t.Errorf("%q: %.100s", piece, got)
		}
		if n := <-sent; n >= most {
			t.Errorf("%q: the client read %d bytes", piece, n)
		}
		l.Close()
	}
}

// A connection is reused only if the answer permits it.
func TestDirectReuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int32{
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx":                            1,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n": 1,
		"HTTP/1.1 204 None\r\n\r\n":                                                1,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx":       3,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n":        3,
		"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx":                            3,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n":               3,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy":                           3,
	} {
		s := newScripted(t, func(int) ([]byte, bool) { return []byte(raw), false })
		d := clients(t, s.Addr().String())["direct"].(*direct)
		for range 3 {
			r, _ := http.NewRequest("GET", "http://"+s.Addr().String(), nil)
			outcome(d, r)
			s.busy.Wait()
		}
		if got := s.opened.Load(); got != want {
			t.Errorf("%q: %d connections, want %d", raw, got, want)
		}
		s.Close()
	}
}

// A 101 without a request for it is an error also if the Transport sends the request, because it has the only
// connection.
func TestDirectSwitchOnSharedConnection(t *testing.T) {
	t.Parallel()
	s := newScripted(t, func(step int) ([]byte, bool) {
		if step == 0 {
			return []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), false
		}
		return []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), false
	})
	stats := telemetry.NewUpstreamStats("up")
	d := roundTripper(&Upstream{
		URL: &url.URL{Scheme: "http", Host: s.Addr().String()}, MaxConnections: 1,
		Stats: func(*url.URL) *telemetry.UpstreamStats { return stats },
	}).(*direct)
	defer d.rest.CloseIdleConnections()
	r, err := http.NewRequest("POST", "http://"+s.Addr().String(), strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = -1 // the Transport sends bodies of unknown length
	if got := outcome(d, r); !strings.HasPrefix(got, "200 OK") {
		t.Fatal(got)
	}
	r, err = http.NewRequest("GET", "http://"+s.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Step", "1")
	if _, err := d.RoundTrip(r); !errors.Is(err, errSwitch) || s.opened.Load() != 1 {
		t.Errorf("%v, on one of %d connections", err, s.opened.Load())
	}
	if got := counts(stats); got != "2xx 1, malformed 1" {
		t.Errorf("counted as %s", got)
	}
}

// The requests that direct sends and those that the Transport sends share the maximum of connections. Neither waits for
// idle connections of the other.
func TestDirectSharesConnections(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int64
	behind := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		_, _ = io.Copy(w, r.Body)
		open.Add(-1)
	}))
	behind.Start()
	defer behind.Close()
	d := roundTripper(&Upstream{URL: &url.URL{Scheme: "http", Host: behind.Listener.Addr().String()}, MaxConnections: 3}).(*direct)
	defer d.rest.CloseIdleConnections()
	var callers sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one := roundTripper(&Upstream{URL: &url.URL{Scheme: "http", Host: behind.Listener.Addr().String()}, MaxConnections: 1}).(*direct)
	defer one.rest.CloseIdleConnections()
	for _, length := range []int64{4, 4, -1, -1, 4, -1} {
		r, _ := http.NewRequestWithContext(ctx, "POST", behind.URL, strings.NewReader("body"))
		r.ContentLength = length
		if got := outcome(one, r); !strings.HasPrefix(got, "200 OK") {
			t.Fatalf("one connection, length %d: %s", length, got)
		}
	}
	for caller := range 12 {
		callers.Go(func() {
			for i := range 60 {
				r, _ := http.NewRequestWithContext(ctx, "POST", behind.URL, strings.NewReader("body"))
				if (caller+i/20)%2 == 0 {
					r.ContentLength = -1 // the Transport sends bodies of unknown length
				}
				if got := outcome(d, r); !strings.HasPrefix(got, "200 OK") || !strings.Contains(got, `"body"`) {
					t.Errorf("caller %d, %d: %s", caller, i, got)
					return
				}
			}
		})
	}
	callers.Wait()
	if m := most.Load(); m > 3 {
		t.Errorf("%d requests at once", m)
	}
}
