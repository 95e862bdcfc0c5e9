package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

// Charges in several slots are all taken or all given back, and the receipts report this.
func TestClusterSlots(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.SharedCluster(t).URL())
	wide, narrow := plan(t, sluice.SlidingWindowLog, "100/10d"), plan(t, sluice.FixedWindow, "3/10d")
	shards := map[int]bool{}
	var charges []sluice.Charge
	for i := range 8 {
		key := fmt.Sprint("layer", i)
		shards[store.Shard(key)] = true
		charges = append(charges, sluice.Charge{Key: key, Plan: wide, Cost: 1})
	}
	if len(shards) != 3 {
		t.Errorf("8 keys are on %d shards", len(shards))
	}
	// Each of the charges in turn has the narrow limit.
	for place := range charges {
		charges := slices.Clone(charges)
		charges[place].Plan = narrow
		for n := range 5 {
			for i, r := range takeAll(t, store, charges...) {
				before := int64(place*3 + min(n, 3)) // units of the wide limit: 3 for each earlier index, except its own
				if place > i {
					before -= 3
				}
				want, fits := before, true
				if i == place {
					want, fits = int64(min(n, 3)), n < 3
				}
				if n < 3 {
					want++
				}
				if r.Used != want || r.Fits != fits {
					t.Fatalf("narrow at %d, take %d, charge %d: used %d, fits %v, want %d, %v", place, n, i, r.Used, r.Fits, want, fits)
				}
			}
		}
	}
	charges[0].Plan = narrow
	testkit.Await(t, "a denial is remembered", func() bool {
		r := takeAll(t, store, charges...)
		if r[0].Fits || !r[1].Fits {
			t.Fatalf("%+v", r)
		}
		return r[0].Origin == sluice.ByDenyCache
	})
	for i, charge := range charges {
		if n := used(t, store, charge.Key, wide); n != 3*7 {
			t.Errorf("layer %d has %d used, want 21", i, n)
		}
	}
}

// If a key has a foreign value, the error contains the index of its charge in the Take, and nothing is charged in other
// slots.
func TestClusterForeign(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	store := open(t, c.URL())
	p := plan(t, sluice.FixedWindow, "100/10d")
	for place := range 6 {
		var charges []sluice.Charge
		for i := range 6 {
			charges = append(charges, sluice.Charge{Key: fmt.Sprint("layer", i), Plan: p, Cost: 1})
		}
		charges[place].Key = fmt.Sprint("list", place)
		name := redisstore.Name(store, charges[place].Key, p)
		for _, s := range c.Masters {
			_, _ = s.Try("RPUSH", name, "x") // all but one master reply MOVED
		}
		for range 3 {
			f := foreign(t, store.Take(t.Context(), charges, make([]sluice.Receipt, 6)), place)
			if !slices.Equal(f.Unreadable(), []int{place}) || !slices.Equal(f.Keys, []string{name}) {
				t.Errorf("list at %d: %+v", place, f)
			}
		}
	}
	for i := range 6 {
		if n := used(t, store, fmt.Sprint("layer", i), p); n != 0 {
			t.Errorf("layer %d has %d used, want none", i, n)
		}
	}
}

// TestCluster disturbs the nodes of a cluster under load.
func TestCluster(t *testing.T) {
	t.Parallel()
	// On a busy machine, a replica might take over although its master works, which loses counts.
	c := redistest.StartCluster(t, 3, 1, "--cluster-replica-no-failover", "yes")
	t.Run("script flush", func(t *testing.T) { testScriptFlush(t, c.URL(), c.Masters...) })
	t.Run("resharding", func(t *testing.T) { testResharding(t, c) })
	t.Run("failover", func(t *testing.T) { testFailover(t, c) })
	t.Run("frozen master", func(t *testing.T) { testFrozenMaster(t, c) })
}

