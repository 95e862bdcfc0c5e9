package memory_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

// deluge floods a store with new keys. In between, clients use up their limits. It checks that none of these is
// evicted: later receipts for them equal those of the model.
type deluge struct {
	store    *memory.Seeded
	plans    []*sluice.Plan // for new keys and clients in turn
	clients  int
	keys     int
	lasting  int64 // duration in microseconds; the clock also steps back sometimes
	charges  []sluice.Charge
	receipts []sluice.Receipt
}

func (d *deluge) take(t *testing.T, s storetest.TimedStore, now int64, key string, p *sluice.Plan, cost int64) sluice.Receipt {
	d.charges[0] = sluice.Charge{Key: key, Plan: p, Cost: cost}
	if err := s.TakeAt(context.Background(), now, d.charges, d.receipts); err != nil {
		t.Fatal(err)
	}
	return d.receipts[0]
}

// now returns the time at which key i comes. For every thousandth key, the clock is half a second behind.
func (d *deluge) now(i int) int64 {
	now := midday + d.lasting*int64(i)/int64(d.keys)
	if i%1000 == 999 {
		now -= 500_000
	}
	return now
}

func (d *deluge) run(t *testing.T) {
	d.charges, d.receipts = make([]sluice.Charge, 1), make([]sluice.Receipt, 1)
	model, limited := new(storetest.Model), 0
	limit := func(now int64) {
		key, p := fmt.Sprint("client ", limited), d.plans[limited%len(d.plans)]
		limited++
		for range p.Capacity {
			got, want := d.take(t, d.store, now, key, p, 1), d.take(t, model, now, key, p, 1)
			if got != want {
				t.Fatalf("%s, while it uses up its limit: %+v, want %+v", key, got, want)
			}
		}
	}
	for limited < d.clients/2 {
		limit(d.now(0))
	}
	key := make([]byte, 8)
	for i := range d.keys {
		if limited < d.clients && i%max(1, d.keys/d.clients) == 0 {
			limit(d.now(i))
		}
		binary.LittleEndian.PutUint64(key, uint64(i))
		if r := d.take(t, d.store, d.now(i), string(key), d.plans[i%len(d.plans)], 1); !r.Fits {
			t.Fatalf("new key %d: %+v", i, r)
		}
	}
	d.check(t, model, limited)
}

func (d *deluge) check(t *testing.T, model *storetest.Model, limited int) {
	now, freed := d.now(d.keys-1), 0
	stats := d.store.StatsAt(now)
	for i := range limited {
		key, p := fmt.Sprint("client ", i), d.plans[i%len(d.plans)]
		if got, want := d.take(t, d.store, now, key, p, 1), d.take(t, model, now, key, p, 1); got != want {
			if freed++; freed == 1 {
				t.Logf("%s, %v %v: %+v, want %+v", key, p.Limit.Algorithm, p.Limit, got, want)
			}
		}
	}
	t.Logf("%+v", stats)
	if freed > 0 || limited != d.clients {
		t.Errorf("%d of %d were freed, want none of %d", freed, limited, d.clients)
	}
	if stats.Freed != 0 || stats.Evicted == 0 {
		t.Errorf("%+v, want evictions, and none of a key that had used more than half", stats)
	}
	if stats.Evicted+int64(stats.Keys) != int64(limited+d.keys) {
		t.Errorf("%+v: want %d keys kept and evicted together", stats, limited+d.keys)
	}
}

// deluges runs the floods of TestFlood and TestLongDeluge: one for each algorithm, and one for all together.
func deluges(t *testing.T, size int64, clients, keys int) {
	run := func(name string, c memory.Config, plans ...*sluice.Plan) {
		t.Run(name, func(t *testing.T) {
			c.MaxBytes = size
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			d := &deluge{store: memory.NewSeeded(t, c), plans: plans, clients: clients, keys: keys, lasting: aDay / 12}
			d.run(t)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if stats := d.store.StatsAt(midday); stats.Bytes > size {
				t.Errorf("%+v, want at most %d bytes", stats, size)
			}
			// The memory of the test and the runtime would hide the memory of a small store.
			if heap := int64(after.HeapAlloc) - int64(before.HeapAlloc); size >= 1<<20 && heap > size+size/50 {
				t.Errorf("%d bytes are in use, want at most %d", heap, size)
			}
			runtime.KeepAlive(d)
		})
	}
	var all []*sluice.Plan
	for _, tt := range limits {
		p := plan(t, tt.limit, tt.algorithm)
		all = append(all, p)
		run(tt.name, memory.Config{}, p)
	}
	run("mixed", memory.Config{}, all...)
}

// TestFlood checks that a flood of keys neither evicts limited keys nor takes more memory than allowed.
func TestFlood(t *testing.T) {
	deluges(t, 128<<10, 250, 8000)
}

