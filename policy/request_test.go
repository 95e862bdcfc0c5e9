package policy

import (
	"slices"
	"testing"
)

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
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