// spend runs callers that take the charges of keys, as the function charges returns them, until the first charge of
// each key has reached its limit and disturb has returned. No Take may fail, and exactly the limit of each key must be
// admitted.
func spend(t *testing.T, store *redisstore.Store, limit int64, keys []string, charges func(k, i int) []sluice.Charge, disturb func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	admitted := make([]atomic.Int64, len(keys))
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				k := i % len(keys)
				c := charges(k, i)
				receipts := make([]sluice.Receipt, len(c))
				if err := store.Take(t.Context(), c, receipts); err != nil {
					t.Errorf("%s: %v", keys[k], err)
					return
				}
				if sluice.Admitted(c, receipts) {
					admitted[k].Add(1)
				}
				time.Sleep(time.Millisecond) // keeps the load up for longer
			}
		})
	}
	disturb()
	testkit.Await(t, "all limits are reached", func() bool {
		for k := range keys {
			if admitted[k].Load() < limit && !t.Failed() {
				return false
			}
		}
		return true
	})
	stop()
	wg.Wait()
	for k, key := range keys {
		p := charges(k, 0)[0].Plan
		if n, u := admitted[k].Load(), used(t, store, key, p); n != limit || u != limit {
			t.Errorf("%s: %d admitted with a limit of %d, and %d used", key, n, limit, u)
		}
	}
}

// Slots move between masters under load: no Take fails, and nothing is counted twice or lost.
func testResharding(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
	const limit = 1000
	p, q := plan(t, sluice.FixedWindow, strconv.Itoa(limit)+"/10d"), plan(t, sluice.SlidingWindowLog, strconv.Itoa(2*limit)+"/10d")
	var keys []string
	for i := range 8 {
		keys = append(keys, fmt.Sprintf("{tag%d}a", i))
	}
	spend(t, store, limit, keys, func(k, i int) []sluice.Charge {
		return []sluice.Charge{
			{Key: keys[k], Plan: p, Cost: 1}, {Key: keys[k], Plan: q, Cost: 1},
			{Key: fmt.Sprintf("{tag%d}%d", k, i), Plan: p, Cost: 1}, // new each time
		}
	}, func() {
		for range 3 {
			for _, key := range keys {
				c.Move(t, key)
			}
		}
	})
	for _, key := range keys {
		if n := used(t, store, key, q); n != limit {
			t.Errorf("%s: %d units used of the log", key, n)
		}
	}
	for _, reply := range []string{"ASK", "MOVED", "TRYAGAIN"} {
		if !slices.ContainsFunc(c.Nodes, func(s *redistest.Server) bool { return s.Info("errorstat_"+reply) != "" }) {
			t.Errorf("premise: no reply was %s", reply)
		}
	}
}

// Replicas take over in planned failovers under load: no Take fails, and nothing is counted twice.
func testFailover(t *testing.T, c *redistest.Cluster) {
	p := plan(t, sluice.FixedWindow, "500/10d")
	var keys []string
	for i := range 16 {
		keys = append(keys, fmt.Sprint("failover", i))
	}
	spend(t, open(t, c.URL()), 500, keys, func(k, _ int) []sluice.Charge {
		return []sluice.Charge{{Key: keys[k], Plan: p, Cost: 1}}
	}, func() {
		for i := range c.Replicas {
			c.FailOver(t, i)
		}
	})
}

// A frozen master delays only its own keys.
func testFrozenMaster(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
	p := plan(t, sluice.FixedWindow, "1000000/10d")
	for i := range 100 {
		take(t, store, fmt.Sprint("key", i), p)
	}
	frozen := c.Masters[1]
	frozen.Freeze()
	defer frozen.Thaw()
	var wg sync.WaitGroup
	results := make([]error, 100)
	for i := range results {
		wg.Go(func() { results[i] = tryFor(t, 3*time.Second, store, fmt.Sprint("key", i), p) })
	}
	wg.Wait()
	failed := map[int]int{}
	for i, err := range results {
		shard := store.Shard(fmt.Sprint("key", i))
		if err == nil {
			if failed[shard] > 0 {
				t.Errorf("shard %d serves key %d, but failed for another key", shard, i)
			}
			continue
		}
		failed[shard]++
		// Either timeout may expire first: the caller's or the client's.
		if !errors.Is(err, context.DeadlineExceeded) && kindOf(err) != redisstore.Unknown {
			t.Errorf("key %d: %v", i, err)
		}
	}
	if len(failed) != 1 {
		t.Errorf("failed Takes by shard: %v, want one shard", failed)
	}
}

