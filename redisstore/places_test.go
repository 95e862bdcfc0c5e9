package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

// Places end by the server's clock. Nothing is left of those that were given back, and the key of
// those that nobody gives back expires.
func TestPlacesExpire(t *testing.T) {
	t.Parallel()
	server := redistest.StartMovable(t)
	store := open(t, server.URL())
	const last = ^uint64(0)
	takeAll(t, store, aPlace(t, "k", 2, 1, 1))
	r := takeAll(t, store, aPlace(t, "k", 2, last, 1))[0]
	name := server.Do("KEYS", "*")
	ends := r.Now + kernel.PermitLasts.Microseconds()
	if at := number(t, server, "PEXPIRETIME", name) * 1000; at < ends || at > ends+kernel.PermitLasts.Microseconds()+1000 {
		t.Errorf("the last place ends at %d, and the key expires at %d", ends, at)
	}
	takeAll(t, store, aPlace(t, "k", 2, 1, -1))
	takeAll(t, store, aPlace(t, "k", 2, last, -1))
	if n := server.Do("DBSIZE"); n != "0" {
		t.Errorf("all were given back, and there are %s keys", n)
	}

	takeAll(t, store, aPlace(t, "k", 2, 1, 1), aPlace(t, "other", 2, 1, 1))
	server.SetClock(kernel.PermitLasts / 2)
	takeAll(t, store, aPlace(t, "k", 2, 2, 1))
	if r := takeAll(t, store, aPlace(t, "k", 2, 3, 1))[0]; r.Fits {
		t.Errorf("a third of two places: %+v", r)
	}
	server.SetClock(kernel.PermitLasts + time.Second)
	if r := takeAll(t, store, aPlace(t, "k", 2, 3, 1))[0]; !r.Fits || r.Used != 2 {
		t.Errorf("a third of two places, when the first has ended: %+v", r)
	}
	if n := server.Do("ZCARD", name); n != "2" {
		t.Errorf("%s places are kept, of which 2 are held", n)
	}
	for beat := range time.Duration(6) { // for longer than the key would stay without
		server.SetClock(kernel.PermitLasts*2 + beat*kernel.PermitLasts/2)
		for number := range uint64(2) {
			if r := takeAll(t, store, aPlace(t, "beats", 2, number, 1))[0]; !r.Fits || beat > 0 && r.Used != 2 {
				t.Errorf("beat %d of place %d: %+v", beat, number, r)
			}
		}
	}
	server.SetClock(10 * kernel.PermitLasts)
	testkit.Await(t, "the keys expire", func() bool { return server.Do("DBSIZE") == "0" })
}

// No refusal of a place is remembered, since others give theirs back at any time. But what else
// refuses a request is, and tells how many places were taken.
func TestPlacesAreNotRemembered(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	mine, other := open(t, server.URL()), open(t, server.URL())
	takeAll(t, other, aPlace(t, "k", 1, 1, 1))
	for range 3 {
		if r := takeAll(t, mine, aPlace(t, "k", 1, 2, 1))[0]; r.Fits || r.Origin != sluice.ByStore {
			t.Fatalf("a second place of one: %+v", r)
		}
	}
	takeAll(t, other, aPlace(t, "k", 1, 1, -1))
	if r := takeAll(t, mine, aPlace(t, "k", 1, 2, 1))[0]; !r.Fits {
		t.Errorf("another has given the place back: %+v", r)
	}

	limit := sluice.Charge{Key: "k", Plan: plan(t, sluice.TokenBucket, "1/day"), Cost: 1}
	takeAll(t, mine, limit)
	takeAll(t, mine, limit, aPlace(t, "k", 1, 2, 1)) // learns it
	for range 3 {
		r := takeAll(t, mine, aPlace(t, "k", 1, 3, 1), limit)
		if r[0].Origin != sluice.ByDenyCache || r[1].Origin != sluice.ByDenyCache || r[1].Fits || r[0].Used != 1 {
			t.Errorf("beside a limit that refuses: %+v", r)
		}
		takeAll(t, mine, aPlace(t, "k", 1, 2, -1)) // which gives nothing back to the limit
		takeAll(t, mine, aPlace(t, "k", 1, 2, 1))
	}
}

// On a cluster a place that was taken is given back where another slot refuses.
func TestPlacesAcrossSlots(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	store, other := open(t, c.URL()), open(t, c.URL())
	// So large a limit is asked after the places.
	limit := func(user int, cost int64) sluice.Charge {
		return sluice.Charge{Key: fmt.Sprint("user", user), Plan: plan(t, sluice.FixedWindow, "1000000/10d"), Cost: cost}
	}
	const users = 30 // some on each master
	for user := range users {
		takeAll(t, other, limit(user, 1_000_000)) // so that store does not know that it refuses
		charges := []sluice.Charge{aPlace(t, "upstream", 2, uint64(user), 1), limit(user, 1)}
		if r := takeAll(t, store, charges...); sluice.Admitted(charges, r) || !r[0].Fits {
			t.Fatalf("user %d: %+v", user, r)
		}
		if r := takeAll(t, store, aPlace(t, "upstream", 2, 99, 0)); r[0].Used != 0 {
			t.Fatalf("user %d was refused, and %d places are taken", user, r[0].Used)
		}
	}
	all := []sluice.Charge{aPlace(t, "upstream", 2, 1, 1), limit(1000, 1), limit(1001, 1), limit(1002, 1)}
	if r := takeAll(t, store, all...); !sluice.Admitted(all, r) || r[0].Used != 1 {
		t.Errorf("a request that fits: %+v", r)
	}
}

// A place that has ended is not held any more where fewer places are left than are taken.
func TestPlacesBecomeFewer(t *testing.T) {
	t.Parallel()
	twins := plantest.Twins{Store: timed(t, redistest.Shared(t)), Like: memory.New()}
	now, half := time.Now().UnixMicro(), kernel.PermitLasts.Microseconds()/2
	twins.At(t, now, aPlace(t, "k", 3, 1, 1))
	twins.At(t, now+half, aPlace(t, "k", 3, 2, 1))
	if r := twins.At(t, now+2*half+1, aPlace(t, "k", 1, 1, 1)); r[0].Fits {
		t.Errorf("a second place of one: %+v", r)
	}
}
