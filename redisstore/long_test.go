//go:build long

package redisstore_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

// TestLongHistories runs histories of 10,000 steps, or of $SLUICE_STEPS.
func TestLongHistories(t *testing.T) {
	steps := 10_000
	if text := os.Getenv("SLUICE_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SLUICE_STEPS: %v", err)
		}
	}
	for name, run := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, steps)
		})
	}
	t.Run("long log", func(t *testing.T) {
		t.Parallel()
		for _, period := range []time.Duration{time.Minute, time.Hour} {
			server := redistest.Shared(t)
			testLongLog(t, server, timed(t, server), period)
		}
	})
}

// A store of a cluster, and a store over a client with options that are not the defaults, also conform to the
// contract of [sluice.Store].
func TestLongConformance(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Shared(t), redistest.SharedCluster(t)
	tuned := clientOf(server)
	tuned.ConnWriteTimeout, tuned.DisableAutoPipelining, tuned.BlockingPoolSize, tuned.DisableCache = 5*time.Second, true, 50, true
	testConformance(t, map[string]func(t *testing.T) sluice.Store{
		"tuned client": func(t *testing.T) sluice.Store { return over(t, tuned, redisstore.Keys{}) },
		"cluster":      func(t *testing.T) sluice.Store { return open(t, cluster.URL()) },
	})
}

// On a full server with volatile-ttl, a flood of new keys of the same rule hardly evicts clients that have used up
// their limit. With a flood of another rule, Kept predicts whether it does.
func TestLongEvictionByExpiry(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{
		{"60/hour", "1000/day"},
		{"60/hour", "10/day"},
		{"60/hour as sliding_window_log", "60/10d as sliding_window_log"},
		{"60/day as sliding_window_log", "60/day"},
	}
	for _, a := range sluice.Algorithms() {
		if a != sluice.LeakyBucket && a != sluice.GCRA { // these use the meter of the token bucket
			same := "60/10d as " + a.String()
			pairs = append(pairs, [2]string{same, same})
		}
	}
	for _, pair := range pairs {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			t.Parallel()
			testEviction(t, plantest.Plan(t, pair[0]), plantest.Plan(t, pair[1]), 100, 60_000)
		})
	}
}

func testEviction(t *testing.T, p, floods *sluice.Plan, limited, flood int) {
	server := redistest.Start(t, "--maxmemory", "6mb", "--maxmemory-policy", "volatile-ttl")
	store := open(t, server.URL())
	for i := range limited {
		plantest.One(t, store, fmt.Sprint("limited", i), p, p.Capacity)
	}
	const batch = 1000
	calls := make([]sluice.TakeCall, batch)
	for n := range flood / batch {
		for i := range calls {
			c := sluice.Charge{Key: fmt.Sprint("new", n*batch+i), Plan: floods, Cost: 1}
			calls[i] = sluice.TakeCall{Charges: []sluice.Charge{c}, Receipts: make([]sluice.Receipt, 1)}
		}
		sluice.TakeEach(t.Context(), store, calls)
		for i := range calls {
			if calls[i].Err != nil {
				t.Fatal(calls[i].Err)
			}
		}
	}
	if evicted := server.Info("evicted_keys"); len(evicted) < 5 {
		t.Fatalf("premise: only %s keys were evicted", evicted)
	}
	again := open(t, server.URL()) // remembers no denials
	freed := 0
	for i := range limited {
		if plantest.One(t, again, fmt.Sprint("limited", i), p, p.Capacity/2).Fits {
			freed++
		}
	}
	_, last := redisstore.Kept(p)
	first, _ := redisstore.Kept(floods)
	if most := limited / 50; first <= last && freed > most {
		t.Errorf("%d of %d clients that had used up their limit were evicted, want at most %d", freed, limited, most)
	} else if first > last && freed < limited/2 {
		t.Errorf("%d of %d clients were evicted, but Kept predicts that they are evicted first", freed, limited)
	}
}

// usedMemory is a script that returns the server's used memory in bytes.
const usedMemory = `return tonumber(string.match(redis.call('INFO', 'memory'), 'used_memory:(%d+)'))`

// The memory of the server for each key is within a quarter of the number in docs/redis.md: versions of servers differ.
// The limit of each key is used up.
func TestLongSizing(t *testing.T) {
	const keys = 16000 // the server's table doubles at 16,384
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\S+)` \\| ([0-9,]+) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) < len(sluice.Algorithms()) {
		t.Fatalf("docs/redis.md has %d rows", len(rows))
	}
	for _, row := range rows {
		documented, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		var calls []sluice.TakeCall
		for i := range keys {
			for _, c := range usedUp(t, row[1], row[2], i) {
				calls = append(calls, sluice.TakeCall{Charges: []sluice.Charge{c}, Receipts: make([]sluice.Receipt, 1)})
			}
		}
		measured := math.NaN()
		testkit.Await(t, "no window ends during the measurement", func() bool {
			server := redistest.Start(t)
			used := func() int64 { return number(t, server, "EVAL", usedMemory, "0") }
			before := used()
			store := open(t, server.URL())
			store.TakeEach(t.Context(), calls)
			store.Close()
			testkit.Await(t, "only the test is connected", func() bool { return server.Info("connected_clients") == "1" })
			measured = float64(used()-before) / keys
			for _, c := range calls {
				if c.Err != nil || !c.Receipts[0].Fits {
					t.Fatalf("%s %s: %v, %+v", row[1], row[2], c.Err, c.Receipts)
				}
			}
			return number(t, server, "DBSIZE") == keys
		})
		t.Logf("%s %s: %.0f bytes a key", row[1], row[2], measured)
		if math.Abs(measured-documented) > documented/4 {
			t.Errorf("%s %s: %.0f bytes a key, but %.0f in docs/redis.md", row[1], row[2], measured, documented)
		}
	}
}

// usedUp returns charges that use up a limit under a key with an IPv4 address.
func usedUp(t *testing.T, algorithm, limit string, i int) (all []sluice.Charge) {
	t.Helper()
	key := fmt.Sprintf("per-address/203.%d.%d.%d", 100+i>>14, 100+i>>7&0x7f, 100+i&0x7f)
	if algorithm != "in_flight" {
		p := plantest.Plan(t, limit+" as "+algorithm)
		return []sluice.Charge{{Key: key, Plan: p, Cost: p.Capacity}}
	}
	n, err := strconv.Atoi(limit)
	if err != nil {
		t.Fatal(err)
	}
	for number := range n {
		all = append(all, aPlace(t, key, int64(n), uint64(number)+1, 1))
	}
	return all
}
