package proxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/internal/policytest"
)

// Clean, the limits and Keep share one writer around the server's writer. The limits see the client address that Clean
// has determined, and no fields that Connection names.
func TestOneExchange(t *testing.T) {
	t.Parallel()
	engine := policytest.Engine(t, `
version: 1
trusted_proxies: [192.0.2.0/24]
rules:
  - {name: per-client, key: [client_ip], limit: 1/day}
  - {name: per-key, key: ["header:X-Key"], missing: skip, limit: 1/day}
  - {name: failures, limit: 100/day, count: {status: [500]}}
  - {name: at-once, in_flight: 10}
`)
	u := Upstream{Trusted: engine.TrustedProxies, Log: slog.New(slog.DiscardHandler)}
	limit := httplimit.Config{}.Policy(engine)
	h := Clean(u, limit(httplimit.Keep(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		x, ok := w.(*exchange.Exchange)
		if !ok {
			t.Fatalf("the writer is a %T", w)
		}
		if _, server := x.Unwrap().(*httptest.ResponseRecorder); !server {
			t.Errorf("the exchange wraps a %T, want the server's writer", x.Unwrap())
		}
	}))))
	for _, c := range []struct {
		client string
		want   int
	}{{"198.51.100.1", 200}, {"198.51.100.2", 200}, {"198.51.100.1", 429}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 80).String()
		r.Header = http.Header{"X-Forwarded-For": {c.client}, "Connection": {"X-Key"}, "X-Key": {"same"}}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: %d %s", c.client, w.Code, w.Body)
		}
	}
}
