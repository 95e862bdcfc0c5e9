package policy_test

import (
	"testing"

	"github.com/sluicehq/sluice/policy"
)

func TestPlainHost(t *testing.T) {
	for host, want := range map[string]bool{
		"": true, "a": true, "Example.com.": true, "a_b-c.example:80": true, "192.0.2.1:8080": true, "[2001:db8::1]": true, "[::1]:80": true, "a:": true,
		"a:80:80": false, "a,b": false, "a@b": false, "a%41": false, "a/b": false, `a\b`: false, "a b": false, "a:b": false, "b\u00fccher.example": false,
		"[::1": false, "[::1]x": false, "[::1]:x": false, "[fe80::1%25eth0]": false, "[192.0.2.1]": false, "::1": false, "a;b": false,
		"a.": true, "a.:80": true, "a.b.": true, "a..": false, "a..b": false, ".a": false, ".": false, "..": false, "a..:80": false, ".:80": false, "a\x00": false,
	} {
		if got := policy.PlainHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
