package httplimit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// peekBody reads the body of r as the middleware does.
func peekBody(r *http.Request, limit int64) ([]byte, error) {
	return (&call{r: r, w: httptest.NewRecorder(), door: &door{}}).peek(limit)
}

// peekServer starts a server that responds with the peeked body and the body that the handler read after that.
func peekServer(t *testing.T, limit int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peeked, _ := peekBody(r, limit)
		all, err := io.ReadAll(r.Body)
		n, err2 := r.Body.Read(make([]byte, 1))
		fmt.Fprintf(w, "%t %s|%s|%v|%d %v|%s", peeked != nil, peeked, all, err, n, err2, r.Trailer.Get("Sum"))
	}))
	t.Cleanup(s.Close)
	return s
}

// Whatever part is peeked, the handler reads the whole body, and gets the same error at its end as without the
// middleware.
func TestPeekBody(t *testing.T) {
	t.Parallel()
	s := peekServer(t, 5)
	long := strings.Repeat("x", 100_000)
	const chunked = "Transfer-Encoding: chunked\r\n"
	for sent, want := range map[string]string{
		"\r\n":                                                          "true ||<nil>|0 EOF|",
		"Content-Length: 3\r\n\r\nabc":                                  "true abc|abc|<nil>|0 EOF|",
		"Content-Length: 5\r\n\r\nabcde":                                "true abcde|abcde|<nil>|0 EOF|",
		"Content-Length: 6\r\n\r\nabcdef":                               "false |abcdef|<nil>|0 EOF|",
		"Content-Length: 4\r\n\r\nabc":                                  "false |abc|unexpected EOF|0 unexpected EOF|",
		chunked + "\r\n0\r\n\r\n":                                       "true ||<nil>|0 EOF|",
		chunked + "\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":                "true abcde|abcde|<nil>|0 EOF|",
		chunked + "\r\n6\r\nabcdef\r\n0\r\n\r\n":                        "false |abcdef|<nil>|0 EOF|",
		chunked + "\r\n186a0\r\n" + long + "\r\n0\r\n\r\n":              "false |" + long + "|<nil>|0 EOF|",
		chunked + "Trailer: Sum\r\n\r\n3\r\nabc\r\n0\r\nSum: 6\r\n\r\n": "true abc|abc|<nil>|0 EOF|6",
		chunked + "\r\n3\r\nabc\r\nnonsense\r\n":                        "false |abc|invalid byte in chunk length|0 invalid byte in chunk length|",
		"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc":          "continue true abc|abc|<nil>|0 EOF|",
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+sent)
		_ = conn.(*net.TCPConn).CloseWrite()
		got := ""
		for in := bufio.NewReader(conn); ; got += "continue " {
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%.100q: %v", sent, err)
			}
			if response.StatusCode != http.StatusContinue {
				body, _ := io.ReadAll(response.Body)
				got += string(body)
				break
			}
		}
		if conn.Close(); got != want {
			t.Errorf("%.100q: got %.200q, want %.200q", sent, got, want)
		}
	}
}

type failing struct {
	io.Reader
	closed bool
}

func (f *failing) Close() error { f.closed = true; return errors.New("closed") }

func TestPeekBodyClose(t *testing.T) {
	t.Parallel()
	body := &failing{Reader: io.MultiReader(bytes.NewReader([]byte("abc")), bytes.NewReader([]byte("def")))}
	r := &http.Request{Body: body, ContentLength: -1}
	if got, _ := peekBody(r, 4); got != nil {
		t.Errorf("six bytes were peeked with a limit of four: %q", got)
	}
	if got, _ := peekBody(r, 6); string(got) != "abcdef" {
		t.Errorf("the second peek: %q", got)
	}
	if err := r.Body.Close(); err == nil || !body.closed {
		t.Error("not closed")
	}
}

