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

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	// A busy machine must not make a replica take over before its time: that loses counts.
	c := redistest.StartCluster(t, 3, 1, "--cluster-replica-no-failover", "yes")
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) sluice.Store {
			flushAll(c)
			return open(t, c.URL())
		})
	})
	t.Run("a client of one's own", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) sluice.Store {
			flushAll(c)
			return over(t, rueidis.ClientOption{InitAddress: []string{c.Nodes[0].Addr}}, redisstore.Keys{})
		})
	})
	t.Run("slots", func(t *testing.T) { flushAll(c); testSlots(t, c) })
	t.Run("foreign", func(t *testing.T) { flushAll(c); testClusterForeign(t, c) })
	t.Run("script flush", func(t *testing.T) { flushAll(c); testClusterScriptFlush(t, c) })
	t.Run("resharding", func(t *testing.T) { flushAll(c); testResharding(t, c) })
	t.Run("torn slot", func(t *testing.T) { flushAll(c); testTornSlot(t, c) })
	t.Run("failover", func(t *testing.T) { flushAll(c); testFailover(t, c) })
	t.Run("frozen master", func(t *testing.T) { flushAll(c); testFrozenMaster(t, c) })
}

func flushAll(c *redistest.Cluster) {
	for _, s := range c.Nodes {
		s.Try("FLUSHALL") // replicas refuse
	}
}

// Charges of several slots are all taken or given back, and the receipts say so.
func testSlots(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
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
	// The narrow one is in turn in each place.
	for place := range charges {
		charges := slices.Clone(charges)
		charges[place].Plan = narrow
		for n := range 5 {
			receipts := make([]sluice.Receipt, len(charges))
			if err := store.Take(t.Context(), charges, receipts); err != nil {
				t.Fatal(err)
			}
			for i, r := range receipts {
				before := int64(place*3 + min(n, 3)) // of a wide one, less what it was narrow for
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
	redistest.Eventually(t, "a refusal that is remembered costs no call", func() bool {
		calls, receipts := clusterCalls(t, c), make([]sluice.Receipt, len(charges))
		if err := store.Take(t.Context(), charges, receipts); err != nil || receipts[0].Fits || !receipts[1].Fits {
			t.Fatalf("%v, %+v", err, receipts)
		}
		return clusterCalls(t, c) == calls
	})
	charges[0].Plan = wide
	for i, charge := range charges {
		if n := used(t, store, charge.Key, wide); n != 3*7 {
			t.Errorf("layer %d has %d used, want 21", i, n)
		}
	}
}

// Where a slot has something foreign, the error names the place of its charge in the Take, and
// nothing is charged in other slots.
func testClusterForeign(t *testing.T, c *redistest.Cluster) {
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
			s.Try("RPUSH", name, "x") // but for one they say that it has moved
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

func clusterCalls(t *testing.T, c *redistest.Cluster) (n int64) {
	for _, s := range c.Masters {
		n += commandCalls(t, s, "evalsha")
	}
	return n
}

// A flush on a node costs a load or two there, under way as it may be.
func testClusterScriptFlush(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
	p := plan(t, sluice.FixedWindow, "50/10d")
	before := evals(t, c)
	const flushes = 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range flushes {
			for _, s := range c.Masters {
				s.Do("SCRIPT", "FLUSH")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for k, n := range hammer(t, store, p, 300, 100, 300) {
		if n != 50 {
			t.Errorf("key %d: %d admitted of a limit of 50", k, n)
		}
	}
	<-done
	if n := evals(t, c) - before; n < 3 || n > 2*3*flushes {
		t.Errorf("%d loads after %d flushes on each of 3 masters", n, flushes)
	}
}

// While a slot is torn between two masters, requests for one key go on.
func testTornSlot(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
	p := plan(t, sluice.FixedWindow, "1000000/10d")
	keys := []string{"{torn}a", "{torn}b", "{torn}c", "{torn}d"}
	for _, k := range keys {
		take(t, store, k, p)
	}
	tear := c.Tear(t, keys[0])
	tear.Migrate(2)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for range 5 {
				if err := tryFor(t, patient, store, keys[i%len(keys)], p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	tear.Finish()
	c.Settle(t)
	for _, k := range keys {
		if n := used(t, store, k, p); n != 51 {
			t.Errorf("%s: %d used, want 51", k, n)
		}
	}
}

func evals(t *testing.T, c *redistest.Cluster) (n int64) {
	for _, s := range c.Masters {
		n += commandCalls(t, s, "eval")
	}
	return n
}

// Slots move between masters under load: nobody sees an error, nothing is counted twice
// or lost.
func testResharding(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
	const limit = 2000
	p := plan(t, sluice.FixedWindow, strconv.Itoa(limit)+"/10d")
	q := plan(t, sluice.SlidingWindowLog, strconv.Itoa(2*limit)+"/10d")
	ctx, stop := context.WithCancel(t.Context())
	admitted := make([]atomic.Int64, 8)
	keys := make([]string, len(admitted))
	for i := range keys {
		keys[i] = fmt.Sprintf("{tag%d}a", i)
	}
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			receipts := make([]sluice.Receipt, 3)
			for i := w; ctx.Err() == nil; i++ {
				k := i % len(keys)
				charges := []sluice.Charge{
					{Key: keys[k], Plan: p, Cost: 1}, {Key: keys[k], Plan: q, Cost: 1},
					{Key: fmt.Sprintf("{tag%d}%d", k, i), Plan: p, Cost: 1}, // new each time
				}
				if err := store.Take(t.Context(), charges, receipts); err != nil {
					t.Errorf("key %s: %v", keys[k], err)
					return
				}
				if sluice.Admitted(charges, receipts) {
					admitted[k].Add(1)
				}
			}
		})
	}
	for range 3 {
		for _, key := range keys {
			c.Move(t, key)
		}
	}
	redistest.Eventually(t, "all limits are reached", func() bool {
		return !slices.ContainsFunc(keys, func(k string) bool { return used(t, store, k, p) < limit })
	})
	stop()
	wg.Wait()
	for i := range admitted {
		if n := admitted[i].Load(); n != limit {
			t.Errorf("%s: %d admitted of a limit of %d", keys[i], n, limit)
		}
		if n := used(t, store, keys[i], q); n != limit {
			t.Errorf("%s: %d in the log beside", keys[i], n)
		}
	}
	for _, reply := range []string{"ASK", "MOVED", "TRYAGAIN"} {
		met := false
		for _, s := range c.Nodes {
			met = met || s.Info("errorstat_"+reply) != ""
		}
		if !met {
			t.Errorf("no request has met %s: this tells little", reply)
		}
	}
}

// A replica takes over by plan under load: nobody sees an error, nothing is counted
// twice.
func testFailover(t *testing.T, c *redistest.Cluster) {
	store := open(t, c.URL())
	const limit = 500
	p := plan(t, sluice.FixedWindow, strconv.Itoa(limit)+"/10d")
	ctx, stop := context.WithCancel(t.Context())
	admitted := make([]atomic.Int64, 16)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				k := i % len(admitted)
				var r [1]sluice.Receipt
				if err := store.Take(t.Context(), []sluice.Charge{{Key: fmt.Sprint("key", k), Plan: p, Cost: 1}}, r[:]); err != nil {
					t.Error(err)
					return
				}
				if r[0].Fits {
					admitted[k].Add(1)
				}
				time.Sleep(time.Millisecond) // so that the load lasts
			}
		})
	}
	for i := range c.Replicas {
		c.FailOver(t, i)
	}
	redistest.Eventually(t, "all limits are reached", func() bool {
		for k := range admitted {
			if used(t, store, fmt.Sprint("key", k), p) < limit {
				return false
			}
		}
		return true
	})
	stop()
	wg.Wait()
	for k := range admitted {
		if n := admitted[k].Load(); n != limit {
			t.Errorf("key %d: %d admitted of a limit of %d", k, n, limit)
		}
	}
}

// A master that is silent holds up its own keys and no others.
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
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			results[i] = store.Take(ctx, []sluice.Charge{{Key: fmt.Sprint("key", i), Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		})
	}
	wg.Wait()
	failed := map[int]int{}
	for i, err := range results {
		shard := store.Shard(fmt.Sprint("key", i))
		if err != nil {
			failed[shard]++
			// Whose patience ends first, the caller's or the client's, is for the machine to say.
			e, unknown := errors.AsType[*redisstore.Error](err)
			if !errors.Is(err, context.DeadlineExceeded) && (!unknown || e.Kind != redisstore.Unknown) {
				t.Errorf("key %d: %v", i, err)
			}
		} else if failed[shard] > 0 {
			t.Errorf("shard %d answers for key %d and not for another", shard, i)
		}
	}
	if len(failed) != 1 {
		t.Errorf("of the shards of 100 keys, these failed: %v", failed)
	}
}

