package policy

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/fair"
)

// allocations is the counter of limits that tenants share.
type allocations struct {
	noCounter
	shares *shares // the caps of the engine
	list   []tenant
	first  int   // index of the first tenant's charge
	asked  int64 // time of these charges, in microseconds since the Unix epoch
}

// tenant is a tenant that shares a limit.
type tenant struct {
	rule   *rule
	charge int    // index of the limit's charge
	key    string // the key of the tenant's time
	weight int64
	terms  fair.Terms
	cap    *fair.Cap // nil if too many limits are shared
}

func (a *allocations) reset() { a.list = a.list[:0] }

func (a *allocations) charge(_ *input, _ *charges, s *subject, first int) {
	t := extend(&a.list)
	t.rule, t.charge, t.key, t.weight = s.rule, first, s.key, s.weight
}

// beside adds a charge of time for each tenant. Tenants above their allocation leave the reserve to the others.
func (a *allocations) beside(in *input, c *charges) {
	a.asked, a.first = a.shares.time(in.request.Time), len(c.list)
	for i := range a.list {
		t := &a.list[i]
		limit := &c.list[t.charge]
		t.ask(a.shares, limit, in.mode == Charge, a.asked)
		turn := extend(&c.list)
		limit = &c.list[t.charge]
		*turn = *limit
		turn.Key, turn.Plan = t.key, t.plan()
		if turn.Cost = t.takes(limit.Cost, turn.Plan); t.terms.Above && limit.Cost > 0 {
			turn.Cost = neverFits
		}
		if limit.Shadow && t.cap != nil && t.terms.Ahead(a.asked)+turn.Cost > turn.Plan.Capacity {
			limit.Cost = 0 // shadows are taken one by one, and the limit would count what its tenant is refused
		}
	}
}

// ask gets the terms of the tenant from the cap of the limit. With takes, the cap counts the request as demand.
func (t *tenant) ask(s *shares, limit *sluice.Charge, takes bool, now int64) {
	t.cap = s.Of(limit.Key, t.rule.own.limits[0].plan, now)
	if t.cap == nil {
		t.terms = fair.Terms{Each: 1, Line: limit.Plan.Capacity}
		return
	}
	units := max(limit.Cost, -limit.Cost)
	if takes {
		t.cap.Ask(t.key, t.weight, units, now, &t.terms)
	} else {
		t.cap.Look(t.key, t.weight, units, now, &t.terms)
	}
}

// neverFits is what a tenant's turn costs that is to leave the reserve to others: nothing is taken then.
const neverFits = maxTurn + 1

// plan returns the one of turnPlans for a tenant: it holds the largest request, and what is left of
// a unit.
func (t *tenant) plan() *sluice.Plan {
	ahead := t.rule.sharing.ahead
	if !t.terms.Short {
		ahead = t.rule.sharing.alone
	}
	each := uint64(t.terms.Each)
	if t.cap != nil {
		each *= uint64(t.cap.Parts()) // what a unit takes of one
	}
	hi, lo := bits.Mul64(uint64(t.rule.sharing.most+1), each)
	if hi > 0 || lo > maxTurn {
		return turnPlan(maxTurn)
	}
	return turnPlan(max(ahead, int64(lo)))
}

// takes returns how much of a tenant's time units take, at most all that a plan holds.
func (t *tenant) takes(units int64, p *sluice.Plan) int64 {
	switch each := t.terms.Each; {
	case units == 1 && each <= p.Capacity:
		return each
	case units > p.Capacity/each:
		return p.Capacity
	case units < -p.Capacity/each:
		return -p.Capacity
	default:
		return units * each
	}
}

// of returns the tenant that shares limit i, and the index of its charge of time, or nil.
func (a *allocations) of(i int) (t *tenant, turn int) {
	for n := range a.list {
		if a.list[n].charge == i {
			return &a.list[n], a.first + n
		}
	}
	return nil, 0
}

// join limits the result of a shared limit by the tenant's time.
func (a *allocations) join(c *charges, i int, r *Result) (closed bool) {
	if t, turn := a.of(i); t != nil {
		t.join(r, &c.receipts[i], &c.list[turn], &c.receipts[turn])
	}
	return false // the limit's own charge is closed, too
}

