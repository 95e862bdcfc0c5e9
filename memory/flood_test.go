package memory_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

const aDay = 86_400_000_000

// midday is a time that is far from the edges of windows.
const midday = 20_000*aDay + aDay/2

// takeAt takes cost units of one key and reports whether they fit.
func takeAt(tb testing.TB, s storetest.TimedStore, now int64, key string, p *sluice.Plan, cost int64) bool {
	tb.Helper()
	return plantest.OneAt(tb, s, now, key, p, cost).Fits
}

// limits has a limit for each kind of state, in cells and in the overflow.
var limits = []struct {
	name, limit string
	algorithm   sluice.Algorithm
}{
	{"bucket", "10/day", sluice.TokenBucket},
	{"odd bucket", "9973/23935h13m burst 10", sluice.TokenBucket},
	{"queue", "10/day burst 10", sluice.LeakyBucket},
	{"window", "10/day", sluice.FixedWindow},
	{"counter", "10/day", sluice.SlidingWindowCounter},
	{"log", "10/day", sluice.SlidingWindowLog},
	{"exact log", "10/day", sluice.SlidingWindowLogExact},
}

// TestGrowingLogs checks that a store keeps its bound of memory while a few logs grow.
func TestGrowingLogs(t *testing.T) {
	t.Parallel()
	const size, logs, moments = 256 << 10, 16, 2000 // with 16 bytes for each unit, twice the size
	s, p := memory.NewSeededSize(t, size), plan(t, "10000/day", sluice.SlidingWindowLogExact)
	for i := range int64(moments) {
		for key := range logs {
			takeAt(t, s, midday+i, fmt.Sprint(key), p, 1)
		}
		stats := s.StatsAt(midday + i)
		if stats.Bytes > size {
			t.Fatalf("%+v, want at most %d bytes", stats, size)
		}
		if stats.Evicted == 0 && stats.Bytes < i*logs*16 {
			t.Fatalf("%+v, want 16 bytes for each of %d moments", stats, i*logs)
		}
	}
	if s.StatsAt(midday).Evicted == 0 {
		t.Error("nothing was evicted: this tests something else")
	}
}

// TestLogBytes checks that a full log takes as much memory as the store counts, and no more than necessary: up to 4
// bytes a unit, or 150 in all for a large limit, or up to 32 a unit for exact times, and in addition the entry in the
// store.
func TestLogBytes(t *testing.T) {
	const keys, place = 300, 64 + 58 + 60 // place: a key's entry, and its fraction of a stripe
	for _, tt := range []struct {
		limit     string
		algorithm sluice.Algorithm
		most      int64
	}{
		{"100/minute", sluice.SlidingWindowLog, place + 48 + 2*200},
		{"10000/minute", sluice.SlidingWindowLog, place + 150},
		{"1000000/minute", sluice.SlidingWindowLog, place + 150},
		{"100/minute", sluice.SlidingWindowLogExact, place + 48 + 16*200},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, p := memory.NewSeededSize(t, 3<<20), plan(t, tt.limit, tt.algorithm)
		empty, now := s.StatsAt(midday).Bytes, int64(midday)
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		for range 150 {
			now += 620_000
			for _, name := range names {
				if !takeAt(t, s, now, name, p, p.Capacity/100) {
					t.Fatalf("%s: denied", tt.limit)
				}
			}
		}
		stats := s.StatsAt(now)
		each := (stats.Bytes - empty) / keys
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap := (int64(after.HeapAlloc) - int64(before.HeapAlloc) - empty) / keys
		t.Logf("%v %s: %d bytes by the store's count, %d of the heap", tt.algorithm, tt.limit, each, heap)
		if stats.Keys != keys || each > tt.most || heap > each*5/4 {
			t.Errorf("%v %s: %d keys of %d bytes, %d of the heap; want %d of %d at most", tt.algorithm, tt.limit, stats.Keys, each, heap, keys, tt.most)
		}
		runtime.KeepAlive(s)
	}
}

// TestDrainedMakesRoom checks that drained states cost almost nothing: a store with new keys on each of five days grows
// by at most a sixteenth of the half for meters and windows, and evicts no key.
func TestDrainedMakesRoom(t *testing.T) {
	t.Parallel()
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			const size, daily = 8 << 20, 1000
			s, p := memory.NewSeededSize(t, size), plan(t, tt.limit, tt.algorithm)
			var first memory.Stats
			for day := range int64(5) {
				now := midday + 3*day*aDay
				for i := range daily {
					takeAt(t, s, now, fmt.Sprint(day, i), p, 1)
				}
				stats := s.StatsAt(now)
				if day == 0 {
					first = stats
				}
				if stats.Keys != daily || stats.Evicted != 0 || stats.Bytes > first.Bytes+size/2/16 {
					t.Fatalf("day %d: %+v, and on the first day %+v", day, stats, first)
				}
			}
		})
	}
}

// TestGivenBack checks that a state takes no room after all its units have been given back.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			s, p := memory.NewSeededSize(t, 1<<20), plan(t, tt.limit, tt.algorithm)
			takeAt(t, s, midday, "first", p, 1)
			takeAt(t, s, midday, "first", p, -1)
			empty := s.StatsAt(midday)
			for i := range 4000 {
				takeAt(t, s, midday, fmt.Sprint(i), p, 3)
				takeAt(t, s, midday, fmt.Sprint(i), p, sluice.All)
			}
			// Tables are allocated when keys come, but need not grow.
			if stats := s.StatsAt(midday); stats.Keys != 0 || stats.Evicted != 0 || stats.Bytes > empty.Bytes+64*(128+200) {
				t.Errorf("%+v, and before %+v", stats, empty)
			}
		})
	}
}