// A Take waits while no node serves its slot, as in a planned failover. If none does for too long, the Take fails with
// ClusterDown.
func TestClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	store, p := open(t, c.URL()), plan(t, sluice.TokenBucket, "1000000/day")
	take(t, store, "k", p)
	owner := c.Masters[ownerOf(c, "k")]
	slot := owner.Do("CLUSTER", "KEYSLOT", "k")
	owner.Do("CLUSTER", "DELSLOTS", slot)
	if err := tryFor(t, patient, store, "{k}", p); kindOf(err) != redisstore.ClusterDown {
		t.Errorf("no node serves the slot: %v, want ClusterDown", err)
	}
	owner.Do("CLUSTER", "ADDSLOTS", slot)
	testkit.Await(t, "a Take waits until the slot is served again", func() bool {
		recovers(t, store, p)
		owner.Do("CLUSTER", "DELSLOTS", slot)
		down := func() string { return owner.Info("errorstat_CLUSTERDOWN") }
		before, result := down(), make(chan error, 1)
		go func() { result <- tryFor(t, patient, store, "{k}", p) }()
		for down() == before && len(result) == 0 {
		}
		owner.Do("CLUSTER", "ADDSLOTS", slot)
		return <-result == nil
	})
}

// ownerOf returns the index of the master that serves the slot of a key.
func ownerOf(c *redistest.Cluster, key string) int {
	return slices.IndexFunc(c.Masters, func(m *redistest.Server) bool { _, err := m.Try("GET", "{"+key+"}"); return err == nil })
}

// elsewhere returns a key that starts with like and is on another shard than key.
func elsewhere(s *redisstore.Store, key, like string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint(like, i); s.Shard(other) != s.Shard(key) {
			return other
		}
	}
}

// If one slot cannot decide, and the charge in another slot cannot be given back, the error must not report that
// nothing was charged.
func TestNotGivenBack(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	proxies, url := startProxies(t, c)
	store := open(t, url)
	p := plan(t, sluice.FixedWindow, "100/10d")
	first := "a"
	second := elsewhere(store, first, "b")
	both := func() error {
		charges := []sluice.Charge{{Key: first, Plan: p, Cost: 1}, {Key: second, Plan: p, Cost: 1}}
		return store.Take(t.Context(), charges, make([]sluice.Receipt, 2))
	}
	if err := both(); err != nil {
		t.Fatal(err)
	}
	// The server of the second key replies that it is out of memory: the charge of the first key is given back.
	c.Masters[ownerOf(c, second)].Do("CONFIG", "SET", "maxmemory", "1")
	if err := both(); kindOf(err) != redisstore.OutOfMemory || !notCharged(err) {
		t.Errorf("error %v with a server out of memory", err)
	}
	if n := used(t, store, first, p); n != 1 {
		t.Errorf("the first key has used %d units, want 1", n)
	}
	// Now the server of the first key answers once more, and then no longer.
	var answers atomic.Int64
	proxies[slices.Index(c.Nodes, c.Masters[ownerOf(c, first)])].Spoil(func() (time.Duration, bool) { return 0, answers.Add(1) > 1 })
	if err := both(); kindOf(err) != redisstore.Unknown || notCharged(err) || answers.Load() < 2 {
		t.Errorf("error %v after %d answers, want an unknown outcome", err, answers.Load())
	}
}

