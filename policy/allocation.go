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
	shares *shares // the shared limits of the engine
	list   []tenant
	first  int   // index of the charge for the first tenant's own time: see turnPlans
	asked  int64 // the time of the charges, in microseconds since the Unix epoch
}

// tenant is a tenant that shares a limit.
type tenant struct {
	rule   *rule
	charge int    // index of the limit's charge
	key    string // the key of the charge for the tenant's own time
	weight int64
	terms  fair.Terms
	cap    *fair.Cap // nil if too many limits are shared
}

func (a *allocations) reset() { a.list = a.list[:0] }

func (a *allocations) charge(_ *input, _ *charges, s *subject, first int) {
	t := extend(&a.list)
	t.rule, t.charge, t.key, t.weight = s.rule, first, s.key, s.weight
}

// beside adds a second charge for each tenant, which counts the tenant's own time: see turnPlans. If a tenant requests
// more than its allocation, and the request would use the reserve of the limit (see [Share]), this charge never fits.
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
			limit.Cost = 0 // the charges of a shadow are taken one by one, so the limit would count requests that the tenant's charge denies
		}
	}
}

// ask gets the terms of the tenant from the cap of the limit. If takes is true, the cap counts the request as
// demand.
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

// neverFits is the cost of the charge for a tenant's own time if the tenant must not use the reserve. It exceeds the
// capacity of all turnPlans, so the store takes nothing.
const neverFits = maxTurn + 1

// plan returns one of turnPlans for the tenant. The plan has room for the time of the largest request and one more
// unit.
func (t *tenant) plan() *sluice.Plan {
	ahead := t.rule.sharing.ahead
	if !t.terms.Short {
		ahead = t.rule.sharing.alone
	}
	each := uint64(t.terms.Each)
	if t.cap != nil {
		each *= uint64(t.cap.Parts()) // the time of a unit while the limit is divided among instances
	}
	hi, lo := bits.Mul64(uint64(t.rule.sharing.most+1), each)
	if hi > 0 || lo > maxTurn {
		return turnPlan(maxTurn)
	}
	return turnPlan(max(ahead, int64(lo)))
}

// takes returns the amount of the tenant's time that a number of units takes, at most the capacity of the plan.
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

// tenant returns the tenant that shares limit i, and the index of the charge for the tenant's time. t is nil if limit i
// is not shared.
func (a *allocations) tenant(i int) (t *tenant, turn int) {
	for n := range a.list {
		if a.list[n].charge == i {
			return &a.list[n], a.first + n
		}
	}
	return nil, 0
}

// join limits the result of a shared limit by the tenant's time.
func (a *allocations) join(c *charges, i int, r *Result) (closed bool) {
	if t, turn := a.tenant(i); t != nil {
		t.join(r, &c.receipts[i], &c.list[turn], &c.receipts[turn])
	}
	return false // if on_error denies the tenant's charge, it denies the charge of the limit, too
}

func (a *allocations) preview(_ *input, c *charges) {
	for n := range a.list {
		c.wouldFit(a.first + n)
	}
}

// join combines the result of the limit with the charge and receipt of the tenant's time.
func (t *tenant) join(r *Result, limit *sluice.Receipt, c *sluice.Charge, receipt *sluice.Receipt) {
	if receipt.Origin == sluice.ByOnError {
		return // on_error has decided about the limit, too
	}
	left := max(0, c.Plan.Capacity-receipt.Used)
	units, wait := left/t.terms.Each, time.Duration(0)
	// Remaining is the capacity less the used units, which are rounded up.
	if below := max(0, t.terms.Line-r.Plan.Capacity+r.Remaining); units > below {
		if !t.terms.Over {
			below = max(below, t.terms.Within())
		}
		units = min(units, below)
	}
	need := r.Cost // the number of units to wait for
	if receipt.Fits {
		need = 1
	}
	if !receipt.Fits || units == 0 {
		wait = inMicroseconds(t.takes(need, c.Plan) - left)
		if t.terms.Over && t.cap != nil {
			wait = max(wait, t.until(r.Plan, limit, need)*time.Duration(t.cap.Parts()))
		}
		if c.Cost == neverFits { // the reserve denied the request, even if there is room by now
			wait = max(wait, time.Millisecond)
		}
	}
	switch {
	case r.Allowed && !receipt.Fits:
		r.RetryAfter = wait
	case r.Allowed == receipt.Fits: // otherwise only the limit denies
		r.RetryAfter = max(r.RetryAfter, wait)
	}
	r.Allowed = r.Allowed && receipt.Fits
	r.Remaining = min(r.Remaining, units)
	r.ResetAfter = max(r.ResetAfter, inMicroseconds(receipt.Used))
}

// inMicroseconds rounds n nanoseconds up to microseconds, the unit of all waits.
func inMicroseconds(n int64) time.Duration { return time.Duration(max(0, n+999) / 1000 * 1000) }

