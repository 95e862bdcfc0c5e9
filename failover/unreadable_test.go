package failover_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// A text in a real server is in the way of one decision, and a list until it is deleted.
func TestRedisUnreadable(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var log lines
	s := overRedis(t, server.URL(), failover.Config{Deadline: time.Minute, Logger: logTo(&log)})
	p := plan(t, "3/day", sluice.FixedWindow)
	take(t, s, "k", p, sluice.Deny)
	name := server.Do("KEYS", "*:k")
	look := func(what string, degraded bool, want int64) {
		t.Helper()
		if r := take(t, s, "k", p, sluice.Deny); r.Origin.Degraded() != degraded || !degraded && r.Used != want {
			t.Errorf("%s: %+v", what, r)
		}
	}
	server.Do("SET", name, "garbage")
	look("a text", true, 0)
	look("after it", false, 1)
	server.Do("DEL", name)
	server.Do("RPUSH", name, "x")
	look("a list", true, 0)
	look("a list", true, 0)
	server.Do("DEL", name)
	look("after it", false, 1)
	if log.about("it was deleted") != 1 || log.about("holds something else") != 2 || log.about(name) != 2 {
		t.Errorf("%q", log.all)
	}
}

// overRedis returns a failover store over the server at a URL.
func overRedis(t *testing.T, url string, c failover.Config) *failover.Store {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s := open(shared, c)
	t.Cleanup(func() {
		s.Close()
		shared.Close()
	})
	return s
}