// TestFloodTogether floods a store from many callers with different clocks, while others use up their limits.
func TestFloodTogether(t *testing.T) {
	const callers, keys, size = 8, 5_000, 256 << 10
	s := memory.NewSeededSize(t, size)
	var plans []*sluice.Plan
	for _, tt := range limits {
		plans = append(plans, plan(t, tt.limit, tt.algorithm))
	}
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range keys {
				p := plans[i%len(plans)]
				if i%(keys/10) == 0 {
					takeAt(t, s, midday, fmt.Sprint("client ", caller, i), p, p.Capacity)
				}
				takeAt(t, s, midday+int64(i%3), fmt.Sprint(caller, " ", i), p, 1)
			}
		})
	}
	wg.Wait()
	for caller := range callers {
		for i := 0; i < keys; i += keys / 10 {
			if takeAt(t, s, midday, fmt.Sprint("client ", caller, i), plans[i%len(plans)], 1) {
				t.Errorf("client %d of caller %d was freed", i, caller)
			}
		}
	}
	if stats := s.StatsAt(midday); stats.Bytes > size || stats.Freed != 0 || stats.Evicted == 0 {
		t.Errorf("%+v, want at most %d bytes, and evictions of keys that have used less than half", stats, size)
	}
}

// TestMoreThanFit checks a store with more limited keys than fit: it counts the evictions or, with RefuseNew,
// refuses new keys and keeps the limited ones.
func TestMoreThanFit(t *testing.T) {
	t.Parallel()
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			p := plan(t, tt.limit, tt.algorithm)
			for _, refuse := range []bool{false, true} {
				const size, keys, clients = 64 << 10, 2000, 50
				s := memory.NewSeeded(t, memory.Config{MaxBytes: size, RefuseNew: refuse})
				for i := range clients {
					takeAt(t, s, midday, fmt.Sprint("client ", i), p, p.Capacity)
				}
				admitted := 0
				for i := range keys {
					if takeAt(t, s, midday+1, fmt.Sprint(i), p, p.Capacity) {
						admitted++
					}
				}
				stats := s.StatsAt(midday + 1)
				freed := 0
				for i := range clients {
					if takeAt(t, s, midday+1, fmt.Sprint("client ", i), p, 1) {
						freed++
					}
				}
				t.Logf("refuse %t: %+v, %d admitted", refuse, stats, admitted)
				switch {
				case stats.Bytes > size:
					t.Errorf("%+v, want at most %d bytes", stats, size)
				case refuse && (freed > 0 || stats.Freed > 0 || stats.Refused != int64(keys-admitted) || admitted+clients != stats.Keys):
					t.Errorf("%d were freed, %d admitted: %+v", freed, admitted, stats)
				case !refuse && (admitted != keys || stats.Freed == 0 || stats.Freed != stats.Evicted || stats.Refused > 0):
					t.Errorf("%d were freed, %d admitted: %+v", freed, admitted, stats)
				}
			}
		})
	}
}

// TestRefuseNew checks a full store's receipts for new keys that it refuses, and that there is room again when other
// keys have drained.
func TestRefuseNew(t *testing.T) {
	t.Parallel()
	month := limits[3]
	month.name, month.limit = "month", "10/month from 15"
	for _, tt := range append(slices.Clip(limits), month) {
		t.Run(tt.name, func(t *testing.T) {
			p := plan(t, tt.limit, tt.algorithm)
			s := memory.NewSeeded(t, memory.Config{MaxBytes: 64 << 10, RefuseNew: true})
			refused := ""
			for i := 0; refused == ""; i++ {
				if i == 10_000 {
					t.Fatalf("none of %d keys was refused", i)
				}
				if key := fmt.Sprint(i); !takeAt(t, s, midday, key, p, p.Capacity) {
					refused = key
				}
			}
			ask := func(now int64, cost int64) sluice.Decision {
				var r [2]sluice.Receipt
				charges := []sluice.Charge{{Key: refused, Plan: p, Cost: cost}, {Key: "0", Plan: p}}
				if err := s.TakeAt(t.Context(), now, charges, r[:]); err != nil {
					t.Fatal(err)
				}
				return p.Decide(cost, r[0])
			}
			if d := ask(midday, 1); d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 || d.RetryAfter > p.Limit.Period*11/10 {
				t.Errorf("%+v, want a denial, and a wait of about a period at most", d)
			}
			if d := ask(midday, 0); !d.Allowed || d.Remaining != p.Capacity {
				t.Errorf("a peek: %+v", d)
			}
			if d := ask(midday, -1); !d.Allowed || d.Remaining != p.Capacity {
				t.Errorf("a refund: %+v", d)
			}
			if d := ask(midday+3*p.Limit.Period.Microseconds(), 1); !d.Allowed {
				t.Errorf("after all keys have drained: %+v", d)
			}
		})
	}
}
