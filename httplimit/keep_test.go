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

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// upstream has limits of its own, and sends 103 where asked to.
func upstream(t *testing.T) *httputil.ReverseProxy {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "X-RateLimit-Limit", "X-RateLimit-Reset"} {
			w.Header().Set(name, "upstream")
		}
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("Retry-After", "7")
		if r.URL.Path == "/flush" {
			http.NewResponseController(w).Flush()
		}
		if r.URL.Path != "/silent" {
			io.WriteString(w, "upstream\n")
		}
	}))
	t.Cleanup(s.Close)
	target, _ := url.Parse(s.URL)
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	limiter := mustLimiter(t, memory.New(), "1000/hour", sluice.TokenBucket)
	s := httptest.NewServer(Limit(limiter, nil)(Keep(upstream(t))))
	defer s.Close()
	for _, path := range []string{"/", "/hints", "/flush", "/silent"} {
		hints := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints++
			for name := range h {
				if strings.Contains(name, "Ratelimit") {
					t.Errorf("%s: %s in a %d", path, name, code)
				}
			}
			return nil
		}}
		r, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", s.URL+path, nil)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		h := response.Header
		for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
			if len(h[name]) != 1 || h[name][0] == "upstream" {
				t.Errorf("%s: %s is %q", path, name, h[name])
			}
		}
		if h["Ratelimit-Limit"] != nil || h.Get("Retry-After") != "7" || (hints == 1) != (path == "/hints") {
			t.Errorf("%s: %d hints, %v", path, hints, h)
		}
	}
}

// Where no door has said anything, the upstream has its say.
func TestKeepNothing(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(Keep(upstream(t)))
	defer s.Close()
	response, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if h := response.Header; h.Get("RateLimit") != "upstream" || h.Get("X-RateLimit-Limit") != "upstream" {
		t.Errorf("%v", h)
	}
}