func (a *allocations) preview(_ *input, c *charges) {
	for n := range a.list {
		c.wouldFit(a.first + n)
	}
}

// join makes the result of the limit that of both, by the charge and receipt of the tenant's time.
func (t *tenant) join(r *Result, limit *sluice.Receipt, c *sluice.Charge, receipt *sluice.Receipt) {
	if receipt.Origin == sluice.ByOnError {
		return // it is that of the limit, too
	}
	left := max(0, c.Plan.Capacity-receipt.Used)
	units, wait := left/t.terms.Each, time.Duration(0)
	// What remains of the limit is all but what is used, rounded up.
	if below := max(0, t.terms.Line-r.Plan.Capacity+r.Remaining); units > below {
		if !t.terms.Over {
			below = max(below, t.terms.Within())
		}
		units = min(units, below)
	}
	need := r.Cost // what the wait is for
	if receipt.Fits {
		need = 1
	}
	if !receipt.Fits || units == 0 {
		wait = inMicroseconds(t.takes(need, c.Plan) - left)
		if t.terms.Over && t.cap != nil {
			wait = max(wait, t.until(r.Plan, limit, need)*time.Duration(t.cap.Parts()))
		}
		if c.Cost == neverFits { // though there may be room by now
			wait = max(wait, time.Millisecond)
		}
	}
	switch {
	case r.Allowed && !receipt.Fits:
		r.RetryAfter = wait
	case r.Allowed == receipt.Fits: // else it waits for the limit alone
		r.RetryAfter = max(r.RetryAfter, wait)
	}
	r.Allowed = r.Allowed && receipt.Fits
	r.Remaining = min(r.Remaining, units)
	r.ResetAfter = max(r.ResetAfter, inMicroseconds(receipt.Used))
}

// inMicroseconds returns nanoseconds, rounded up to microseconds, of which waits are.
func inMicroseconds(n int64) time.Duration { return time.Duration(max(0, n+999) / 1000 * 1000) }

// until returns how long until there is room in the bucket of the limit for so many.
func (t *tenant) until(p *sluice.Plan, r *sluice.Receipt, units int64) time.Duration {
	above := r.Used + p.Level(units) - p.Level(t.terms.Line)
	return time.Duration(max(0, (above+p.Drain-1)/p.Drain)*p.Tick) * time.Microsecond
}

// administer adds the charge of the tenant's time. A reset leaves the limit as it is, which is not the tenant's alone.
func (a *allocations) administer(s *Subject, c *charges, cost int64) {
	limit := &c.list[0]
	a.asked, a.first = a.shares.time(time.Time{}), len(c.list)
	t := extend(&a.list)
	*t = tenant{rule: s.rule, key: s.charged, weight: max(s.weight, 1), terms: fair.Terms{Each: 1, Line: limit.Plan.Capacity}}
	if t.cap = a.shares.Of(s.owner, limit.Plan, a.asked); t.cap != nil {
		t.cap.Look(t.key, t.weight, 0, a.asked, &t.terms)
	}
	turn := *limit
	turn.Plan, limit.Key = t.plan(), s.owner
	if turn.Cost = t.takes(cost, turn.Plan); cost == sluice.All {
		turn.Cost, limit.Cost = cost, 0
	}
	c.list = append(c.list, turn)
}

// merge adds up the time of a tenant.
func (a *allocations) merge(_ *together, sum, c *sluice.Charge) bool {
	if !isTurn(c.Plan) {
		return false
	}
	sum.Cost = addUp(sum.Cost, c.Cost)
	sum.Plan = largerTurn(sum.Plan, c.Plan, sum.Cost)
	return true
}

// taken reports the levels of the limits to their caps.
func (a *allocations) taken(_ *input, c *charges) {
	for i := range a.list {
		t := &a.list[i]
		if r := &c.receipts[t.charge]; t.cap != nil && r.Origin != sluice.ByOnError {
			parts := int64(1)
			if r.Origin == sluice.ByLocalShare && a.shares.divided != nil {
				parts = max(1, a.shares.divided.Instances())
			}
			t.cap.Note(r.Used, a.asked, parts)
			if turn := a.first + i; c.list[turn].Shadow {
				t.terms.NoteAhead(c.receipts[turn].Used, a.asked)
			}
		}
	}
}