// A unit taken in one slot is given back because another slot denies, but only after its window has ended. This must
// not reduce the count of the next window.
func TestClusterLateGiveBack(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	proxies, url := startProxies(t, c)
	slow, other := open(t, url), open(t, c.URL())
	p, full := plan(t, sluice.FixedWindow, "3/second"), plan(t, sluice.FixedWindow, "10000000/10d")
	const key = "a"
	beside := elsewhere(other, key, "b")
	plantest.One(t, other, beside, full, full.Capacity)
	take(t, slow, key+"/warm", full) // opens the connections
	take(t, slow, beside+"/warm", full)
	var held atomic.Pointer[chan struct{}]
	proxies[ownerOf(c, beside)].Spoil(func() (time.Duration, bool) {
		if gate := held.Load(); gate != nil {
			<-*gate
		}
		return 0, false
	})
	window := func(r sluice.Receipt) int64 { return r.Tick }
	testkit.Await(t, "a unit of one window is given back in the next", func() bool {
		gate := make(chan struct{})
		held.Store(&gate)
		begin := window(plantest.One(t, other, key, p, 0))
		results := make(chan error)
		go func() {
			charges := []sluice.Charge{{Key: key, Plan: p, Cost: 1}, {Key: beside, Plan: full, Cost: 1}}
			results <- slow.Take(context.WithoutCancel(t.Context()), charges, make([]sluice.Receipt, 2))
		}()
		taken := false // if it stays false, the other slot was asked first and denied alone
		for window(plantest.One(t, other, key, p, 0)) == begin {
			taken = taken || used(t, other, key, p) > 0
			time.Sleep(10 * time.Millisecond)
		}
		before := plantest.One(t, other, key, p, 2)
		held.Store(nil)
		close(gate)
		if err := <-results; err != nil {
			t.Fatal(err)
		}
		after := plantest.One(t, other, key, p, 0)
		if window(after) != window(before) || !taken {
			return false // the machine was busy
		}
		if after.Used != 2 {
			t.Errorf("2 units were used before, and %d after", after.Used)
		}
		return true
	})
}

// If one slot assigns a turn and another slot denies, the store does not assign the turn again, because callers may
// already have the turns after it. The process keeps the turn for a later caller.
func TestClusterTurns(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.SharedCluster(t).URL())
	const room, processes, takes = 40, 4, 60
	queue, short := plan(t, sluice.LeakyBucket, "1/hour burst 1000"), plan(t, sluice.LeakyBucket, fmt.Sprintf("1/hour burst %d", room))
	full := elsewhere(s, "a", "b")
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

// Denied requests of a client far above its own limit do not use up a limit in another slot that it shares with other
// clients, and most of them cost no call.
func TestClusterGreedy(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	for _, test := range []struct {
		own  string // the limit of a greedy client
		keys int
	}{{"5/10d burst 5", 1}, {"5/10d as fixed_window", 1}, {"5/10d as sliding_window_log", 1}, {"1/10d as sliding_window_log", 20}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			const most = 40
			store, own := open(t, c.URL()), plantest.Plan(t, test.own)
			all, modest := plan(t, sluice.FixedWindow, fmt.Sprint(most, "/10d")), plan(t, own.Limit.Algorithm, "1000000/10d")
			ask := func(key string, p *sluice.Plan) []sluice.Receipt {
				charges := []sluice.Charge{{Key: t.Name(), Plan: all, Cost: 1}, {Key: t.Name() + key, Plan: p, Cost: 1}}
				receipts := make([]sluice.Receipt, 2)
				if err := store.Take(context.WithoutCancel(t.Context()), charges, receipts); err != nil {
					t.Error(err)
				}
				return receipts
			}
			left := most
			for i := range test.keys {
				for ask(fmt.Sprint("greedy", i), own)[1].Fits {
					left--
				}
			}
			var asked, spared atomic.Int64
			var done atomic.Bool
			var greedy sync.WaitGroup
			for i := range 2 {
				greedy.Go(func() {
					for n := i; !done.Load(); n++ {
						r := ask(fmt.Sprint("greedy", n%test.keys), own)[1]
						if asked.Add(1); r.Origin == sluice.ByDenyCache {
							spared.Add(1)
						}
						if r.Fits {
							t.Error("a greedy client got more than its limit")
						}
					}
				})
			}
			for i := range left {
				if r := ask(fmt.Sprint("modest", i%8), modest); !r[0].Fits || !r[1].Fits {
					t.Errorf("%d of %d were admitted, and then %+v", most-left+i, most, r)
					break
				}
			}
			done.Store(true)
			greedy.Wait()
			if n := used(t, store, t.Name(), all); n != most || spared.Load() < asked.Load()/2 {
				t.Errorf("%d of %d are used; of %d denials %d cost no call", n, most, asked.Load(), spared.Load())
			}
		})
	}
}
