// Package accuracy holds each algorithm to the limit that it stands for.
//
// "100 a minute" promises that no minute has more than 100, and whoever stays below that is never
// refused. Only a log of every request keeps that promise to the letter; the others trade it for memory,
// or, as a bucket does, mean something else by it. [Measure] says by how much, on given traffic.
package accuracy

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/sluicehq/sluice"
)

// Store takes at a time of the caller's, in microseconds since the Unix epoch, as memory.Store does.
type Store interface {
	TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
}

// Request is one request of a subject.
type Request struct {
	At  int64 // microseconds since the Unix epoch
	Key string
}

// Verdict is how one algorithm did at the limit.
type Verdict struct {
	Algorithm string `json:"algorithm"`
	Decisions int64  `json:"decisions"`
	Admitted  int64  `json:"admitted"`
	// FalseAllows were admitted although as many as the limit had been in the period before, and
	// FalseDenials refused although fewer had: both by what this algorithm has admitted itself.
	FalseAllows  int64 `json:"false_allows"`
	FalseDenials int64 `json:"false_denials"`
	// Worst is how many more than the limit it has admitted within the worst period.
	Worst int64 `json:"worst_overshoot"`
}

// Wrong is the share of decisions that were.
func (v Verdict) Wrong() float64 {
	if v.Decisions == 0 {
		return 0
	}
	return float64(v.FalseAllows+v.FalseDenials) / float64(v.Decisions)
}

// algorithm is one under test.
type algorithm struct {
	Verdict
	plan     *sluice.Plan
	store    Store
	admitted map[string]*history
}

// history is when the requests of a subject passed, in order, those of the last period.
type history struct {
	times []int64
	first int
}

// since returns how many passed later than t, and forgets those that did not pass later than gone.
func (h *history) since(t, gone int64) int64 {
	h.forget(gone)
	i, _ := slices.BinarySearch(h.times[h.first:], t+1)
	return int64(len(h.times) - h.first - i)
}

func (h *history) forget(t int64) {
	for h.first < len(h.times) && h.times[h.first] <= t {
		h.first++
	}
	if h.first > 64 && 2*h.first > len(h.times) {
		h.times = h.times[:copy(h.times, h.times[h.first:])]
		h.first = 0
	}
}

// sweepEvery is how many requests pass between two looks for subjects that are gone.
const sweepEvery = 1 << 16

// Measure puts requests, in the order of their time, to every algorithm at the same limit, and judges
// each by a list of what it has admitted, which has nothing in common with how it counts. What a queue
// holds counts when it lets it go. Memory is a word for each unit that a subject has used in the last
// period.
func Measure(ctx context.Context, limit sluice.Limit, requests iter.Seq[Request], newStore func() Store) ([]Verdict, error) {
	var all []*algorithm
	for _, a := range sluice.Algorithms() {
		l := limit
		l.Algorithm = a
		plan, err := sluice.NewPlan(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a, err)
		}
		all = append(all, &algorithm{Verdict: Verdict{Algorithm: a.String()}, plan: plan, store: newStore(), admitted: map[string]*history{}})
	}
	n := 0
	for r := range requests {
		if n++; n%sweepEvery == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for _, a := range all {
				a.sweep(r.At)
			}
		}
		for _, a := range all {
			if err := a.decide(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	verdicts := make([]Verdict, len(all))
	for i, a := range all {
		verdicts[i] = a.Verdict
	}
	return verdicts, nil
}

func (a *algorithm) decide(ctx context.Context, r Request) error {
	charges, receipts := [1]sluice.Charge{{Key: r.Key, Plan: a.plan, Cost: 1}}, [1]sluice.Receipt{}
	if err := a.store.TakeAt(ctx, r.At, charges[:], receipts[:]); err != nil {
		return err
	}
	d := a.plan.Decide(1, receipts[0])
	h := a.admitted[r.Key]
	if h == nil {
		h = new(history)
		a.admitted[r.Key] = h
	}
	passes := r.At
	if d.Allowed {
		passes += d.Delay.Microseconds()
	}
	period := a.plan.Limit.Period.Microseconds()
	count := h.since(passes-period, r.At-period)
	a.Decisions++
	fits := count < a.plan.Limit.Count
	if !d.Allowed {
		if fits {
			a.FalseDenials++
		}
		return nil
	}
	h.times = append(h.times, passes)
	a.Admitted++
	if !fits {
		a.FalseAllows++
		a.Worst = max(a.Worst, count+1-a.plan.Limit.Count)
	}
	return nil
}

// sweep forgets subjects of which nothing passed in the last period.
func (a *algorithm) sweep(now int64) {
	for key, h := range a.admitted {
		if h.forget(now - a.plan.Limit.Period.Microseconds()); h.first == len(h.times) {
			delete(a.admitted, key)
		}
	}
}
