package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// What a slot has taken is given back because another refuses, after its window is over: that takes nothing
// off what others have used of the next one.
func TestClusterLateGiveBack(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	proxies, url := c.StartProxies(t)
	slow, other := open(t, url), open(t, c.URL())
	const most, window, rounds = 3, 200 * time.Millisecond, 6
	a, b := plan(t, sluice.FixedWindow, fmt.Sprintf("%d/%v", most, window)), plan(t, sluice.FixedWindow, "10000000/10d")
	const key = "a"
	var full []string // keys of another node, of which nothing is left
	for i := 0; len(full) < rounds; i++ {
		if name := fmt.Sprint("b", i); other.Shard(name) != other.Shard(key) {
			full = append(full, name)
		}
	}
	take := func(s *redisstore.Store, charges ...sluice.Charge) []sluice.Receipt {
		receipts := make([]sluice.Receipt, len(charges))
		if err := s.Take(t.Context(), charges, receipts); err != nil {
			t.Error(err)
		}
		return receipts
	}
	take(other, sluice.Charge{Key: key, Plan: a, Cost: 1})
	var others []*redistest.Proxy // of the other nodes
	for i, p := range proxies {
		if c.Nodes[i].Do("DBSIZE") == "0" {
			others = append(others, p)
		}
	}
	for _, name := range append(full, key) {
		take(other, sluice.Charge{Key: name, Plan: b, Cost: 10_000_000})
		take(slow, sluice.Charge{Key: name + "/warm", Plan: b, Cost: 1}) // the connections are there
	}
	for _, p := range others {
		p.Delay(window * 3 / 2)
	}
	// It is taken at the beginning of a window, and given back in the next, which others have used up.
	looked := 0
	for _, name := range full {
		begin := func() int64 {
			now := take(other, sluice.Charge{Key: key, Plan: a})[0].Now
			time.Sleep(window - time.Duration(now%window.Microseconds())*time.Microsecond)
			return now/window.Microseconds() + 1
		}
		begin()
		var late sync.WaitGroup
		taken := false // or else the other one was asked first
		late.Go(func() {
			r := take(slow, sluice.Charge{Key: key, Plan: a, Cost: 1}, sluice.Charge{Key: name, Plan: b, Cost: 1})
			if taken = r[0].Fits; r[1].Fits {
				t.Errorf("%s has something left", name)
			}
		})
		next := begin()
		used := int64(0)
		for range most {
			if r := take(other, sluice.Charge{Key: key, Plan: a, Cost: 1})[0]; r.Now/window.Microseconds() == next {
				used = r.Used
			}
		}
		late.Wait()
		if r := take(other, sluice.Charge{Key: key, Plan: a})[0]; r.Now/window.Microseconds() == next && used > 0 && taken {
			if looked++; r.Used != used {
				t.Errorf("%d were used, and then %d", used, r.Used)
			}
		}
	}
	if looked == 0 { // a busy machine misses some
		t.Error("premise: nothing was given back in the next window")
	}
}

