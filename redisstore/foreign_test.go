package redisstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/redisstore"
)

// notStates are strings that are not a state of any algorithm.
var notStates = []string{
	"", "x", "nan", "1.5", "1:2:3:4", "-", ":", "1e400", strings.Repeat("9", 400) + ":1", strings.Repeat("\x00", 14), strings.Repeat("\x00", 153),
	strings.Repeat("\xff", 148), strings.Repeat("garbage.", 4), strings.Repeat("\x7f", 24),
}

// notLocks are strings that look like the state of a lock, but are invalid.
var notLocks = []string{"1:2", "1:0:5", "9:1:8", "1:1:9007199254740992", "-1:1:9", "1:1:1:1"}

// foreignCharges returns a charge for each kind of state, under the key "k".
func foreignCharges(t *testing.T) (all []sluice.Charge) {
	for _, p := range plansOf(t, "10/day", "7/day", "5000/day") {
		all = append(all, sluice.Charge{Key: "k", Plan: p, Cost: 1})
	}
	lock := sluice.Charge{Key: "k", Plan: lockOf(t, sluice.Penalty{First: time.Hour}), Cost: 1}
	return append(all, lock, aPlace(t, "k", 2, 1, 1))
}

// company returns the charge c alone, and as a shadow with charges before and after it.
func company(t *testing.T, c sluice.Charge) [][]sluice.Charge {
	p := plan(t, sluice.TokenBucket, "10/day")
	shadow := c
	shadow.Shadow = true
	return [][]sluice.Charge{{c}, {{Key: "other", Plan: p, Cost: 1}, shadow, {Key: "third", Plan: p, Cost: 1}}}
}

// A string that is not a state fails the next Take of its key, and the Take charges nothing. After that, the count
// starts again.
func TestForeignText(t *testing.T) {
	t.Parallel()
	for _, c := range foreignCharges(t) {
		t.Run(c.Plan.Limit.String(), func(t *testing.T) {
			t.Parallel()
			testForeignText(t, c)
		})
	}
}

func testForeignText(t *testing.T, c sluice.Charge) {
	server := redistest.Shared(t)
	store := open(t, server.URL())
	name, texts := redisstore.Name(store, c.Key, c.Plan), notStates
	if c.Plan.Kernel == kernel.Lock {
		texts = slices.Concat(notLocks, texts)
	}
	for _, text := range texts {
		if text == "" && c.Plan.Kernel == kernel.ExactLog {
			continue // an empty log is valid
		}
		for _, charges := range company(t, c) {
			server.Do("SET", name, text)
			f := foreign(t, store.Take(t.Context(), charges, make([]sluice.Receipt, len(charges))), c.Plan.Limit, text)
			if !slices.Equal(f.Unreadable(), []int{len(charges) / 2}) || !slices.Equal(f.Keys, []string{name}) || !f.Deleted[0] {
				t.Errorf("%v with the state %q: %+v", c.Plan.Limit, text, f)
			}
			if n := server.Do("DBSIZE"); n != "0" {
				t.Errorf("%v with the state %q: %s keys are left", c.Plan.Limit, text, n)
			}
			takeAll(t, store, c)
			if d := c.Plan.Decide(0, plantest.One(t, store, c.Key, c.Plan, 0)); d.Remaining != c.Plan.Capacity-1 && c.Plan.Kernel != kernel.Lock {
				t.Errorf("%v after the state %q: %d remain of %d, want all but one", c.Plan.Limit, text, d.Remaining, c.Plan.Capacity)
			}
			server.Do("FLUSHDB")
		}
	}
}

// A value of another type fails every Take of its key until it is deleted, whether the charge is alone or not.
func TestForeignType(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := open(t, server.URL())
	for _, c := range foreignCharges(t) {
		name := redisstore.Name(store, c.Key, c.Plan)
		for _, create := range [][]string{{"RPUSH", name, "x"}, {"HSET", name, "a", "b"}, {"ZADD", name, "1", "a"}} {
			if create[0] == "ZADD" && c.Plan.Kernel == kernel.InFlight {
				continue // permits are kept in a sorted set
			}
			server.Do(create...)
			for range 2 {
				for _, charges := range company(t, c) {
					f := foreign(t, store.Take(t.Context(), charges, make([]sluice.Receipt, len(charges))), c.Plan.Limit, create)
					if f.Deleted[0] || f.Keys[0] != name || charges[f.Unreadable()[0]].Key != "k" {
						t.Errorf("%v over a %s: %+v", c.Plan.Limit, create[0], f)
					}
				}
			}
			if kind, n := server.Do("TYPE", name), server.Do("DBSIZE"); kind == "string" || n != "1" {
				t.Errorf("%v over a %s: now the value is a %s, and %s keys exist", c.Plan.Limit, create[0], kind, n)
			}
			server.Do("DEL", name)
			takeAll(t, store, c)
			server.Do("FLUSHDB")
		}
	}
}

// The error contains the key's name in Redis, which is hashed if HashKey is set.
func TestForeignHashed(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := over(t, clientOf(server), redisstore.Keys{HashKey: []byte("0123456789abcdef0123456789abcdef")})
	p := plan(t, sluice.TokenBucket, "10/day")
	take(t, store, "alice@example.com", p)
	name := server.Do("KEYS", "*")
	server.Do("SET", name, "x")
	err := tryFor(t, patient, store, "alice@example.com", p)
	if foreign(t, err).Keys[0] != name || strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v of the key %s", err, name)
	}
}

// A limit with an unreadable state does not count as exceeded, so the key gets no penalty.
func TestForeignLimitBesideLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := open(t, server.URL())
	limit := sluice.Charge{Key: "k", Plan: plan(t, sluice.TokenBucket, "1/10d"), Cost: 1}
	penalty := sluice.Charge{Key: "k", Plan: lockOf(t, sluice.Penalty{First: time.Hour}), Cost: 1}
	server.Do("LPUSH", redisstore.Name(store, "k", limit.Plan), "x")
	err := store.Take(t.Context(), []sluice.Charge{limit, penalty}, make([]sluice.Receipt, 2))
	if f, ok := errors.AsType[*redisstore.ForeignState](err); !ok || len(f.Keys) != 1 {
		t.Errorf("a list under the limit: error %v", err)
	}
	if r := takeAll(t, store, penalty)[0]; !r.Fits {
		t.Errorf("a limit with an unreadable state counted as exceeded: %+v", r)
	}
}
