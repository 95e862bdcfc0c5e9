package redisstore_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

func post(t *testing.T, s *redisstore.Store, part, instance, message string, expires time.Duration) {
	t.Helper()
	if err := s.Post(t.Context(), part, instance, []byte(message), expires); err != nil {
		t.Fatal(err)
	}
}

// posted returns the posts of a part as "instance=text", sorted.
func posted(t *testing.T, s *redisstore.Store, part string) (all []string) {
	t.Helper()
	found, err := s.Posted(t.Context(), part)
	if err != nil {
		t.Fatal(err)
	}
	for instance, message := range found {
		all = append(all, instance+"="+string(message))
	}
	slices.Sort(all)
	return all
}

func testBoard(t *testing.T, url string) {
	a, b := open(t, url), open(t, url)
	if got := posted(t, a, "now"); len(got) > 0 {
		t.Errorf("an empty board has the posts %q", got)
	}
	post(t, a, "now", "a", "one\x00\xff", time.Minute)
	post(t, b, "now", "b", "two", time.Minute)
	post(t, b, "history", "b", "three", time.Minute)
	post(t, a, "now", "a", "four\x00\xff", time.Minute)
	for _, s := range []*redisstore.Store{a, b} {
		if got := posted(t, s, "now"); !slices.Equal(got, []string{"a=four\x00\xff", "b=two"}) {
			t.Errorf("the posts are %q", got)
		}
		if got := posted(t, s, "history"); !slices.Equal(got, []string{"b=three"}) {
			t.Errorf("the posts of history are %q", got)
		}
	}
	if err := a.Post(t.Context(), "now", "a", bytes.Repeat([]byte("x"), 1<<20+1), time.Minute); err == nil {
		t.Error("a post of more than a MiB was accepted")
	}
	if got := posted(t, a, "now"); !slices.Equal(got, []string{"a=four\x00\xff", "b=two"}) {
		t.Errorf("afterwards, the posts are %q", got)
	}
}

func TestBoard(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		testBoard(t, server.URL()+"?prefix=mine:")
		for key := range strings.FieldsSeq(server.Do("KEYS", "*")) {
			if ttl := server.Do("PTTL", key); !strings.HasPrefix(key, "mine:") || strings.HasPrefix(ttl, "-") {
				t.Errorf("the key %q expires in %s ms", key, ttl)
			}
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		testBoard(t, redistest.SharedCluster(t).URL())
	})
	t.Run("hash key", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		hashed := func(secret string) *redisstore.Store {
			return over(t, clientOf(server), redisstore.Keys{HashKey: []byte(secret)})
		}
		store := hashed("0123456789abcdef0123456789abcdef")
		post(t, store, "now", "a", "alice@example.com", time.Minute)
		raw := server.Do("HGET", "sluice:{posts:now}", "a")
		if raw == "" || strings.Contains(raw, "alice") {
			t.Errorf("the server sees %q", raw)
		}
		// A store with another secret cannot read the post, and the post is not accepted for another instance or part.
		server.Do("HSET", "sluice:{posts:now}", "b", raw, "c", "plain")
		server.Do("ZADD", "sluice:{posts:now}:until", "1", "b", "2", "c")
		server.Do("HSET", "sluice:{posts:then}", "a", raw)
		server.Do("ZADD", "sluice:{posts:then}:until", "1", "a")
		if got := posted(t, hashed("another secret of 32 bytes......"), "now"); len(got) > 0 {
			t.Errorf("with another secret: %q", got)
		}
		if now, then := posted(t, store, "now"), posted(t, store, "then"); !slices.Equal(now, []string{"a=alice@example.com"}) || len(then) > 0 {
			t.Errorf("accepted %q, and %q of another part", now, then)
		}
	})
}

