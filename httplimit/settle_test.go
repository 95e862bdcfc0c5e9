package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const byOutcome = `
version: 1
rules:
  - {name: failures, limit: 100/day, algorithm: fixed_window, count: {status: [401, 101], unless_header: X-Uncount}}
  - {name: told, limit: 1000/day, algorithm: fixed_window, cost: {response_header: X-Cost, estimate: 10, max: 100}}
  - {name: bytes, limit: 1000/day, algorithm: fixed_window, cost: {response_bytes: 10, estimate: 10}}
`

// uses returns the units that the rules of byOutcome have counted.
func uses(t *testing.T, e *policy.Engine) string {
	t.Helper()
	var all []string
	for i, rule := range []string{"failures", "told", "bytes"} {
		all = append(all, fmt.Sprint(rule, " ", []int64{100, 1000, 1000}[i]-policytest.Remaining(t, e, rule)))
	}
	return strings.Join(all, ", ")
}

// served starts a server of h behind the rules of byOutcome.
func served(t *testing.T, h http.HandlerFunc) (*policy.Engine, *httptest.Server) {
	t.Helper()
	e := policytest.Engine(t, byOutcome)
	server := httptest.NewUnstartedServer(Policy(e)(h))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return e, server
}

// By the time that a client has the head of a response, a request that does not count is refunded.
func TestSettledBeforeTheResponse(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	e, server := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Cost", "3")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-more
	})
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := uses(t, e); got != "failures 0, told 3, bytes 10" {
		t.Errorf("%s units are used before the body has ended", got)
	}
	close(more)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	server.Close()
	if got := uses(t, e); got != "failures 0, told 3, bytes 0" {
		t.Errorf("%s units are used after the response", got)
	}
}

// If a client leaves before the response, its request counts, at the estimated cost.
func TestSettleClientLeaves(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panics": func() { panic(http.ErrAbortHandler) }, "returns": func() {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, returned := make(chan struct{}), make(chan struct{})
			e := policytest.Engine(t, byOutcome)
			h := Policy(e)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-r.Context().Done()
				end()
			}))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(returned)
				h.ServeHTTP(w, r)
			}))
			defer server.Close()
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			<-arrived
			c.Close()
			<-returned
			if got := uses(t, e); got != "failures 1, told 10, bytes 10" {
				t.Errorf("%s units are used", got)
			}
		})
	}
}

// Settle applies to all middleware in front of a handler. Middleware without rules by outcome passes on the server's
// own ResponseWriter.
func TestSettleDoors(t *testing.T) {
	t.Parallel()
	outer, inner := policytest.Engine(t, byOutcome), policytest.Engine(t, byOutcome)
	h := Policy(outer)(Policy(inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, wrapped := w.(*exchange.Exchange); !wrapped {
			t.Error("the ResponseWriter is not wrapped")
		}
		Settle(r.Context(), policy.Outcome{Cost: 5})
	})))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if a, b := uses(t, outer), uses(t, inner); a != "failures 0, told 5, bytes 5" || b != "failures 0, told 5, bytes 5" {
		t.Errorf("%s and %s units are used", a, b)
	}
	plain := Policy(policytest.Engine(t, layers))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, own := w.(*httptest.ResponseRecorder); !own {
			t.Errorf("the ResponseWriter is a %T", w)
		}
		Settle(r.Context(), policy.Outcome{Cost: 5})
	}))
	plain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
}

// unhijackable is a ResponseWriter with a connection that cannot be hijacked.
type unhijackable struct{ http.ResponseWriter }

func TestSettleHijackFails(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, byOutcome)
	h := Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		w.WriteHeader(500)
	}))
	h.ServeHTTP(unhijackable{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
	if got := uses(t, e); got != "failures 0, told 10, bytes 0" {
		t.Errorf("%s units are used", got)
	}
}

// If a framework writes the response of a handler after the middleware has returned, the middleware cannot see the
// outcome, and logs this once.
func TestSettleTooLate(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	e := policytest.Engine(t, byOutcome)
	limit := Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}.Policy(e)
	framework := func(w http.ResponseWriter, r *http.Request, late bool) {
		limit(http.HandlerFunc(func(inner http.ResponseWriter, _ *http.Request) { w = inner })).ServeHTTP(w, r)
		if late {
			w.WriteHeader(401)
		}
	}
	for i, late := range []bool{false, true, true} {
		framework(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), late)
		if got, want := strings.Count(text.String(), "written outside the middleware"), min(i, 1); got != want {
			t.Errorf("request %d: %d warnings, want %d: %s", i, got, want, &text)
		}
	}
}

// CloseNotify, which gin's Context.Stream requires, reports that the client has left.
func TestSettleCloseNotify(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, byOutcome)
	ctx, leave := context.WithCancel(t.Context())
	Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		left := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
		select {
		case <-left:
			t.Error("CloseNotify reports before the client leaves")
		default:
		}
		leave()
		<-left
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
}

// left returns the remaining units of a limiter without keys.
func left(t *testing.T, l *sluice.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// Without AwaitOutcome, handlers get the server's own ResponseWriter, and Settle has no effect. With it, a denied
// request has no outcome.
func TestAwaitNothing(t *testing.T) {
	t.Parallel()
	limiter := policytest.Limiter(t, memory.New(), "1/day")
	key := func(*http.Request) string { return "" }
	h := Limit(limiter, key)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, own := w.(*httptest.ResponseRecorder); !own {
			t.Errorf("the ResponseWriter is a %T", w)
		}
		Settle(r.Context(), policy.Outcome{Cost: -1})
	}))
	serve := func(h http.Handler) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	if code := serve(h); code != 200 || left(t, limiter) != 0 {
		t.Errorf("status %d, and %d units remain", code, left(t, limiter))
	}
	waits := Config{AwaitOutcome: true}.Limit(limiter, key)(things)
	if code := serve(waits); code != 429 || left(t, limiter) != 0 {
		t.Errorf("status %d, and %d units remain", code, left(t, limiter))
	}
}

// Decisions that handlers keep do not change, whatever is decided afterwards. Without KeepDecision, a handler gets no
// decision.
func TestDecisionFrom(t *testing.T) {
	t.Parallel()
	const requests = 400
	var mu sync.Mutex
	kept := make(map[int64]policy.Decision)
	rules := "version: 1\nrules: [{name: all, limit: 400/hour}, {name: more, match: /more, limit: 900/hour}]"
	h := Config{KeepDecision: true}.Policy(policytest.Engine(t, rules))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, found := DecisionFrom(r.Context())
		mu.Lock()
		defer mu.Unlock()
		kept[d.Results[0].Remaining] = d
		if !found || len(d.Results) != 1+len(r.URL.Path)/5 {
			t.Errorf("%s: %v, %+v", r.URL, found, d)
		}
	}))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range requests / 4 {
				recorded(h, httptest.NewRequest("GET", []string{"/", "/more"}[i%2], nil))
			}
		})
	}
	wg.Wait()
	for remaining, d := range kept {
		if !d.Allowed || d.Results[0].Rule != "all" || d.Results[0].Remaining != remaining {
			t.Errorf("kept with %d remaining: %+v", remaining, d)
		}
	}
	if len(kept) != requests {
		t.Errorf("%d different decisions of %d", len(kept), requests)
	}
	plain := Policy(policytest.Engine(t, once))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, found := DecisionFrom(r.Context()); found || d.Allowed {
			t.Errorf("a decision that Config does not keep: %+v", d)
		}
	}))
	if w := recorded(plain, httptest.NewRequest("GET", "/", nil)); w.Code != 200 {
		t.Error(w.Code)
	}
}