// Slots of several clients, one of which asks far above its own limit, share one limit. What
// that client asks for in vain is not held from the others, passes no window's edge, and
// hardly costs calls.
func TestClusterGreedy(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	const most, window = 50, 200 * time.Millisecond
	all := plan(t, sluice.FixedWindow, fmt.Sprintf("%d/%v", most, window))
	for _, tt := range []struct {
		name string
		a    sluice.Algorithm
		own  string // the limit of a client
		keys int
	}{
		{"bucket", sluice.TokenBucket, "5/10d burst 5", 1},
		{"window", sluice.FixedWindow, "5/10d", 1},
		{"log", sluice.SlidingWindowLog, "5/10d", 1},
		{"many", sluice.SlidingWindowLog, "1/10d", 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flushAll(c)
			store := open(t, c.URL())
			greedy, modest := plan(t, tt.a, tt.own), plan(t, tt.a, "1000000/10d")
			var mu sync.Mutex
			admitted, refused := map[int64]int{}, map[int64]int{} // of each window of all; refused by all alone
			var greedyAdmitted, greedyRefused int
			var modestAsked atomic.Int64
			ask := func(key string, own *sluice.Plan) {
				charges := []sluice.Charge{{Key: "all", Plan: all, Cost: 1}, {Key: key, Plan: own, Cost: 1}}
				receipts := make([]sluice.Receipt, 2)
				if err := store.Take(t.Context(), charges, receipts); err != nil {
					var e *redisstore.Error
					if !errors.As(err, &e) || e.Kind != redisstore.Unavailable { // as nodes may take each other to be on a busy machine
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				fits := sluice.Admitted(charges, receipts)
				n := receipts[0].Now / window.Microseconds()
				switch {
				case fits:
					admitted[n]++
				case receipts[1].Fits:
					refused[n]++
				}
				if own == greedy && fits {
					greedyAdmitted++
				} else if own == greedy && !receipts[1].Fits {
					greedyRefused++
				}
			}
			enough := func() bool { // a busy machine needs longer
				mu.Lock()
				defer mu.Unlock()
				return greedyAdmitted >= tt.keys && greedyRefused >= 100
			}
			const greedyOnes, modestOnes = 8, 8
			var wg sync.WaitGroup
			begin := time.Now()
			end := begin.Add(2 * time.Second)
			for i := range greedyOnes {
				wg.Go(func() {
					for n := i; time.Now().Before(end) || !enough(); n++ {
						ask(fmt.Sprint("greedy", n%tt.keys), greedy)
						time.Sleep(100 * time.Microsecond)
					}
				})
			}
			for i := range modestOnes {
				wg.Go(func() { // together they ask for 48 units in a window
					for time.Now().Before(end) {
						ask(fmt.Sprint("modest", i), modest)
						modestAsked.Add(1)
						time.Sleep(33 * time.Millisecond)
					}
				})
			}
			calls := clusterCalls(t, c)
			wg.Wait()
			calls = clusterCalls(t, c) - calls
			for n, k := range admitted {
				if k > most {
					t.Errorf("window %d: %d admitted of %d", n, k, most)
				}
				if refused[n] > 0 && k < most {
					t.Errorf("window %d: %d were refused though %d of %d were admitted", n, refused[n], k, most)
				}
			}
			// All of the greedy ones may ask at once before any has heard of the refusal. Where
			// many are new at once the window is full, and what of theirs is given back is
			// not remembered for a second, in which a refusal costs a call.
			seconds := int64(time.Since(begin)/time.Second) + 2
			limit := 3*modestAsked.Load() + greedyOnes*3*seconds
			if tt.keys > 1 {
				limit += int64(greedyAdmitted + greedyRefused)
			}
			if calls > limit {
				t.Errorf("%d calls, want at most %d", calls, limit)
			}
			if greedyAdmitted < tt.keys || greedyRefused < 100 {
				t.Errorf("premise: of what the greedy ask for, %d are admitted and %d refused", greedyAdmitted, greedyRefused)
			}
			t.Logf("%d windows; greedy: %d admitted, %d refused; %d calls in all", len(admitted), greedyAdmitted, greedyRefused, calls)
		})
	}
}

// A turn that was taken in one slot is given to no other caller because another slot refuses: those behind
// it may have been given by then. The process keeps it.
func TestClusterTurns(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.StartCluster(t, 3, 0).URL())
	const room, processes, takes = 40, 4, 60
	queue, short := plan(t, sluice.LeakyBucket, "1/hour burst 1000"), plan(t, sluice.LeakyBucket, fmt.Sprintf("1/hour burst %d", room))
	full := "b"
	for i := 0; s.Shard(full) == s.Shard("a"); i++ {
		full = fmt.Sprint("b", i)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var given []int64
	turns := make([]sluice.Turns, processes)
	for i := range 2 * processes {
		all.Go(func() {
			for n := range takes {
				charges := []sluice.Charge{{Key: "a", Plan: queue, Cost: 1}, {Key: full, Plan: short, Cost: 1}}
				if n%3 == 0 {
					charges = charges[:1]
				}
				receipts := make([]sluice.Receipt, len(charges))
				if err := turns[i%processes].Take(t.Context(), s, charges, receipts); err != nil {
					t.Error(err)
				} else if sluice.Admitted(charges, receipts) {
					mu.Lock()
					given = append(given, receipts[0].Now+queue.Decide(1, receipts[0]).Delay.Microseconds())
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	slices.Sort(given)
	if want := room + 2*processes*takes/3; len(given) > want || len(given) < want-2*processes {
		t.Errorf("premise: %d were admitted, want %d", len(given), want)
	}
	for i := range len(given) - 1 {
		if apart := time.Duration(given[i+1]-given[i]) * time.Microsecond; apart < time.Hour {
			t.Errorf("turn %d comes %v after the one before it", i+1, apart)
		}
	}
}
