package httplimit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
)

// Keep replaces the rate-limit fields of a proxy's upstream by those of the limit, and leaves them out of a 103
// response.
func TestKeep(t *testing.T) {
	t.Parallel()
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "X-RateLimit-Limit", "X-RateLimit-Reset"} {
			w.Header().Set(name, "upstream")
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Retry-After", "7")
		_, _ = io.WriteString(w, "upstream\n")
	}))
	defer behind.Close()
	target, _ := url.Parse(behind.URL)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	limiter := policytest.Limiter(t, memory.New(), "1000/hour")
	s := httptest.NewServer(Limit(limiter, nil)(Keep(proxy)))
	defer s.Close()
	hints := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints++
		for name := range h {
			if strings.Contains(name, "Ratelimit") {
				t.Errorf("%s in a %d response", name, code)
			}
		}
		return nil
	}}
	r, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", s.URL, nil)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	h := response.Header
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		if len(h[name]) != 1 || h[name][0] == "upstream" {
			t.Errorf("%s is %q", name, h[name])
		}
	}
	if h["Ratelimit-Limit"] != nil || h.Get("Retry-After") != "7" || hints != 1 {
		t.Errorf("%d hints, %v", hints, h)
	}
}
