package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
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

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

// gateTLS starts a gateway that serves HTTP/2. Its upstream speaks HTTP/2 for the schemes h2c and https, and otherwise
// HTTP/1.1.
func gateTLS(t *testing.T, scheme string, upstream, decide http.HandlerFunc, c Client) *httptest.Server {
	t.Helper()
	return gateOver(t, Upstream{URL: &url.URL{Scheme: scheme}}, upstream, decide, c)
}

// gateOver is like gateTLS, with further settings in u.
func gateOver(t *testing.T, u Upstream, upstream, decide http.HandlerFunc, c Client) *httptest.Server {
	t.Helper()
	behind := httptest.NewUnstartedServer(upstream)
	behind.Config.Protocols = new(http.Protocols)
	behind.Config.Protocols.SetHTTP1(u.URL.Scheme == "http")
	behind.Config.Protocols.SetHTTP2(u.URL.Scheme == "https")
	behind.Config.Protocols.SetUnencryptedHTTP2(u.URL.Scheme == "h2c")
	if u.URL.Scheme == "https" {
		behind.EnableHTTP2 = true
		behind.StartTLS()
		u.CA = x509.NewCertPool()
		u.CA.AddCert(behind.Certificate())
	} else {
		behind.Start()
	}
	t.Cleanup(behind.Close)
	u.URL.Host = behind.Listener.Addr().String()
	s := gateTo(t, u, decide, c)
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

// raw is an HTTP/2 client that can send invalid frames.
type raw struct {
	net.Conn
	*http2.Framer
	t      *testing.T
	fields bytes.Buffer
	hpack  *hpack.Encoder
	stream uint32 // the last stream
}

func dialRaw(t *testing.T, s *httptest.Server) *raw {
	t.Helper()
	c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return newRaw(t, c)
}

func newRaw(t *testing.T, c net.Conn) *raw {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	r := &raw{Conn: c, Framer: http2.NewFramer(c, c), t: t}
	r.hpack = hpack.NewEncoder(&r.fields)
	r.AllowIllegalWrites = true
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	r.must(io.WriteString(c, http2.ClientPreface))
	r.must(0, r.WriteSettings())
	return r
}

func (r *raw) must(_ int, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// encode returns a header block of alternating names and values.
func (r *raw) encode(fields ...string) []byte {
	r.fields.Reset()
	for i := 0; i < len(fields); i += 2 {
		r.must(0, r.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return slices.Clone(r.fields.Bytes())
}

// ask starts a request.
func (r *raw) ask(end bool, fields ...string) uint32 {
	r.stream = max(r.stream+2, 1)
	if r.stream%2 == 0 {
		r.stream--
	}
	r.must(0, r.WriteHeaders(http2.HeadersFrameParam{StreamID: r.stream, BlockFragment: r.encode(fields...), EndHeaders: true, EndStream: end}))
	return r.stream
}

// answer is the response on a stream.
type answer struct {
	status  string
	fields  map[string]string
	trailer map[string]string
	body    string
	reset   http2.ErrCode
}

var errGone = errors.New("the connection was ended")

// await reads the response on a stream until the stream ends.
func (r *raw) await(stream uint32) (a answer, err error) {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return a, errors.Join(errGone, err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			_ = r.WriteSettingsAck()
		}
		if g, ok := f.(*http2.GoAwayFrame); ok && g.ErrCode != 0 {
			return a, fmt.Errorf("%w: %v %s", errGone, g.ErrCode, g.DebugData())
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			a.reset = f.ErrCode
			if f.ErrCode == 0 {
				continue
			}
			return a, nil
		case *http2.MetaHeadersFrame:
			into := make(map[string]string)
			for _, h := range f.Fields {
				into[h.Name] = h.Value
			}
			if a.fields == nil {
				a.status, a.fields = into[":status"], into
			} else {
				a.trailer = into
			}
			if f.StreamEnded() {
				return a, nil
			}
		case *http2.DataFrame:
			a.body += string(f.Data())
			if n := uint32(len(f.Data())); n > 0 {
				_ = r.WriteWindowUpdate(0, n)
			}
			if f.StreamEnded() {
				return a, nil
			}
		}
	}
}

// get sends GET / as a browser does, with further fields.
func (r *raw) get(fields ...string) answer {
	r.t.Helper()
	a, err := r.await(r.ask(true, append([]string{":method", "GET", ":scheme", "https", ":authority", "a.test", ":path", "/"}, fields...)...))
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func pass(http.ResponseWriter, *http.Request) {}

// Requests that HTTP/1 could not express are refused, or reach the upstream as the script states.
func TestOddRequestsOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "h2c"} {
		var got atomic.Value
		s := gateTLS(t, scheme, func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // shorter than its Content-Length
			}
			got.Store(fmt.Sprintf(" %s %s %s %q %v", r.Method, r.Host, r.RequestURI, body, r.Header["Cookie"]))
		}, pass, Client{})
		for _, c := range testkit.Script(t, "testdata/odd.txt") {
			c.Play(t, func(step string) string {
				got.Store("")
				return sendOdd(t, dialRaw(t, s), step) + got.Load().(string)
			})
		}
	}
}

