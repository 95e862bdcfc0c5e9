//go:build long

package memory_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

// sized returns the full size of a test if SLUICE_DELUGE is set, and otherwise a fraction of it that takes seconds.
func sized(short, full int) int {
	if os.Getenv("SLUICE_DELUGE") != "" {
		return full
	}
	return short
}

// TestLongDeluge is TestFlood with ten million keys, and with a hundred million in a store of the default size, which
// takes up to an hour. Without SLUICE_DELUGE, it has only some more keys than a small store has room for.
func TestLongDeluge(t *testing.T) {
	t.Run("1 MiB", func(t *testing.T) { deluges(t, 1<<20, 1000, sized(60_000, 10_000_000)) })
	t.Run("64 MiB", func(t *testing.T) { deluges(t, int64(sized(2<<20, 64<<20)), 1000, sized(120_000, 100_000_000)) })
}

// TestLongNearlyAllLimited checks that no limited key is evicted while limited keys take most of the room: some
// eight tenths of the cells, or 97 percent of the overflow.
func TestLongNearlyAllLimited(t *testing.T) {
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			size, flood := int64(sized(256<<10, 1<<20)), sized(12_500, 50_000)
			s, p := memory.NewSeededSize(t, size), plan(t, tt.limit, tt.algorithm)
			fits := 0
			for ; s.Losses().Evicted == 0; fits++ {
				takeAt(t, s, midday, fmt.Sprint("filling ", fits), p, p.Capacity)
			}
			s = memory.NewSeededSize(t, size)
			clients := fits * 92 / 100
			if fits < int(size)/2/16/2 { // the states are in the overflow
				clients = fits * 97 / 100
			}
			for i := range clients {
				takeAt(t, s, midday, fmt.Sprint("client ", i), p, 1)
				takeAt(t, s, midday, fmt.Sprint("client ", i), p, p.Capacity-1)
			}
			randomKeys(t, s, midday+1, p, flood)
			freed := 0
			for i := range clients {
				if takeAt(t, s, midday+1, fmt.Sprint("client ", i), p, 1) {
					freed++
				}
			}
			if stats := s.StatsAt(midday + 1); freed > 0 || stats.Freed > 0 || stats.Evicted < int64(flood*8/10) {
				t.Errorf("%d of %d were freed: %+v", freed, clients, stats)
			}
		})
	}
}

// TestLongSevenTenthsLimited checks that no limited key is evicted while limited keys take seven tenths of the
// room, also in small stores, in which tables fill less evenly.
func TestLongSevenTenthsLimited(t *testing.T) {
	p, flood := plan(t, "10/day", sluice.TokenBucket), sized(25_000, 100_000)
	for _, size := range []int64{64 << 10, 180_000, 550_000} {
		s := memory.NewSeededSize(t, size)
		for i := range size / 2 / 16 * 7 / 10 {
			takeAt(t, s, midday, fmt.Sprint("client ", i), p, p.Capacity)
		}
		randomKeys(t, s, midday+1, p, flood)
		if stats := s.StatsAt(midday + 1); stats.Freed > 0 || stats.Evicted < int64(flood*7/10) {
			t.Errorf("%d bytes: %+v", size, stats)
		}
	}
}

// randomKeys takes one unit of each of n unused keys.
func randomKeys(tb testing.TB, s storetest.TimedStore, now int64, p *sluice.Plan, n int) {
	tb.Helper()
	charges := []sluice.Charge{{Plan: p, Cost: 1}}
	receipts := make([]sluice.Receipt, 1)
	rng := rand.New(rand.NewPCG(7, uint64(p.Kernel)))
	for range n {
		key := binary.LittleEndian.AppendUint64(nil, rng.Uint64())
		charges[0].Key = string(binary.LittleEndian.AppendUint64(key, rng.Uint64()))
		if err := s.TakeAt(context.Background(), now, charges, receipts); err != nil || !receipts[0].Fits {
			tb.Fatalf("a new key: %+v, %v", receipts[0], err)
		}
	}
}
