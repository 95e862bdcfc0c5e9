package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"
)

func TestTrustedProxies(t *testing.T) {
	e := engine(t, `
trusted_proxies: [10.0.0.0/8, 192.0.2.7, "::ffff:198.51.100.0/120", "2001:db8::1", "::ffff:203.0.113.1", "::/0"]
rules: []`)
	want := []string{"10.0.0.0/8", "192.0.2.7/32", "198.51.100.0/24", "2001:db8::1/128", "203.0.113.1/32", "::/0"}
	var got []string
	for _, p := range e.TrustedProxies() {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Requests are apart for client_ip as Partition says.
func TestPartition(t *testing.T) {
	p, err := Compile(Document{TrustedProxies: []string{"10.0.0.0/8"}, IPv6Prefix: 48})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1", "", "192.0.2.1"},
		{"::ffff:192.0.2.1", "198.51.100.1", "192.0.2.1"},
		{"10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"10.0.0.1", "2001:db8:1:2::3", "2001:db8:1::"},
	} {
		r := Request{Peer: netip.MustParseAddr(tt.peer), Header: http.Header{}}
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		if got := p.Partition(&r); got != netip.MustParseAddr(tt.want) {
			t.Errorf("%s for %q is %v, want %s", tt.peer, tt.forwarded, got, tt.want)
		}
	}
	if got := p.Partition(&Request{}); got.IsValid() {
		t.Errorf("nobody is %v", got)
	}
}
