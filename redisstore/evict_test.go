package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
)

// Where memory is full and volatile-ttl evicts, a flood of new keys frees hardly any client of the same
// rule that has used up its limit.
func TestEvictionSparesLimited(t *testing.T) {
	t.Parallel()
	const limited, flood = 100, 60_000
	for _, a := range sluice.Algorithms() {
		if a == sluice.LeakyBucket || a == sluice.GCRA { // which are the meter of the token bucket
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory", "6mb", "--maxmemory-policy", "volatile-ttl")
			store, p := open(t, server.URL()), plan(t, a, "60/10d")
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
					calls[i] = sluice.TakeCall{Charges: []sluice.Charge{{Key: fmt.Sprint("new", n*batch+i), Plan: p, Cost: 1}}, Receipts: make([]sluice.Receipt, 1)}
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
			t.Logf("%d of %d freed, %s evicted, of %s", freed, limited, server.Info("evicted_keys"), server.Do("DBSIZE"))
			if freed > limited/50 {
				t.Errorf("%d of %d clients that had used up their limit got it again", freed, limited)
			}
		})
	}
}
