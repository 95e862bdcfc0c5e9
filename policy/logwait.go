package policy

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
)

// A receipt says what remains, from which follows whether any cost fits. When a cost will fit follows
// from it too, except for a log: its Wait is that of the cost that the store was asked for. So to
// look at a log the store is asked for that cost, together with a charge that never fits.

// unfittable is the plan of that charge, which no policy has.
var unfittable = func() *sluice.Plan {
	p, err := sluice.NewPlan(sluice.Limit{Algorithm: sluice.LeakyBucket, Count: 7919, Period: 24 * time.Hour, Burst: 1})
	if err != nil {
		panic(err)
	}
	return p
}()

// unfitting returns a charge that never fits, beside another one.
func unfitting(beside *sluice.Charge) sluice.Charge {
	return sluice.Charge{Key: beside.Key, Plan: unfittable, Cost: unfittable.Capacity + 1, OnError: beside.OnError}
}

// logWait is the wait of a charge of a log that is not known yet.
type logWait struct {
	s      *scratch
	d      *Decision // of s, or nil
	charge int
}

// logWaits are some, and the calls that ask for them.
type logWaits struct {
	all   []logWait
	calls []sluice.TakeCall
}

// add asks when a cost fits the log of a charge.
func (w *logWaits) add(l logWait, cost int64) {
	c := l.s.charges[l.charge]
	if cost > c.Plan.Capacity {
		return // it never fits
	}
	c.Cost, c.Shadow = cost, false
	w.all = append(w.all, l)
	w.calls = append(w.calls, sluice.TakeCall{Charges: []sluice.Charge{c, unfitting(&c)}, Receipts: make([]sluice.Receipt, 2)})
}

// addUnknown adds the charges of a decision that do not fit and whose receipts have the wait of another
// cost. Asked returns the cost that the store was asked for.
func (w *logWaits) addUnknown(s *scratch, d *Decision, asked func(charge int) int64) {
	for i := range s.results {
		c, r := &s.charges[i], &s.receipts[i]
		if c.Plan.Kernel.Log() && !r.Fits && r.Origin != sluice.ByOnError && max(1, asked(i)) != c.Cost {
			w.add(logWait{s, d, i}, c.Cost)
		}
	}
}

// ask asks the store for the waits. Where it does not answer now, or the cost fits by now, the receipt
// stays as it is.
func (w *logWaits) ask(ctx context.Context, store sluice.Store) {
	if len(w.calls) == 0 {
		return
	}
	sluice.TakeEach(ctx, store, w.calls)
	for i, l := range w.all {
		if r := &w.calls[i].Receipts[0]; w.calls[i].Err == nil && !r.Fits && r.Origin != sluice.ByOnError {
			l.s.receipts[l.charge].Wait = r.Wait
		}
	}
}

// decideAgain makes the decisions what they are with these waits.
func (w *logWaits) decideAgain() {
	for _, l := range w.all {
		r := &l.d.Results[l.charge]
		l.s.charges[l.charge].Plan.DecideInto(l.s.charges[l.charge].Cost, &l.s.receipts[l.charge], &r.Decision)
		if lock := l.s.lockOf(l.charge); lock >= 0 {
			r.LockOut(l.s.charges[lock].Plan.Decide(l.s.charges[lock].Cost, l.s.receipts[lock]))
		}
	}
	for _, l := range w.all {
		l.d.RetryAfter = 0
		for i := range l.d.Results {
			l.d.weigh(&l.d.Results[i])
		}
	}
}