// until returns how long it takes until the units fit into the bucket of the limit without the use of its reserve.
func (t *tenant) until(p *sluice.Plan, r *sluice.Receipt, units int64) time.Duration {
	above := r.Used + p.Level(units) - p.Level(t.terms.Line)
	return time.Duration(max(0, (above+p.Drain-1)/p.Drain)*p.Tick) * time.Microsecond
}

// administer adds the charge of the tenant's time. A reset leaves the limit as it is, because other tenants share
// it.
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

// merge adds up the time that the parts of a request take from a tenant.
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
	t, _ := a.tenant(i)
	switch {
	case t == nil:
		return ""
	case t.cap == nil:
		return fmt.Sprintf("weight %d: too many shared limits are active to divide this one", t.weight)
	}
	limit := t.rule.sharedLimit()
	whole := limit.Whole()
	p := t.cap.Part(t.key, t.weight, a.asked)
	now := rateText(1e9 / float64(p.Each))
	switch {
	case p.Short:
		return fmt.Sprintf("weight %d, of %d in all active tenants: demand is above %s, so %s at present", t.weight, p.Weights, whole, now)
	case p.Weights == t.weight:
		return fmt.Sprintf("weight %d, the only active tenant: all of %s", t.weight, whole)
	}
	return fmt.Sprintf("weight %d, of %d in all active tenants: gets all that it requests, because %s is enough for all; never less than %s", t.weight, p.Weights, whole, now)
}

// turnPlans count a tenant's own time, in nanoseconds. A unit takes the time between two units at the rate of the
// tenant's allocation. A tenant can use units earlier than at this rate, at most by the plan's capacity, which doubles
// from one plan to the next. All plans count alike, so a tenant can change plans when its allocation changes. But a
// smaller plan forgets any lead beyond its capacity, so the choice must not depend on a single request.
var turnPlans = func() (all []*sluice.Plan) {
	for size := int64(minTurn); size <= maxTurn; size *= 2 {
		p, err := sluice.NewPlan(sluice.Limit{Count: int64(time.Second), Period: time.Second, Burst: size, Algorithm: sluice.GCRA})
		if err == nil { // WithMost makes a smaller plan forget what only a larger one can hold
			p, err = p.WithMost(size)
		}
		if err != nil {
			panic(err) // the limits are constants
		}
		all = append(all, p)
	}
	return all
}()

// turnPlan returns the smallest of turnPlans that can hold the given number of nanoseconds.
func turnPlan(holds int64) *sluice.Plan {
	i := 0
	if holds > minTurn {
		i = bits.Len64(uint64((holds - 1) / minTurn))
	}
	return turnPlans[min(i, len(turnPlans)-1)]
}

// largerTurn returns the smallest of turnPlans that is at least as large as a and b, and can hold the given number
// of nanoseconds.
func largerTurn(a, b *sluice.Plan, holds int64) *sluice.Plan {
	return turnPlan(max(a.Capacity, b.Capacity, holds))
}

// isTurn reports whether a plan is one of turnPlans.
func isTurn(p *sluice.Plan) bool { return p.Fingerprint == turnPlans[0].Fingerprint }

// divided is a store that divides limits by the number of instances while the instances cannot count together.
type divided interface{ Instances() int64 }

// shares has the [fair.Cap] of each shared limit of an engine, by the key of the limit.
type shares struct {
	divided divided // the store, or nil if it does not divide limits

	// made is when the engine was made, in whole microseconds. Later times are measured from it by the monotonic
	// clock: reading only this clock takes half as long as reading both, and a change of the wall clock has no
	// effect.
	made time.Time
	wall int64 // made in microseconds since the Unix epoch

	fair.Caps
}

func (s *shares) begin(now time.Time) {
	s.wall = now.UnixMicro()
	s.made = now.Add(-time.Duration(now.Nanosecond() % 1000))
}

// time returns t, or the present time if t is zero, in microseconds since the Unix epoch.
func (s *shares) time(t time.Time) int64 {
	since := time.Duration(0)
	if t.IsZero() {
		since = time.Since(s.made)
	} else {
		since = t.Sub(s.made)
	}
	return s.wall + since.Microseconds()
}

// Demand returns how much the tenants of each shared limit (see [Share]) requested from this engine in the last window,
// or nil if they requested nothing. Pass the result to [Engine.ReceiveDemand] of the other engines over the same store,
// about four times a second. The result lists the 1000 tenants with the highest demand, by hashes of their keys, and
// the sum of all other tenants of each limit. It takes about 12 bytes for each tenant and each sum, and 10 bytes for
// each limit.
func (e *Engine) Demand(now time.Time) []byte {
	return e.shares.Caps.Demand(e.shares.time(now))
}

// ReceiveDemand replaces the demand of the other engines by their latest outputs of [Engine.Demand]. The demand is
// valid for a second; after that, limits are divided in line with the tenants' demand on this engine alone. Outputs
// of another version are ignored.
func (e *Engine) ReceiveDemand(now time.Time, demands [][]byte) {
	e.shares.Caps.Receive(e.shares.time(now), demands)
}
