package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

// foreign reports which charges an error says to have foreign states.
func foreign(t *testing.T, err error, of ...any) *redisstore.ForeignState {
	t.Helper()
	e, ok := errors.AsType[*redisstore.Error](err)
	f, named := errors.AsType[*redisstore.ForeignState](err)
	if !ok || !named || e.Kind != redisstore.Foreign || !e.NotCharged() || len(f.Keys) != len(f.Unreadable()) || len(f.Deleted) != len(f.Keys) {
		t.Fatalf("%v: error %v, want one of a foreign state", of, err)
	}
	return f
}

// state returns what a key has.
func state(t *testing.T, s sluice.Store, key string, p *sluice.Plan) sluice.Receipt {
	t.Helper()
	var r [1]sluice.Receipt
	if err := s.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0]
}

// notStates is what no algorithm takes for a state.
var notStates = []string{
	"", "x", "nan", "1.5", "1:2:3:4", "-", ":", "1e400", strings.Repeat("9", 400) + ":1", strings.Repeat("\x00", 14), strings.Repeat("\x00", 153),
	strings.Repeat("\xff", 148), strings.Repeat("garbage.", 4), strings.Repeat("\x7f", 24),
}

// A text that is no state is an error of the request that it concerns, once: then the count
// begins anew. Nothing else is charged.
func TestForeignText(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	for _, a := range sluice.Algorithms() {
		for _, limit := range []string{"10/day", "7/day", "5000/day"} {
			p := plan(t, a, limit)
			take(t, store, "k", p)
			name := server.Do("KEYS", "*")
			for _, text := range notStates {
				if text == "" && a == sluice.SlidingWindowLogExact {
					continue // as good as nothing
				}
				for _, alone := range []bool{true, false} {
					server.Do("SET", name, text)
					charges := []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}
					if !alone {
						charges = []sluice.Charge{{Key: "other", Plan: p, Cost: 1}, {Key: "k", Plan: p, Cost: 1, Shadow: true}, {Key: "third", Plan: p, Cost: 1}}
					}
					f := foreign(t, store.Take(t.Context(), charges, make([]sluice.Receipt, len(charges))), p.Limit, text)
					if !slices.Equal(f.Unreadable(), []int{len(charges) / 2}) || !slices.Equal(f.Keys, []string{name}) || !f.Deleted[0] {
						t.Errorf("%v with the state %q: %+v", p.Limit, text, f)
					}
					if n := server.Do("DBSIZE"); n != "0" {
						t.Errorf("%v with the state %q: there are %s keys", p.Limit, text, n)
					}
					take(t, store, "k", p)
					if d := p.Decide(0, state(t, store, "k", p)); d.Remaining != p.Capacity-1 {
						t.Errorf("%v after the state %q: %d remain of %d, want all but one", p.Limit, text, d.Remaining, p.Capacity)
					}
					server.Do("FLUSHALL")
				}
			}
		}
	}
}

// Another type is an error until somebody deletes it, alone or in company.
func TestForeignType(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	for _, a := range sluice.Algorithms() {
		for _, limit := range []string{"10/day", "7/day", "5000/day"} {
			p := plan(t, a, limit)
			take(t, store, "k", p)
			name := server.Do("KEYS", "*")
			for _, make := range [][]string{{"RPUSH", name, "x"}, {"HSET", name, "a", "b"}, {"ZADD", name, "1", "a"}} {
				server.Do("DEL", name)
				server.Do(make...)
				var receipts [2]sluice.Receipt
				k := sluice.Charge{Key: "k", Plan: p, Cost: 1}
				for range 2 {
					for _, charges := range [][]sluice.Charge{{k}, {k, {Key: "other", Plan: p, Cost: 1}}, {{Key: "other", Plan: p, Cost: 1}, k}} {
						f := foreign(t, store.Take(t.Context(), charges, receipts[:len(charges)]))
						if f.Deleted[0] || f.Keys[0] != name || charges[f.Unreadable()[0]].Key != "k" {
							t.Errorf("%v over a %s: %+v", p.Limit, make[0], f)
						}
					}
				}
				if kind := server.Do("TYPE", name); kind == "string" || kind == "none" {
					t.Errorf("%v over a %s: now it is a %s", p.Limit, make[0], kind)
				}
				if n := server.Do("DBSIZE"); n != "1" {
					t.Errorf("%v over a %s: there are %s keys", p.Limit, make[0], n)
				}
			}
			server.Do("DEL", name)
			take(t, store, "k", p)
			server.Do("FLUSHALL")
		}
	}
}

// The error names the key as it is in Redis, and hashed where that is asked for.
func TestForeignHashed(t *testing.T) {
	server := redistest.Start(t)
	store, err := redisstore.Config{Addrs: []string{server.Addr}, HashKey: []byte("0123456789abcdef0123456789abcdef")}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := plan(t, sluice.TokenBucket, "10/day")
	take(t, store, "alice@example.com", p)
	name := server.Do("KEYS", "*")
	server.Do("SET", name, "x")
	err = tryFor(t, patient, store, "alice@example.com", p)
	if foreign(t, err).Keys[0] != name || strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v of the key %s", err, name)
	}
}