// If a body is longer than its Content-Length, the upstream gets at most that length. It may get nothing, because the
// gateway may notice the mistake before or after it sends the request.
func TestBodyBeyondItsLength(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "h2c"} {
		got := make(chan string, 1)
		t.Run(scheme, func(t *testing.T) {
			s := gateTLS(t, scheme, func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				got <- fmt.Sprintf("%q %v", body, err)
			}, pass, Client{})
			sendOdd(t, dialRaw(t, s), "content-length 0")
		}) // the end of the subtest waits for the upstream
		select {
		case body := <-got:
			if body != `"" <nil>` {
				t.Errorf("%s: the upstream got %s", scheme, body)
			}
		default:
		}
	}
}

// sendOdd sends a request of testdata/odd.txt and returns its status.
func sendOdd(t *testing.T, r *raw, step string) string {
	t.Helper()
	defer r.Close()
	base := map[string]string{":method": "POST", ":scheme": "https", ":authority": "a.test", ":path": "/p"}
	data := "x"
	var fields []string
	for line := range strings.SplitSeq(step, "\n") {
		name, value, _ := strings.Cut(line, " ")
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		switch {
		case line == "no body":
			data = ""
		case line == "plain":
		case name == "drop":
			delete(base, value)
		case base[name] != "":
			base[name] = value
		default:
			fields = append(fields, name, value)
		}
	}
	for name, value := range base { // pseudo-header fields come first
		fields = append([]string{name, value}, fields...)
	}
	stream := r.ask(data == "", fields...)
	if data != "" {
		r.must(0, r.WriteData(stream, true, []byte(data)))
	}
	a, err := r.await(stream)
	switch {
	case err != nil && !errors.Is(err, errGone):
		t.Fatal(err)
	case a.status != "":
		return a.status
	case strings.Contains(step, "content-length"):
		return "400" // if net/http notices the wrong length before the answer, it resets the stream
	}
	return "reset"
}

// The limits decide about exactly the request that the upstream gets.
func TestUpstreamGetsWhatIsDecidedOverHTTP2(t *testing.T) {
	t.Parallel()
	var decided, got atomic.Value // of string
	described := func(r *http.Request) string {
		r = r.Clone(r.Context())
		if c := r.Header["Cookie"]; len(c) > 0 { // HTTP/2 splits cookies
			c[0] = strings.Join(strings.FieldsFunc(c[0], func(c rune) bool { return c == ' ' || c == ';' }), "; ")
			if c[0] == "" {
				delete(r.Header, "Cookie")
			}
		}
		uri := r.URL.EscapedPath()
		if r.URL.ForceQuery || r.URL.RawQuery != "" {
			uri += "?" + r.URL.RawQuery
		}
		return describe(r, uri)
	}
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	paths := []string{"/", "a", ".", "..", "%2e", "%2F", `\`, ";", "=", "&", "?", "#", "%25", "%", "%zz", "%00", "\xc3\xa9", "\xff", "|", `"`, "<", "^", "+", "*", ":", "@", "[", "{", "\x7f", "http://b"}
	values := []string{"a", " ", ",", "\xff", "\t", `"`, ";", "=", "websocket"}
	names := []string{"x-api-key", "x_api_key", "x.api.key", "http2-settings", "x-original-url", "x-http-method-override", "proxy-authorization", "accept", "cookie", "cookie", "host", "expect", "trailer", "range", "x-forwarded-prefix", "content-type", "authorization"}
	for _, scheme := range []string{"http", "h2c"} {
		s := gateTLS(t, scheme, func(_ http.ResponseWriter, r *http.Request) { got.Store(described(r)) },
			func(_ http.ResponseWriter, r *http.Request) {
				decided.Store(described(r))
				got.Store("nothing")
			}, Client{})
		r, passed := dialRaw(t, s), 0
		for i := range 2000 {
			fields := []string{
				":method", pick(random, []string{"GET", "GET", "POST", "get", "X"}, 1) + "G", ":scheme", "https",
				":authority", "a.test", ":path", "/" + pick(random, paths, 8),
			}
			for range random.IntN(4) {
				fields = append(fields, names[random.IntN(len(names))], pick(random, values, 3))
			}
			decided.Store("")
			a, err := r.await(r.ask(true, fields...))
			switch {
			case err != nil:
				r = dialRaw(t, s)
				continue
			case decided.Load() == "" || a.status == "400", a.status == "417": // net/http refused it; 417 is for Expect
				continue
			}
			passed++
			if got.Load() != decided.Load() {
				t.Fatalf("seed %d, %d, %s: %q: %v\n decided about %s\n passed on      %s", seed, i, scheme, fields, a, decided.Load(), got.Load())
			}
		}
		if passed < 300 {
			t.Errorf("seed %d, %s: only %d requests were passed on", seed, scheme, passed)
		}
	}
}

// Trailers pass in both directions.
func TestTrailersOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "h2c"} {
		s := gateTLS(t, scheme, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", r.Trailer.Get("X-Check")+r.Trailer.Get("X-Api-Key"))
			w.Header().Set(http.TrailerPrefix+"Unannounced", "u")
		}, pass, Client{})
		r := dialRaw(t, s)
		stream := r.ask(false, ":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/", "trailer", "x-check, x-api-key", "te", "trailers")
		r.must(0, r.WriteData(stream, false, []byte("data")))
		r.must(0, r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.encode("x-check", "c", "x-api-key", "other"), EndHeaders: true, EndStream: true}))
		a, err := r.await(stream)
		if err != nil || a.body != "body" || a.trailer["x-sum"] != "c" || a.trailer["unannounced"] != "u" {
			t.Errorf("%s: %+v, %v", scheme, a, err)
		}
	}
}