// explain returns the tenant's allocation in words.
func (a *allocations) explain(_ *charges, i int) string {
	t, _ := a.of(i)
	switch {
	case t == nil:
		return ""
	case t.cap == nil:
		return fmt.Sprintf("weight %d: too many limits are shared at a time to divide this one", t.weight)
	}
	limit := t.rule.sharedLimit()
	whole := limit.Whole()
	p := t.cap.Part(t.key, t.weight, a.asked)
	now := rateText(1e9 / float64(p.Each))
	switch {
	case p.Short:
		return fmt.Sprintf("weight %d of %d that are active, which ask for more than %s: %s at present", t.weight, p.Weights, whole, now)
	case p.Weights == t.weight:
		return fmt.Sprintf("weight %d, and nobody else is active: all of %s", t.weight, whole)
	}
	return fmt.Sprintf("weight %d of %d that are active: what it asks for, since %s is enough for all, and at least %s", t.weight, p.Weights, whole, now)
}

// turnPlans count the time of tenants, in nanoseconds: a unit takes one as long as lies between those of
// its part, and it can be ahead of its time by the plan's size, which doubles from one to the next. They
// count alike, so that which one is asked may change with the part; but what a tenant is ahead by more
// than a smaller one holds is forgotten there, so that it must not go by the single request.
var turnPlans = func() (all []*sluice.Plan) {
	for size := int64(minTurn); size <= maxTurn; size *= 2 {
		p, err := sluice.NewPlan(sluice.Limit{Count: int64(time.Second), Period: time.Second, Burst: size, Algorithm: sluice.GCRA})
		if err == nil { // a smaller one forgets what a larger one holds
			p, err = p.WithMost(size)
		}
		if err != nil {
			panic(err) // the limits are constants
		}
		all = append(all, p)
	}
	return all
}()

// turnPlan returns the first of turnPlans that can hold so long.
func turnPlan(holds int64) *sluice.Plan {
	i := 0
	if holds > minTurn {
		i = bits.Len64(uint64((holds - 1) / minTurn))
	}
	return turnPlans[min(i, len(turnPlans)-1)]
}

// largerTurn returns the larger of two of them, or a larger one that can hold so long.
func largerTurn(a, b *sluice.Plan, holds int64) *sluice.Plan {
	return turnPlan(max(a.Capacity, b.Capacity, holds))
}

// isTurn reports whether a plan is one of turnPlans.
func isTurn(p *sluice.Plan) bool { return p.Fingerprint == turnPlans[0].Fingerprint }

// divided is a store that divides limits by the number of instances while these cannot count together.
type divided interface{ Instances() int64 }

// shares are the caps of an engine by the keys of their limits.
type shares struct {
	divided divided // the store, if it is one

	// When the engine was made, in whole microseconds. From then on the monotonic clock counts, which is
	// half of reading the time, and ends no epoch when the wall's is set.
	made time.Time
	wall int64 // the same in microseconds since the Unix epoch

	fair.Caps
}

func (s *shares) begin(now time.Time) {
	s.wall = now.UnixMicro()
	s.made = now.Add(-time.Duration(now.Nanosecond() % 1000))
}

// time returns a time, or now if it is zero, in microseconds since the Unix epoch.
func (s *shares) time(t time.Time) int64 {
	since := time.Duration(0)
	if t.IsZero() {
		since = time.Since(s.made)
	} else {
		since = t.Sub(s.made)
	}
	return s.wall + since.Microseconds()
}

// Demand returns what the tenants of shared limits asked this engine for in the last seconds, for [Engine.HearDemand]
// of the other engines over the same store, or nil if they asked for nothing. Send it about four times a second. It has
// the 1000 tenants that asked for the most, by hashes of their names, and the sum of the others: some 12 KiB.
func (e *Engine) Demand(now time.Time) []byte {
	return e.shares.Caps.Demand(e.shares.time(now))
}

// HearDemand replaces the demand of the other engines by their latest outputs of [Engine.Demand]. It is valid for a
// second; after that, limits are divided by the tenants' demand on this engine alone. Outputs of another version
// are ignored.
func (e *Engine) HearDemand(now time.Time, said [][]byte) {
	e.shares.Caps.Hear(e.shares.time(now), said)
}