// Whatever some keys hold, requests that share a call with them are decided as ever: nothing
// stops the script halfway.
func TestForeignInBatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	model, store := memory.New(), redisstore.Timed(open(t, "unix://"+server.Socket))
	r := rand.New(rand.NewPCG(7, 8))
	var plans []*sluice.Plan
	for _, a := range sluice.Algorithms() {
		for _, limit := range []string{"7/second", "1000/minute", "6000/minute"} {
			plans = append(plans, plan(t, a, limit))
		}
	}
	now := int64(1_700_000_000_000_000)
	failed, read := 0, 0
	for batch := range steps(t) / 50 {
		now += r.Int64N(100_000)
		bad := plans[r.IntN(len(plans))]
		spoil(t, server, r, store, now, bad)
		var charges [][]sluice.Charge
		var receipts [][]sluice.Receipt
		for range 1 + r.IntN(12) {
			take := []sluice.Charge{{Key: fmt.Sprint("good", r.IntN(3)), Plan: plans[r.IntN(len(plans))], Cost: r.Int64N(4) - 1}}
			switch r.IntN(4) {
			case 0: // the costs of states that look right by chance go astray, so it decides nothing
				take = append(take, sluice.Charge{Key: "bad", Plan: bad, Cost: r.Int64N(9) - 3, Shadow: true})
			case 1:
				take[0] = sluice.Charge{Key: "bad", Plan: bad, Cost: r.Int64N(9) - 3}
			}
			charges, receipts = append(charges, take), append(receipts, make([]sluice.Receipt, len(take)))
		}
		errs := store.TakeEachAt(t.Context(), now, charges, receipts)
		if len(errs) != len(charges) {
			t.Fatalf("batch %d beside %v: %v", batch, bad.Limit, errs[0])
		}
		for i, take := range charges {
			bads := slices.IndexFunc(take, func(c sluice.Charge) bool { return c.Key == "bad" })
			if errs[i] != nil {
				if f := foreign(t, errs[i]); bads < 0 || !slices.Equal(f.Unreadable(), []int{bads}) {
					t.Fatalf("batch %d, request %d %+v: %v", batch, i, take, errs[i])
				}
				failed++
				continue
			}
			if bads == 0 {
				read++
				continue
			}
			want := make([]sluice.Receipt, 1)
			if err := model.TakeAt(t.Context(), now, take[:1], want); err != nil {
				t.Fatal(err)
			}
			if receipts[i][0] != want[0] {
				t.Fatalf("batch %d, request %d %+v: %+v, want %+v", batch, i, take[0], receipts[i][0], want[0])
			}
		}
	}
	if failed < 100 || read < 100 {
		t.Errorf("premise: %d requests with a foreign state failed, and %d with one that looks right did not", failed, read)
	}
}

// spoil makes the key "bad" hold something that it should not.
func spoil(t *testing.T, server *redistest.Server, r *rand.Rand, store *redisstore.TimedStore, now int64, p *sluice.Plan) {
	name := redisstore.Name(store.Store, "bad", p)
	server.Do("DEL", name)
	switch r.IntN(6) {
	case 0:
		server.Do("RPUSH", name, "x")
	case 1:
		server.Do("SET", name, notStates[r.IntN(len(notStates))])
	case 2:
		server.Do("SET", name, string(noise(r, r.IntN(200))))
	case 3: // numbers that not all readers take for such
		forms := []string{" %d", "%d ", "0x%x", "%de0", "+%d", "%d:7", "-%d", " -%d", "-%de0"}
		server.Do("SET", name, fmt.Sprintf(forms[r.IntN(len(forms))], now/p.Tick+r.Int64N(1000)))
	default: // a state with some bytes changed
		var receipts [1]sluice.Receipt
		for range 3 {
			_ = store.TakeAllAt(t.Context(), now, [][]sluice.Charge{{{Key: "bad", Plan: p, Cost: 1 + r.Int64N(p.Capacity/4+1)}}}, [][]sluice.Receipt{receipts[:]})
		}
		text := []byte(server.Do("GET", name))
		if len(text) == 148 && r.IntN(2) == 0 { // counts, whose sum is another, or that are none
			binary.LittleEndian.PutUint64(text[8:], math.Float64bits(float64(r.Int64N(2*p.Capacity))))
			if r.IntN(2) == 0 {
				clear(text[16:])
			}
		}
		for range r.IntN(4) {
			text[r.IntN(len(text))] = noise(r, 1)[0]
		}
		server.Do("SET", name, string(text))
	}
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256))
		if r.IntN(2) == 0 {
			b[i] = "0123456789:-"[r.IntN(12)]
		}
	}
	return b
}