// Streams that are reset at once never make the gateway handle more requests than a connection allows. Too many of them
// end the connection.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	held := make(chan struct{})
	s := gateTLS(t, "http", func(http.ResponseWriter, *http.Request) {}, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-held
		now.Add(-1)
	}, Client{})
	defer close(held)
	r := dialRaw(t, s)
	block := r.encode(":method", "GET", ":scheme", "https", ":authority", "a.test", ":path", "/")
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = r.ReadFrame()
		}
		ended <- err
	}()
	for i := range uint32(20000) {
		err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndHeaders: true, EndStream: true})
		if err = errors.Join(err, r.WriteRSTStream(2*i+1, http2.ErrCodeCancel)); err != nil {
			break // the gateway has closed the connection
		}
	}
	if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
	if m := most.Load(); m > int64(bounds.MaxConcurrentStreams) {
		t.Errorf("%d requests at once", m)
	}
}

// The gateway reads only a limited amount of a head that is too large, in one frame or in many.
func TestLargeHeadsOverHTTP2(t *testing.T) {
	t.Parallel()
	s := gateTLS(t, "http", func(http.ResponseWriter, *http.Request) { t.Error("the request reached the upstream") }, pass, Client{})
	large := dialRaw(t, s)
	block := large.encode(":method", "GET", ":scheme", "https", ":authority", "a.test", ":path", "/", "x-a", strings.Repeat("a", 12000), "x-b", strings.Repeat("b", 60000), "x-c", strings.Repeat("c", 60000))
	const frame = 16 << 10
	large.must(0, large.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:frame], EndStream: true}))
	for rest := block[frame:]; ; rest = rest[frame:] {
		if len(rest) <= frame {
			large.must(0, large.WriteContinuation(1, true, rest))
			break
		}
		large.must(0, large.WriteContinuation(1, false, rest[:frame]))
	}
	if a, err := large.await(1); err == nil && a.status != "431" {
		t.Errorf("a large head: %+v", a)
	}

	endless := dialRaw(t, s)
	endless.must(0, endless.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: endless.encode(":method", "GET"), EndStream: true}))
	sent := 0
	for more := endless.encode("x-a", strings.Repeat("a", 8000)); sent < 64<<20; sent += len(more) {
		if endless.WriteContinuation(1, false, more) != nil {
			break
		}
	}
	if sent >= 64<<20 {
		t.Errorf("the gateway read %d bytes of an endless head", sent)
	}
}