// connected serves a connection, and returns its other end.
func connected(t *testing.T, server *http.Server) net.Conn {
	t.Helper()
	network := testkit.NewPipes()
	go func() { _ = server.Serve(network) }()
	client, err := network.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Reading a body that trickles in ends after a timeout for the whole body, and the request is counted.
func TestTricklingBody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		config  Config
		own     time.Duration // the server's ReadTimeout
		want    time.Duration
		whole   bool
		trickle int // bytes, one a second
	}{
		{"default", Config{}, 0, 10 * time.Second, false, 60},
		{"set", Config{BodyTimeout: 3 * time.Second}, 0, 3 * time.Second, false, 60},
		{"in time", Config{}, 0, 8 * time.Second, true, 9},
		{"the server's own", Config{}, 20 * time.Second, 20 * time.Second, false, 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			engine := policytest.Engine(t, layers)
			start := time.Now()
			var after time.Duration
			var failed error
			server := &http.Server{ReadTimeout: test.own}
			server.Handler = test.config.Policy(engine)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				after = time.Since(start)
				_, failed = io.Copy(io.Discard, r.Body)
			}))
			client := connected(t, server)
			var sender sync.WaitGroup
			sender.Go(func() {
				fmt.Fprintf(client, "POST /login HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", test.trickle)
				for range test.trickle {
					if _, err := client.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			response, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if after != test.want || (failed == nil) != test.whole {
				t.Errorf("%s: the handler runs after %v and reads %v", test.name, after, failed)
			}
			if told := response.Header.Get("RateLimit"); !strings.Contains(told, `"login";r=0`) {
				t.Errorf("%s: the request was not counted: %q", test.name, told)
			}
			client.Close()
			sender.Wait()
			server.Close()
			synctest.Wait()
		})
	}
}

// The timeout applies to reading before the decision, and not to the handler.
func TestBodyTimeoutEndsWithDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := policytest.Engine(t, strings.Replace(layers, "rules:", "body_limit: 64KiB\nshadow: always\nrules:", 1))
		var read int64
		var failed error
		server := &http.Server{Handler: Policy(engine)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			read, failed = io.Copy(io.Discard, r.Body)
		}))}
		client := connected(t, server)
		const large = 65 << 10
		var sender sync.WaitGroup
		sender.Go(func() {
			fmt.Fprintf(client, "POST /login HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", large, strings.Repeat("x", large))
			time.Sleep(time.Minute)
			fmt.Fprint(client, "1\r\nx\r\n0\r\n\r\n")
		})
		response, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 || failed != nil || read != large+1 {
			t.Errorf("%s: the handler has read %d bytes, %v", response.Status, read, failed)
		}
		sender.Wait()
		client.Close()
		server.Close()
		synctest.Wait()
	})
}

// A denial waits only a moment for the rest of a body, and closes the connection if the body has not ended by then.
func TestRefusalsDoNotWaitForBodies(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]time.Duration{
		"Content-Length: 200000\r\n\r\nx":                              lingering,
		"Transfer-Encoding: chunked\r\n\r\n5\r\nx":                     lingering,
		"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n":            0,
		"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n":   0,
		"Connection: close\r\nContent-Length: 200000\r\n\r\nx":         0,
		"Connection: close\r\nContent-Length: 5\r\n\r\nhello":          0,
		"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := policytest.Limiter(t, memory.New(), "1/day")
			if _, err := limiter.Take(t.Context(), "192.0.2.1", 1); err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: Limit(limiter, nil)(things)}
			client := connected(t, server)
			start := time.Now()
			go io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+body)
			answers := bufio.NewReader(client)
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); response.StatusCode != 429 || took != want || !response.Close {
				t.Errorf("%q: %s after %v, close %v, want 429 after %v", body, response.Status, took, response.Close, want)
			}
			if _, err := io.Copy(io.Discard, answers); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("%q: the connection ends after %v", body, took)
			}
			client.Close()
			server.Close()
			synctest.Wait()
		})
	}
}
