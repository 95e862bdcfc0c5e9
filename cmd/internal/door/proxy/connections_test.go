package proxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

// A trusted proxy is recognized in every notation of its address and network. It may open more connections than
// PerAddress, and its X-Forwarded-Prefix fields are kept.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		network, addr string
		want          bool
	}{
		{"192.0.2.0/24", "192.0.2.7", true},
		{"::ffff:192.0.2.0/120", "192.0.2.7", true},
		{"::ffff:192.0.2.7/128", "192.0.2.7", true},
		{"2001:db8::5/128", "2001:db8::5", true},
		{"2001:db8::5/128", "2001:db8::6", false},
		{"192.0.2.0/24", "192.0.3.7", false},
	} {
		trusted := func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(test.network)} }
		addr := netip.MustParseAddr(test.addr)

		c := Connections{PerAddress: 1, Trusted: trusted, Log: slog.New(slog.DiscardHandler)}
		if first, second := c.enter(addr), c.enter(addr); !first || second != test.want {
			t.Errorf("%s in %s: a second connection is accepted: %v", test.addr, test.network, second)
		}
		c.leave(addr)
		if open := c.Open(); (open == 1) != test.want || !test.want && len(c.by) > 0 {
			t.Errorf("%s in %s: %d connections are open, %v by address", test.addr, test.network, open, c.by)
		}

		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = netip.AddrPortFrom(addr, 4711).String()
		for _, name := range []string{"X-Forwarded-Prefix", "X-Forwarded-Script-Name", "X-Script-Name"} {
			r.Header.Set(name, "/other")
		}
		Clean(Upstream{Trusted: trusted}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, prefix := r.Header["X-Forwarded-Prefix"]
			_, script := r.Header["X-Forwarded-Script-Name"]
			_, stranger := r.Header["X-Script-Name"]
			if prefix != test.want || script != test.want || stranger {
				t.Errorf("%s in %s: the fields that remain are %v", test.addr, test.network, r.Header)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}