// A slot that nobody has is an error of its own.
func TestClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	store := open(t, c.URL())
	p := plan(t, sluice.TokenBucket, "1000000/day")
	take(t, store, "k", p)
	c.Nodes[0].Do("CLUSTER", "DELSLOTSRANGE", "0", "16383")
	becomes(t, store, p, redisstore.ClusterDown)
	c.Nodes[0].Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	recovers(t, store, p)
}

// Where a part cannot be decided, and what was taken before cannot be given back, nobody may
// take it for not charged.
func TestNotGivenBack(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	proxies, url := c.StartProxies(t)
	store := open(t, url)
	p := plan(t, sluice.FixedWindow, "100/10d")
	owner := func(key string) int {
		return slices.IndexFunc(c.Masters, func(m *redistest.Server) bool { _, err := m.Try("GET", "{"+key+"}"); return err == nil })
	}
	first, second := "a", "b"
	for i := 0; owner(second) == owner(first); i++ {
		second = fmt.Sprint("b", i)
	}
	both := func() *redisstore.Error {
		err := store.Take(t.Context(), []sluice.Charge{{Key: first, Plan: p, Cost: 1}, {Key: second, Plan: p, Cost: 1}}, make([]sluice.Receipt, 2))
		e, _ := errors.AsType[*redisstore.Error](err)
		return e
	}
	if e := both(); e != nil {
		t.Fatal(e)
	}
	// The second takes no writes, and says so: nothing is charged, the first is given back.
	c.Masters[owner(second)].Do("CONFIG", "SET", "maxmemory", "1")
	if e := both(); e == nil || e.Kind != redisstore.OutOfMemory || !e.NotCharged() {
		t.Errorf("error %v of a server whose memory is full", e)
	}
	if n := used(t, store, first, p); n != 1 {
		t.Errorf("%d units are used of the first key, want 1", n)
	}
	// Now the first answers once more, and then never.
	var answers atomic.Int64
	proxies[slices.Index(c.Nodes, c.Masters[owner(first)])].Spoil(func() (time.Duration, bool) { return 0, answers.Add(1) > 1 })
	e := both()
	if e == nil || e.NotCharged() || e.Kind != redisstore.Unknown || answers.Load() < 2 {
		t.Errorf("error %v after %d answers, want one that leaves it open", e, answers.Load())
	}
}
