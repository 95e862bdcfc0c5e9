package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/policytest"
)

func TestLostResponseCostsTheEstimate(t *testing.T) {
	for _, timeout := range []string{"leave", "reset", "late", "2xx-leave"} {
		e := policytest.Engine(t, "version: 1\nrules: [{name: a, limit: 100000/day, algorithm: fixed_window, cost: {tokens: total, estimate: {output: 1000}}"+map[string]string{"2xx-leave": ", count: {status: [2xx]}"}[timeout]+"}]")
		arrived := make(chan struct{}, 1)
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			arrived <- struct{}{}
			if timeout == "reset" {
				panic(http.ErrAbortHandler)
			}
			<-r.Context().Done()
		}))
		defer up.Close()
		target, _ := url.Parse(up.URL)
		g := httptest.NewServer(httplimit.Policy(e)(Handler(Upstream{URL: target, Timeout: time.Second, Trusted: e.TrustedProxies, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})))
		defer g.Close()
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "POST", g.URL+"/v1/chat/completions", strings.NewReader(`{"max_tokens":1000}`))
		go func() {
			<-arrived
			if timeout == "late" {
				return
			}
			time.Sleep(100 * time.Millisecond)
			cancel()
		}()
		resp, err := http.DefaultClient.Do(req)
		t.Log(err)
		if err == nil {
			t.Log(resp.Status)
		}
		time.Sleep(500 * time.Millisecond)
		s, _ := e.Subject("a", nil)
		r, _ := s.Peek(context.Background())
		t.Log("used", 100000-r[0].Remaining)
		if used := 100000 - r[0].Remaining; (used < 1000) != (timeout == "reset") {
			t.Errorf("%s: used %d of a reservation of 1007", timeout, used)
		}
		cancel()
	}
}
