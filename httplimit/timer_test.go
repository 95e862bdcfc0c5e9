package httplimit

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const (
	thinks = 300 * time.Millisecond // time until a handler writes the head of its response
	pieces = 4                      // number of pieces of a slow upload, one a second
)

// slowBody returns a body that comes in pieces.
func slowBody(text string) io.Reader {
	r, w := io.Pipe()
	go func() {
		for i := range pieces {
			time.Sleep(time.Second)
			if _, err := io.WriteString(w, text[i*len(text)/pieces:(i+1)*len(text)/pieces]); err != nil {
				return
			}
		}
		w.Close()
	}()
	return r
}

// The measured latency is the time from the end of the upload to the head of the response. A permit lasts as long as
// the handler, however the request ends.
func TestAnswered(t *testing.T) {
	t.Parallel()
	think := func(w http.ResponseWriter, r *http.Request) { time.Sleep(thinks) }
	for _, tt := range []struct {
		name, method string
		rules        string // in addition to the automatic limit
		handle       http.HandlerFunc
		body         func() io.Reader
		patience     time.Duration // timeout of the client
		noHTTP2      bool
		unknown      bool // no latency is measured
	}{
		{name: "silent", handle: think},
		{name: "HEAD", method: "HEAD", handle: think},
		{name: "informational", handle: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			think(w, r)
			w.WriteHeader(http.StatusNoContent)
		}},
		{name: "an error", handle: func(w http.ResponseWriter, r *http.Request) {
			think(w, r)
			w.WriteHeader(http.StatusInternalServerError)
		}},
		{name: "a long body of the response", handle: func(w http.ResponseWriter, r *http.Request) {
			think(w, r)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Second)
		}},
		{name: "a slow upload", method: "POST", body: func() io.Reader { return slowBody("a text") }, handle: func(w http.ResponseWriter, r *http.Request) {
			if text, err := io.ReadAll(r.Body); err != nil || len(text) != len("a text") {
				t.Errorf("%q, %v", text, err)
			}
			think(w, r)
			_, _ = r.Body.Read(make([]byte, 1)) // after its end
		}},
		{name: "an upload that is not read to its end", method: "POST", body: func() io.Reader { return slowBody("1111") }, handle: func(w http.ResponseWriter, r *http.Request) {
			var n int
			if _, err := io.ReadFull(r.Body, make([]byte, pieces-1)); err != nil {
				t.Error(err)
			}
			if err := json.NewDecoder(r.Body).Decode(&n); err != nil || n != 1 {
				t.Errorf("%d, %v", n, err)
			}
			think(w, r)
		}},
		{name: "an answer during the upload", method: "POST", unknown: true, body: func() io.Reader { return slowBody("a text") }, handle: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			read := make(chan bool)
			go func() {
				_, _ = io.Copy(io.Discard, r.Body)
				close(read)
			}()
			think(w, r)
			_ = http.NewResponseController(w).Flush()
			<-read
		}},
		{name: "a body that rules read", method: "POST", rules: "{name: name, key: [body:name], limit: 100/second}",
			body: func() io.Reader { return slowBody(`{"name": "ann"}`) }, handle: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				think(w, r)
			}},
		{name: "a queue", rules: "{name: queue, limit: 2/second burst 60, algorithm: leaky_bucket}", handle: think},
		{name: "a client that leaves", patience: thinks, unknown: true, handle: func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		// The first request does not wait, so its latency is measured.
		{name: "a client that leaves a queue", rules: "{name: queue, limit: 1/minute burst 60, algorithm: leaky_bucket}", patience: 2 * thinks, handle: think},
		{name: "a client that leaves after the head", patience: 2 * thinks, handle: func(w http.ResponseWriter, r *http.Request) {
			think(w, r)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{name: "a panic", unknown: true, handle: func(w http.ResponseWriter, r *http.Request) {
			think(w, r)
			panic(http.ErrAbortHandler)
		}},
		{name: "a panic after the head", handle: func(w http.ResponseWriter, r *http.Request) {
			think(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{name: "a fast failure", unknown: true, handle: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) }},
		{name: "a hijacked connection", noHTTP2: true, handle: func(w http.ResponseWriter, r *http.Request) {
			think(w, r)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			time.Sleep(time.Second)
		}},
	} {
		for _, version := range []string{"HTTP/1.1", "h2c"} {
			if tt.noHTTP2 && version == "h2c" {
				continue
			}
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e := policytest.Engine(t, "rules: ["+strings.TrimSuffix("{name: capacity, in_flight: auto}, "+tt.rules, ", ")+"]")
					client := overPipes(t, version, Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if n := policytest.Load(t, e).InFlight; n < 1 {
							t.Errorf("%d in flight", n)
						}
						tt.handle(w, r)
					})))
					var all sync.WaitGroup
					for i := range 20 {
						all.Go(func() {
							time.Sleep(time.Duration(i) * time.Second / 4)
							ask(t, client, tt.method, tt.body, tt.patience)
						})
					}
					all.Wait()
					synctest.Wait()
					if n := policytest.Load(t, e).InFlight; n != 0 {
						t.Fatalf("%d in flight at the end", n)
					}
					if got := policytest.Load(t, e).Latency; tt.unknown && got != 0 || !tt.unknown && (got < thinks*9/10 || got > thinks*11/10) {
						t.Errorf("the latency is %v", got)
					}
				})
			})
		}
	}
}

// ask sends a request and reads the response. A patience above 0 is the client's timeout.
func ask(t *testing.T, client *http.Client, method string, body func() io.Reader, patience time.Duration) {
	t.Helper()
	ctx := t.Context()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var upload io.Reader
	if body != nil {
		upload = body()
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://a.example/", upload)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if response, err := client.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

// overPipes serves h in memory, and returns a client for it.
func overPipes(t *testing.T, version string, h http.Handler) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(version != "h2c")
	protocols.SetUnencryptedHTTP2(version == "h2c")
	pipes := testkit.NewPipes()
	server := &http.Server{Handler: h, Protocols: &protocols, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(pipes) }()
	transport := &http.Transport{DialContext: pipes.Dial, Protocols: &protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return &http.Client{Transport: transport}
}
