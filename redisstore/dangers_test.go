package redisstore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
)

func TestDangers(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	expect := func(words ...string) {
		t.Helper()
		found, err := s.Dangers(t.Context())
		if err != nil || len(found) != len(words) {
			t.Fatalf("%d dangers, want %d: %q, %v", len(found), len(words), found, err)
		}
		for _, w := range words {
			if !slices.ContainsFunc(found, func(d string) bool { return strings.Contains(d, w) && strings.Contains(d, server.Addr) }) {
				t.Errorf("no word of %q in %q", w, found)
			}
		}
	}
	expect("nothing is saved to disk")
	server.Do("CONFIG", "SET", "save", "3600 1")
	expect()
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	expect() // nothing is evicted as long as memory has no bound
	server.Do("CONFIG", "SET", "maxmemory", "100mb")
	expect("maxmemory-policy is allkeys-lru")
	server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	expect()

	server.Kill()
	if found, err := s.Dangers(t.Context()); err == nil {
		t.Errorf("a server that is gone has %q and no error", found)
	}
}
