package kernel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

var plan = plantest.Of

// anyCost returns a cost from 1 to a little above the capacity.
func anyCost(p *sluice.Plan, rng *rand.Rand) int64 {
	switch rng.IntN(8) {
	case 0:
		return p.Capacity
	case 1:
		return 1 + rng.Int64N(p.Capacity)
	case 2:
		return p.Capacity + 1
	case 3, 4:
		return 1
	}
	return 1 + rng.Int64N(max(1, p.Capacity/5))
}

// history makes random charges and refunds of a bucket, and calls look after each.
func history(p *sluice.Plan, rng *rand.Rand, look func(b *plantest.Bucket, now int64)) {
	b, now := &plantest.Bucket{Plan: p}, int64(plantest.Start)
	for range 150 {
		if now += plantest.Pause(p, rng); now > plantest.Latest {
			b, now = &plantest.Bucket{Plan: p}, plantest.Start
		}
		cost := anyCost(p, rng)
		if rng.IntN(5) == 0 {
			cost = -cost
		}
		b.Take(now, cost)
		look(b, now)
	}
}

// A minimal store over the kernels keeps the contract of all stores, and its results equal those of the vectors and of
// the model.
func TestKernels(t *testing.T) {
	t.Parallel()
	newStore := func(*testing.T) storetest.TimedStore { return plantest.NewKernels() }
	storetest.Run(t, func(t *testing.T) sluice.Store { return newStore(t) })
	storetest.RunTimed(t, newStore)
	storetest.RunVectors(t, "../testdata/vectors", newStore)
	storetest.Differential(t, plantest.NewKernels(), new(storetest.Model), 10_000, 2)
}

func TestCheckCharges(t *testing.T) {
	second, burst, minute := plantest.Plan(t, "1/second"), plantest.Plan(t, "1/second burst 9"), plantest.Plan(t, "1/minute")
	for _, n := range []int{2, 32, 33, 100} {
		charges := make([]sluice.Charge, n)
		for i := range charges {
			charges[i] = sluice.Charge{Key: fmt.Sprint(i), Plan: second}
		}
		receipts := make([]sluice.Receipt, n)
		if err := sluice.CheckCharges(charges, receipts); err != nil {
			t.Errorf("%d charges: %v", n, err)
		}
		if err := sluice.CheckCharges(charges, receipts[1:]); err == nil {
			t.Errorf("%d charges, and one receipt fewer: no error", n)
		}
		charges[n-1] = sluice.Charge{Key: "0", Plan: minute}
		if err := sluice.CheckCharges(charges, receipts); err != nil {
			t.Errorf("%d charges, two with the same key and different limits: %v", n, err)
		}
		charges[n-1] = sluice.Charge{Key: "0", Plan: burst, Shadow: true}
		if err := sluice.CheckCharges(charges, receipts); !errors.Is(err, sluice.ErrDuplicateCharge) {
			t.Errorf("%d charges, two with the same state: %v", n, err)
		}
		charges[n-1].Plan = nil
		if err := sluice.CheckCharges(charges, receipts); err == nil || errors.Is(err, sluice.ErrDuplicateCharge) {
			t.Errorf("%d charges, one without a plan: %v", n, err)
		}
	}
	if err := sluice.CheckCharges(nil, nil); err != nil {
		t.Errorf("no charges: %v", err)
	}
}

// TestLongWaits: a wait of more than 292 years does not fit in a Duration. It is returned as a long Duration, but not
// as Never.
func TestLongWaits(t *testing.T) {
	const year = 365 * 24 * time.Hour
	b := &plantest.Bucket{Plan: plan(t, sluice.Limit{Count: 1, Period: 250 * year, Algorithm: sluice.SlidingWindowCounter})}
	d := b.Take(plantest.Start, 1)
	if refused := b.Take(plantest.Start, 1); refused.RetryAfter != d.ResetAfter || d.ResetAfter < 290*year || d.ResetAfter == sluice.Never {
		t.Errorf("retry after %v, reset after %v: want the same time, nearly 292 years", refused.RetryAfter, d.ResetAfter)
	}
}

// FuzzKernels reads a limit and a history from bytes, and compares the kernels and the results derived from them
// with the model.
func FuzzKernels(f *testing.F) {
	for a := range byte(8) {
		f.Add([]byte{a, 7, 0, 20, 3, 0, 1, 1, 200, 3, 5, 9, 1, 1, 250, 255, 7, 0, 0, 130, 2, 20, 1, 90, 2, 1, 1, 20, 254, 9, 40, 255, 3})
	}
	rng := rand.NewChaCha8([32]byte{1})
	for range 150 {
		data := make([]byte, 200)
		rng.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := input(data)
		p, err := sluice.NewPlan(in.limit())
		if err != nil {
			return
		}
		period := p.Limit.Period.Microseconds()
		model := new(storetest.Model)
		twins := plantest.Twins{Store: plantest.NewKernels(), Like: model}
		now := int64(1_500_000_000_000_000)
		for n := 0; len(in) > 0 && n < 200; n++ {
			now = min(max(now+in.amount(period), 0), 1<<51)
			c := sluice.Charge{Key: "key", Plan: p, Cost: in.amount(p.Capacity)}
			r := twins.At(t, now, c)[0]
			if got, want := p.Decide(c.Cost, r), model.Decide(c, r); got != want {
				t.Fatalf("step %d: %v %v, cost %d at %d: decision %+v, want %+v", n, p.Limit.Algorithm, p.Limit, c.Cost, now, got, want)
			}
		}
	})
}

// input is the unread rest of the fuzzer's data.
type input []byte

func (in *input) byte() (b byte) {
	if len(*in) > 0 {
		b, *in = (*in)[0], (*in)[1:]
	}
	return b
}

// number returns a number of up to 7 bytes, with all lengths equally likely.
func (in *input) number() int64 {
	var b [8]byte
	for i := range in.byte() % 8 {
		b[i] = in.byte()
	}
	return int64(binary.LittleEndian.Uint64(b[:]))
}

func (in *input) limit() sluice.Limit {
	l := sluice.Limit{Algorithm: sluice.Algorithm(in.byte() % 8), Count: in.number() + 1}
	if l.Algorithm == 7 {
		l.Algorithm, l.MonthDay = sluice.FixedWindow, int(in.byte()%31)+1
		return l
	}
	l.Period = time.Duration(in.number()+1) * []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute}[in.byte()%4]
	if burst := in.number(); l.Algorithm <= sluice.GCRA {
		l.Burst = burst
	}
	return l
}

// amount returns a charge or a refund: 0, a few units, up to about twice whole, any number, or [sluice.All].
func (in *input) amount(whole int64) int64 {
	switch b := in.byte(); {
	case b < 64:
		return int64(b % 8)
	case b < 160:
		return whole / 32 * int64(b%40)
	case b < 180:
		return whole + int64(b%5) - 2
	case b < 200:
		return -int64(b % 4)
	case b < 235:
		return -whole / 16 * int64(b%36)
	case b < 240:
		return in.number()
	case b < 245:
		return -in.number()
	case b == 255:
		return sluice.All
	}
	return 0
}
