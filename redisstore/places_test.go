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

// Permits expire by the server's clock. Permits that are given back leave nothing behind, and the key of permits that
// are not given back expires.
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
		t.Errorf("the last permit expires at %d, and the key at %d", ends, at)
	}
	takeAll(t, store, aPlace(t, "k", 2, 1, -1))
	takeAll(t, store, aPlace(t, "k", 2, last, -1))
	if n := server.Do("DBSIZE"); n != "0" {
		t.Errorf("all permits were given back, but %s keys exist", n)
	}

	takeAll(t, store, aPlace(t, "k", 2, 1, 1), aPlace(t, "other", 2, 1, 1))
	server.SetClock(kernel.PermitLasts / 2)
	takeAll(t, store, aPlace(t, "k", 2, 2, 1))
	if r := takeAll(t, store, aPlace(t, "k", 2, 3, 1))[0]; r.Fits {
		t.Errorf("the third of two permits: %+v", r)
	}
	server.SetClock(kernel.PermitLasts + time.Second)
	if r := takeAll(t, store, aPlace(t, "k", 2, 3, 1))[0]; !r.Fits || r.Used != 2 {
		t.Errorf("the third of two permits, after the first has expired: %+v", r)
	}
	if n := server.Do("ZCARD", name); n != "2" {
		t.Errorf("%s permits are stored, want the 2 that are held", n)
	}
	for beat := range time.Duration(6) { // for longer than the key would stay without renewals
		server.SetClock(kernel.PermitLasts*2 + beat*kernel.PermitLasts/2)
		for number := range uint64(2) {
			if r := takeAll(t, store, aPlace(t, "beats", 2, number, 1))[0]; !r.Fits || beat > 0 && r.Used != 2 {
				t.Errorf("renewal %d of permit %d: %+v", beat, number, r)
			}
		}
	}
	server.SetClock(10 * kernel.PermitLasts)
	testkit.Await(t, "the keys expire", func() bool { return server.Do("DBSIZE") == "0" })
}

// A denied permit is not remembered, because other processes may give permits back at any time. A denial by another
// limit of the request is remembered, together with the number of taken permits.
func TestPlacesAreNotRemembered(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	mine, other := open(t, server.URL()), open(t, server.URL())
	takeAll(t, other, aPlace(t, "k", 1, 1, 1))
	for range 3 {
		if r := takeAll(t, mine, aPlace(t, "k", 1, 2, 1))[0]; r.Fits || r.Origin != sluice.ByStore {
			t.Fatalf("the second permit of one: %+v", r)
		}
	}
	takeAll(t, other, aPlace(t, "k", 1, 1, -1))
	if r := takeAll(t, mine, aPlace(t, "k", 1, 2, 1))[0]; !r.Fits {
		t.Errorf("after another process gave its permit back: %+v", r)
	}

	limit := sluice.Charge{Key: "k", Plan: plan(t, sluice.TokenBucket, "1/day"), Cost: 1}
	takeAll(t, mine, limit)
	takeAll(t, mine, limit, aPlace(t, "k", 1, 2, 1)) // remembers the denial by the limit
	for range 3 {
		r := takeAll(t, mine, aPlace(t, "k", 1, 3, 1), limit)
		if r[0].Origin != sluice.ByDenyCache || r[1].Origin != sluice.ByDenyCache || r[1].Fits || r[0].Used != 1 {
			t.Errorf("with a limit that denies: %+v", r)
		}
		takeAll(t, mine, aPlace(t, "k", 1, 2, -1)) // refunds nothing to the limit
		takeAll(t, mine, aPlace(t, "k", 1, 2, 1))
	}
}

// On a cluster, a taken permit is given back if another slot denies.
func TestPlacesAcrossSlots(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	store, other := open(t, c.URL()), open(t, c.URL())
	// A limit this large is charged after the permits.
	limit := func(user int, cost int64) sluice.Charge {
		return sluice.Charge{Key: fmt.Sprint("user", user), Plan: plan(t, sluice.FixedWindow, "1000000/10d"), Cost: cost}
	}
	const users = 30 // some on each master
	for user := range users {
		takeAll(t, other, limit(user, 1_000_000)) // not through store, which would remember the denial
		charges := []sluice.Charge{aPlace(t, "upstream", 2, uint64(user), 1), limit(user, 1)}
		if r := takeAll(t, store, charges...); sluice.Admitted(charges, r) || !r[0].Fits {
			t.Fatalf("user %d: %+v", user, r)
		}
		if r := takeAll(t, store, aPlace(t, "upstream", 2, 99, 0)); r[0].Used != 0 {
			t.Fatalf("user %d was denied, but %d permits are taken", user, r[0].Used)
		}
	}
	all := []sluice.Charge{aPlace(t, "upstream", 2, 1, 1), limit(1000, 1), limit(1001, 1), limit(1002, 1)}
	if r := takeAll(t, store, all...); !sluice.Admitted(all, r) || r[0].Used != 1 {
		t.Errorf("a request that fits: %+v", r)
	}
}

// If the limit becomes smaller, an expired permit cannot be renewed while others hold all permits.
func TestPlacesBecomeFewer(t *testing.T) {
	t.Parallel()
	twins := plantest.Twins{Store: timed(t, redistest.Shared(t)), Like: memory.New()}
	now, half := time.Now().UnixMicro(), kernel.PermitLasts.Microseconds()/2
	twins.At(t, now, aPlace(t, "k", 3, 1, 1))
	twins.At(t, now+half, aPlace(t, "k", 3, 2, 1))
	if r := twins.At(t, now+2*half+1, aPlace(t, "k", 1, 1, 1)); r[0].Fits {
		t.Errorf("the second permit of one: %+v", r)
	}
}
