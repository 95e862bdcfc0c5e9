package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// Where memory is full and volatile-ttl evicts, a flood of new keys of the same rule frees no client that
// has used up its limit, and one of another rule those that Kept says.
func TestEvictionByExpiry(t *testing.T) {
	t.Parallel()
	const limited, flood = 100, 60_000
	type rule struct {
		sluice.Algorithm
		limit string
	}
	pairs := [][2]rule{
		{{sluice.TokenBucket, "60/hour"}, {sluice.TokenBucket, "1000/day"}},
		{{sluice.TokenBucket, "60/hour"}, {sluice.TokenBucket, "10/day"}},
		{{sluice.SlidingWindowLog, "60/hour"}, {sluice.SlidingWindowLog, "60/10d"}},
		{{sluice.SlidingWindowLog, "60/day"}, {sluice.TokenBucket, "60/day"}},
	}
	for _, a := range sluice.Algorithms() {
		if a != sluice.LeakyBucket && a != sluice.GCRA { // which are the meter of the token bucket
			same := rule{a, "60/10d"}
			pairs = append(pairs, [2]rule{same, same})
		}
	}
	for _, pair := range pairs {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			t.Parallel()
			p, floods := plan(t, pair[0].Algorithm, pair[0].limit), plan(t, pair[1].Algorithm, pair[1].limit)
			server := redistest.Start(t, "--maxmemory", "6mb", "--maxmemory-policy", "volatile-ttl")
			store := open(t, server.URL())
			var receipts [1]sluice.Receipt
			for i := range limited {
				if err := store.Take(t.Context(), []sluice.Charge{{Key: fmt.Sprint("limited", i), Plan: p, Cost: p.Capacity}}, receipts[:]); err != nil {
					t.Fatal(err)
				}
			}
			const batch = 1000
			calls := make([]sluice.TakeCall, batch)
			for n := range flood / batch {
				for i := range calls {
					calls[i] = sluice.TakeCall{Charges: []sluice.Charge{{Key: fmt.Sprint("new", n*batch+i), Plan: floods, Cost: 1}}, Receipts: make([]sluice.Receipt, 1)}
				}
				sluice.TakeEach(t.Context(), store, calls)
				for i := range calls {
					if calls[i].Err != nil {
						t.Fatal(calls[i].Err)
					}
				}
			}
			if evicted := server.Info("evicted_keys"); len(evicted) < 5 {
				t.Fatalf("only %s keys were evicted", evicted)
			}
			again := open(t, server.URL()) // one that remembers no refusal
			freed := 0
			for i := range limited {
				if err := again.Take(t.Context(), []sluice.Charge{{Key: fmt.Sprint("limited", i), Plan: p, Cost: p.Capacity / 2}}, receipts[:]); err != nil {
					t.Fatal(err)
				}
				if receipts[0].Fits {
					freed++
				}
			}
			_, last := redisstore.Kept(p)
			first, _ := redisstore.Kept(floods)
			if most := limited / 50; first <= last && freed > most {
				t.Errorf("%d of %d clients that had used up their limit got it again, want at most %d", freed, limited, most)
			} else if first > last && freed < limited/2 {
				t.Errorf("%d of %d clients got their limit again, and Kept says that they are evicted first", freed, limited)
			}
		})
	}
}
