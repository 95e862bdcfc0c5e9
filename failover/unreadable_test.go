package failover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// However often such keys are asked for, no circuit opens, and a key is logged once in a minute, ten keys at most.
func TestUnreadableOften(t *testing.T) {
	t.Parallel()
	var log lines
	bubble(t, failover.Config{Logger: logTo(&log)}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "1000000/day", sluice.TokenBucket)
		var spoiled []string
		for i := range 51 {
			spoiled = append(spoiled, fmt.Sprintf("bad%d.", i))
		}
		sv.Set(faultstore.Spoil(nil, spoiled...))
		const asked = 400
		for i := range asked {
			if r := take(t, s, spoiled[0], p, sluice.Deny); r.Fits || !r.Origin.Degraded() {
				t.Fatalf("take %d: %+v of the bad key", i, r)
			}
			if r := take(t, s, "good", p, sluice.Deny); !r.Fits || r.Origin.Degraded() || s.Status().Degraded() {
				t.Fatalf("take %d: %+v of the good key", i, r)
			}
		}
		if n, named := log.about("holds something else"), log.about("bad0."); n != 1 || named != 1 || s.Status().Unreadable != asked {
			t.Errorf("%d lines in the log, %d of them name the key, status %+v", n, named, s.Status())
		}
		for _, key := range spoiled {
			take(t, s, key, p, sluice.Deny)
		}
		if n := log.about("holds something else"); n != 10 {
			t.Errorf("%d lines about 51 keys, want 10", n)
		}
		time.Sleep(time.Minute)
		take(t, s, spoiled[0], p, sluice.Deny)
		if n := log.about("bad0."); n != 2 || log.about("not_logged_since=400") != 1 || log.about("not_logged_since=41\n") != 1 {
			t.Errorf("a minute later: %s", log.all)
		}
	})
}

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
