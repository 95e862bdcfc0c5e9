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
	"github.com/sluicehq/sluice/policy"
)

// If the client leaves or the upstream is too slow, a request costs the estimate, because the model may have worked on
// it. If the connection breaks, the response is the gateway's error page, so the request costs the input and one token
// of output.
func TestLostResponse(t *testing.T) {
	t.Parallel()
	const body = `{"max_tokens":1000}`
	const input = int64(len(body)+2) / 3
	for _, one := range []struct {
		name, count  string
		leaves, cuts bool
		want         int64
	}{
		{"the client leaves", "", true, false, input + 1000},
		{"the client leaves, and only successes count", ", count: {status: [2xx]}", true, false, input + 1000},
		{"the upstream is too slow", "", false, false, input + 1000},
		{"the connection breaks", "", false, true, input + 1},
		{"the connection breaks, and only successes count", ", count: {status: [2xx]}", false, true, input + 1},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			e := policytest.Engine(t, "version: 1\nrules: [{name: a, limit: 100000/day, cost: {tokens: total}"+one.count+"}]")
			settled := make(chan int64, 1)
			e.ObserveSettled(func(_ context.Context, s *policy.Settlement) { settled <- s.Cost })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if one.cuts {
					panic(http.ErrAbortHandler)
				}
				if one.leaves {
					leave()
				}
				<-r.Context().Done()
			}))
			defer up.Close()
			target, err := url.Parse(up.URL)
			if err != nil {
				t.Fatal(err)
			}
			timeout := time.Minute
			if !one.leaves && !one.cuts {
				timeout = 100 * time.Millisecond
			}
			g := httptest.NewServer(httplimit.Policy(e)(Handler(Upstream{URL: target, Timeout: timeout, Trusted: e.TrustedProxies, Log: slog.New(slog.DiscardHandler)})))
			defer g.Close()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
			if got := <-settled; got != one.want {
				t.Errorf("%d tokens were charged, want %d", got, one.want)
			}
		})
	}
}
