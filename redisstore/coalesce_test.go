package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// crowd makes up requests that many make at the same time.
type crowd struct {
	*rand.Rand
	plans []*sluice.Plan
	lock  *sluice.Plan
}

// request has up to three layers, some of them shadows, and often one for all.
func (c *crowd) request() []sluice.Charge {
	var charges []sluice.Charge
	for i := range 1 + c.IntN(3)*c.IntN(2) {
		p := c.plans[c.IntN(len(c.plans))]
		charge := sluice.Charge{Key: fmt.Sprint("k", i, "/", c.IntN(2)), Plan: p, Cost: 1, Shadow: c.IntN(6) == 0}
		switch c.IntN(12) {
		case 0:
			charge.Cost = c.Int64N(p.Capacity/2+2) - 1
		case 1, 2:
			charge.Cost = 1 + c.Int64N(max(1, p.Capacity/10))
		}
		charges = append(charges, charge)
		if c.IntN(6) == 0 {
			charges = append(charges, sluice.Charge{Key: charge.Key, Plan: c.lock, Cost: min(1, charge.Cost), Shadow: charge.Shadow})
		}
	}
	if c.IntN(2) == 0 {
		charges = append(charges, sluice.Charge{Key: "all", Plan: c.plans[c.IntN(6)], Cost: 1})
	}
	return charges
}

// ask returns the requests of one call: a few, made by many, some of them in turns.
func (c *crowd) ask() (all [][]sluice.Charge) {
	var few [][]sluice.Charge
	for range 1 + c.IntN(3) {
		few = append(few, c.request())
	}
	for range 1 + c.IntN(4) {
		for range 1 + c.IntN(30) {
			all = append(all, few[0])
		}
		c.Shuffle(len(few), func(i, j int) { few[i], few[j] = few[j], few[i] })
	}
	return all
}

// asOneByOne holds what many decides about the requests of one call to what one decides about
// each, and returns how many are refused.
func (c *crowd) asOneByOne(t *testing.T, one storetest.TimedStore, many *redisstore.TimedStore, now int64, all [][]sluice.Charge) (refused int) {
	t.Helper()
	receipts := make([][]sluice.Receipt, len(all))
	for i := range all {
		receipts[i] = make([]sluice.Receipt, len(all[i]))
	}
	if err := many.TakeAllAt(t.Context(), now, all, receipts); err != nil {
		t.Fatal(err)
	}
	for i, charges := range all {
		want := make([]sluice.Receipt, len(charges))
		if err := one.TakeAt(t.Context(), now, charges, want); err != nil {
			t.Fatal(err)
		}
		for j := range want {
			if receipts[i][j] != want[j] {
				t.Fatalf("at %d, request %d of %d, charge %+v of %v: %+v, alone %+v",
					now, i, len(all), charges[j], charges[j].Plan.Limit, receipts[i][j], want[j])
			}
		}
		if !sluice.Admitted(charges, want) {
			refused++
		}
	}
	return refused
}

// Those who ask for the same at the same time are told what they would be told one after
// the other.
func TestSame(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one, many := memory.New(), redisstore.Timed(open(t, "unix://"+server.Socket))
	c := &crowd{Rand: rand.New(rand.NewPCG(7, 8)), lock: lockOf(t, sluice.Penalty{First: 200 * time.Millisecond, Factor: 2})}
	for _, a := range sluice.Algorithms() {
		for _, limit := range []string{"7/second", "70/10s", "400/3s"} {
			c.plans = append(c.plans, plan(t, a, limit))
		}
	}
	c.plans = append(c.plans, plan(t, sluice.TokenBucket, "7/second burst 200"), plan(t, sluice.GCRA, "70/10s burst 3"))
	now := int64(1_700_000_000_000_000)
	decided, refused, split := 0, 0, 0
	for range steps(t) / 100 {
		all := c.ask()
		n := c.asOneByOne(t, one, many, now, all)
		if refused += n; n > 0 && n < len(all) {
			split++
		}
		decided += len(all)
		switch now += c.Int64N(300_000); c.IntN(40) {
		case 0:
			now -= c.Int64N(20_000_000)
		case 1:
			now += c.Int64N(20_000_000)
		}
	}
	if many.Joined < decided/3 || refused < decided/10 || refused > decided*9/10 || split < steps(t)/1000 {
		t.Errorf("of %d requests %d were asked for with others and %d refused, in %d calls some of them: this tells little",
			decided, many.Joined, refused, split)
	}
}
