package redisstore

import "testing"

func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{
		"5.0.14": true, "6.0.20": true, "6.2.0": false, "7.0.15": false, "10.0.1": false,
		"": false, "unstable": false,
	} {
		if got := tooOld(version); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}