// The number of posts is bounded, even if an instance posts under ever new names.
func TestBoardIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := open(t, server.URL())
	for i := range 300 {
		post(t, store, "now", fmt.Sprintf("%03d", i), "x", time.Minute+time.Duration(i)*time.Second)
	}
	if got := posted(t, store, "now"); len(got) != 256 || got[0] != "044=x" {
		t.Errorf("%d instances, the first is %q", len(got), got[0])
	}
	if n := server.Do("ZCARD", "sluice:{posts:now}:until"); n != "256" {
		t.Errorf("%s expiries are kept, want 256", n)
	}
}

// TestBoardOfOthers checks that large values from another client of the server do not fill the memory of readers. It is
// not parallel, because it counts the allocations of the process.
func TestBoardOfOthers(t *testing.T) {
	server := redistest.Shared(t)
	store := open(t, server.URL())
	const until = "sluice:{posts:now}:until"
	fill := func(instance string, size int) {
		server.Do("EVAL", "redis.call('HSET', KEYS[1], ARGV[1], string.rep('x', ARGV[2])) redis.call('ZADD', KEYS[2], 4e12, ARGV[1])",
			"2", "sluice:{posts:now}", until, instance, fmt.Sprint(size))
	}
	read := func() (all map[string][]byte, took uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all, err := store.Posted(t.Context(), "now")
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Error(err)
		}
		return all, after.TotalAlloc - before.TotalAlloc
	}
	post(t, store, "now", "honest", "one", time.Hour)
	fill("large", 64<<20)
	fill(strings.Repeat("n", 1<<20), 3)
	if all, took := read(); len(all) != 1 || string(all["honest"]) != "one" || took > 8<<20 {
		t.Errorf("%d posts were read, and %d bytes allocated", len(all), took)
	}
	for i := range 60 {
		fill(fmt.Sprint(i), 1<<20)
	}
	if all, took := read(); len(all) != 32 || took > 128<<20 {
		t.Errorf("%d posts of a MiB were read of 60, and %d bytes allocated", len(all), took)
	}
	if err := store.Post(t.Context(), "now", strings.Repeat("n", 257), nil, time.Minute); err == nil {
		t.Error("a name of 257 bytes was accepted")
	}
}

// Expired posts are gone, and so are posts from a time when the clock was ahead.
func TestBoardClock(t *testing.T) {
	t.Parallel()
	server := redistest.StartMovable(t)
	store := open(t, server.URL())
	post(t, store, "now", "short", "x", 40*time.Second)
	post(t, store, "now", "long", "y", time.Minute)
	server.SetClock(50 * time.Second)
	post(t, store, "now", "late", "z", 45*time.Second)
	if got := posted(t, store, "now"); !slices.Equal(got, []string{"late=z", "long=y"}) {
		t.Errorf("after 50 seconds, the posts are %q", got)
	}
	server.SetClock(24 * time.Hour)
	post(t, store, "now", "ahead", "x", time.Minute)
	server.SetClock(0)
	post(t, store, "now", "a", "y", time.Minute)
	if got := posted(t, store, "now"); !slices.Equal(got, []string{"a=y"}) {
		t.Errorf("after the clock was corrected, the posts are %q", got)
	}
}

// The clock of a real server jumps by an hour, forward or back. An instance is counted again from its next heartbeat,
// and instances without heartbeats do not stay. TestConformanceTimed checks the effect of jumps on limits.
func TestServerClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		server := redistest.StartMovable(t)
		store := open(t, server.URL())
		beat := func(id string, want int) {
			t.Helper()
			if n, err := store.Heartbeat(t.Context(), id); n != want || err != nil {
				t.Errorf("%v: %d instances, error %v, want %d", jump, n, err, want)
			}
		}
		beat("a", 1)
		beat("b", 2)
		server.SetClock(jump)
		beat("a", 1)
		beat("b", 2)
		server.SetClock(jump + 10*time.Minute)
		testkit.Await(t, "the key of the instances expires", func() bool { return server.Do("DBSIZE") == "0" })
	}
}