// A client that reads nothing of its answer occupies the stream only for the stall timeout. The gateway also stops
// waiting for a request body after this time. The test uses real time because the reverse proxy flushes while it holds
// a lock, for which virtual time does not wait.
func TestStalls(t *testing.T) {
	t.Parallel()
	const stall = 500 * time.Millisecond
	s := gateTLS(t, "http", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		_, _ = w.Write(make([]byte, n))
	}, pass, Client{StallTimeout: stall})
	for _, n := range []string{"100", "1048576"} {
		r, begun := dialRaw(t, s), time.Now()
		r.must(0, r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		a, err := r.await(r.ask(true, ":method", "GET", ":scheme", "https", ":authority", "a.test", ":path", "/?n="+n))
		if took := time.Since(begun); err != nil || a.reset == 0 || len(a.body) > 10 || took < stall {
			t.Errorf("%s bytes: received %d, reset %v after %v, %v", n, len(a.body), a.reset, took, err)
		}
	}
	if again := dialRaw(t, s).get(); again.status != "200" {
		t.Errorf("the next client: %+v", again)
	}
	r, begun := dialRaw(t, s), time.Now()
	stream := r.ask(false, ":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/")
	r.must(0, r.WriteData(stream, false, []byte("some")))
	a, err := r.await(stream)
	if took := time.Since(begun); err != nil || a.status != "408" || took < stall {
		t.Errorf("%+v after %v, %v", a, took, err)
	}
}

// If an answer ends before its request, its end and its trailers reach the client while the client may still send. So
// does the gateway's own answer to one call too many.
func TestAnswersEndBeforeRequests(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"h2c", "https"} {
		for _, kind := range []string{"application/grpc", "application/connect+proto", "text/plain"} {
			s := gateTLS(t, scheme, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "Grpc-Status")
				_, _ = io.CopyN(w, r.Body, 5)
				w.Header().Set("Grpc-Status", "0")
			}, pass, Client{})
			r := dialRaw(t, s)
			stream := r.ask(false, ":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/", "content-type", kind, "te", "trailers")
			r.must(0, r.WriteData(stream, false, []byte("hello")))
			if a, err := r.await(stream); err != nil || a.body != "hello" || a.trailer["grpc-status"] != "0" {
				t.Errorf("%s, %s: %+v, %v", scheme, kind, a, err)
			}
			// Data after the answer does not disturb the connection.
			r.must(0, r.WriteData(stream, true, []byte("more")))
			if a := r.get(); a.status != "200" {
				t.Errorf("%s, %s: the answer to the next request is %+v", scheme, kind, a)
			}
		}
		done := make(chan struct{})
		s := gateOver(t, Upstream{URL: &url.URL{Scheme: scheme}, MaxStreams: 1}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
			<-done
		}, pass, Client{})
		r := dialRaw(t, s)
		call := []string{":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/", "content-type", "application/grpc"}
		r.awaitHead(r.ask(false, call...))
		if a, err := r.await(r.ask(false, call...)); err != nil || a.fields["grpc-status"] != "14" {
			t.Errorf("%s: the answer to one stream too many is %+v, %v", scheme, a, err)
		}
		close(done)
	}
}

// awaitHead reads until the head of the answer on a stream.
func (r *raw) awaitHead(stream uint32) {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		r.must(0, err)
		if f.Header().Type == http2.FrameHeaders && f.Header().StreamID == stream {
			return
		}
	}
}

// A gateway that shuts down sends GOAWAY on its connections and finishes the requests in flight.
func TestShutdownOverHTTP2(t *testing.T) {
	t.Parallel()
	begun, held := make(chan bool), make(chan bool)
	s := gateTLS(t, "http", func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-held
		_, _ = io.WriteString(w, "whole")
	}, pass, Client{})
	busy, idle := dialRaw(t, s), dialRaw(t, s)
	stream := busy.ask(true, ":method", "GET", ":scheme", "https", ":authority", "a.test", ":path", "/")
	<-begun
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release) // before the server waits for its handlers
	if f, err := idle.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatalf("the idle connection is not served: %v, %v", f, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Config.Shutdown(t.Context()) }()
	for _, r := range []*raw{idle, busy} {
		for {
			f, err := r.ReadFrame()
			r.must(0, err)
			if f.Header().Type == http2.FrameGoAway {
				break
			}
		}
	}
	release()
	if a, err := busy.await(stream); err != nil || a.status != "200" || a.body != "whole" {
		t.Errorf("a request that had begun: %+v, %v", a, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An upstream over HTTP/2 may answer before it has the whole body. A client over HTTP/1 still gets the whole answer.
func TestEarlyAnswerOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"h2c", "https"} {
		goOn := make(chan struct{})
		s := gateTLS(t, scheme, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first ")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-goOn:
				_, _ = io.WriteString(w, "second")
			case <-r.Context().Done():
			}
		}, pass, Client{})
		c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n12345"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, len("first second"))
		if _, err := io.ReadFull(resp.Body, body[:6]); err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		close(goOn)
		if _, err := io.ReadFull(resp.Body, body[6:]); err != nil || string(body) != "first second" || !resp.Close {
			t.Errorf("%s: %q, %v, the connection ends: %v", scheme, body, err, resp.Close)
		}
	}
}
