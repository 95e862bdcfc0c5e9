package policy

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/fair"
)

// Share divides a limit among the tenants who share it. While there is room everybody gets what they ask
// for. While there is not, each tenant that is active gets what it asks for, or at least its part of
// the limit by weight, and what one leaves unused is divided among the others in the same way (max-min
// fairness). The limit itself is counted as that of any rule, and is never exceeded, whatever is known
// of tenants.
//
// A tenant is active who has asked for something, allowed or not, within the window: a second, or of a
// limit of less than 32 a second the time of 32 units. Four times in it the limit is divided by what was
// asked for. A newcomer has its part at once; shares have settled two windows after more is asked for
// than there is, or later where the burst is less than a quarter of what the limit gives in the window;
// and what somebody no longer uses is lent to the others within half a window. Who asks for more than
// its part leaves the end of the burst to those who do not: what the limit gives in a quarter of the
// window, at most half of the burst. A tenant can save up a quarter of the window of its part, and
// at least a request. A wait that is told is that by the shares as they are.
//
// A rule of several units a request divides units. Processes that share a store go by what tenants ask
// all of them for, if they are told: see [Engine.Demand]. While it is away each divides its share of the
// limit, if it has one, among those who ask it. Of a limit, 10,000 tenants are told apart at a
// time, and those beyond leave the reserve to these; of an engine 1000 limits, those with other values
// of the rule's Key, and those beyond are counted and not divided. A shadow counts for the limit what
// would have been let through.
type Share struct {
	// Of is the limit that is shared, such as "1000/second", of a token_bucket or gcra. Whose it is
	// the Key of the rule says.
	Of string `json:"of,omitempty"`
	// By are the parts that name the tenant: see Key of a [Rule]. Behind those of Key they are the key
	// of a subject, in overrides and elsewhere.
	By []string `json:"by,omitempty"`
	// Weights are those of tenants by their tier, from 1 to 1000. Others have 1.
	Weights map[string]int64 `json:"weights,omitempty"`
}

// isZero reports whether nothing is shared.
func (s *Share) isZero() bool { return s.Of == "" && len(s.By) == 0 && len(s.Weights) == 0 }

// sharing is how a rule shares its limit.
type sharing struct {
	owner   int // how many parts of the key say whose the limit is
	weights map[string]int64
	// How far a tenant may be ahead of its time, in nanoseconds: a quarter of the window, or as long
	// as the limit takes for its burst while there is enough for all.
	ahead, alone int64
	most         int64 // units of a request
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

// What the least and the largest of turnPlans hold, in nanoseconds.
const (
	minTurn = 250_000_000
	maxTurn = 1 << 50 // 13 days
)

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

// sharing compiles the share of a rule, whose key is complete.
func (c *compiler) sharing(p *Policy, r *Rule, out *rule, owner int) {
	before := len(c.problems)
	c.checkShare(r, out)
	switch {
	case r.Share.Of == "":
		c.fail("share", "write for example \"of: 1000/second\"", "the share has no of")
	case len(r.Share.By) == 0:
		c.fail("share", "write for example \"by: [header:X-Tenant]\"", "the share has no by, so nobody knows who shares the limit")
	}
	weights := c.weights(p, r)
	if len(c.problems) > before {
		return
	}
	limits := c.limits("share.of", []string{r.Share.Of}, out)
	if limits == nil {
		return
	}
	plan := limits[0].plan
	l := plan.Limit
	if l.MonthDay > 0 {
		c.fail("share.of", "share a limit such as 1000/day", "a month is not shared: what is not used early may all be used up late")
		return
	}
	if fair.Window(l.Count, l.Period) > fair.MaxWindow.Microseconds() {
		c.fail("share.of", "write key and limit in place of by and of, so that each tenant has one of its own", "%v is too little to be shared: it must be at least 32 a day", l)
		return
	}
	if fair.Units(l.Count, l.Period) > fair.MaxUnits {
		c.fail("share.of", "lower it", "%v is too much to be shared: it must be at most %d/second", l, fair.MaxUnits)
		return
	}
	fills := float64(l.Burst) / float64(l.Count) * float64(l.Period) // nanoseconds
	if fills > maxTurn/2 {
		c.fail("share.of", "lower the burst", "the burst of %v is that of more than 6 days, which is too long to be shared", l)
		return
	}
	out.own = resolved{limits: limits, from: "rule", source: r.Source}
	ahead := fair.Window(l.Count, l.Period) * 1000 / 4
	out.sharing = &sharing{
		owner: owner, weights: weights, most: max(out.cost.fixed, out.cost.max, 1),
		ahead: ahead, alone: max(ahead, int64(fills)),
	}
}

// checkShare complains about what has no meaning in a rule that shares its limit.
func (c *compiler) checkShare(r *Rule, out *rule) {
	for _, f := range []struct {
		name string
		set  bool
		hint string
	}{
		{"limit", r.Limit != "", "write it in the share, as \"of\""},
		{"limits", len(r.Limits) > 0, "give each a rule of its own"},
		{"in_flight", r.InFlight != 0, "give it a rule of its own"},
		{"tiers", len(r.Tiers) > 0, "give tiers their weights in the share, or a limit in another rule"},
		{"penalty", r.Penalty != Penalty{}, "give it to a rule that has a limit for each tenant"},
		{"count", !r.Count.isZero(), "give it to a rule with a limit: a share counts what is asked for"},
		{"cost", out.cost.isTold(), "write what a request costs, or the header of it that says so"},
	} {
		if f.set {
			c.fail(f.name, f.hint, "there are both share and %s", f.name)
		}
	}
	if a := out.algorithm; a != sluice.TokenBucket && a != sluice.GCRA {
		c.fail("algorithm", "use token_bucket or gcra", "a share has no %v: only of what flows steadily does everybody get a part all the time", a)
	}
}

// weights returns the weights of a share by the names of tiers as requests have them.
func (c *compiler) weights(p *Policy, r *Rule) map[string]int64 {
	if len(r.Share.Weights) == 0 {
		return nil
	}
	if p.tierFrom == nil && p.tierSubject == nil {
		c.fail("share.weights", "write for example \"tiers: {from: header:X-Plan}\" at the top of the document", "nothing says where a request's tier is to be found")
	}
	all := make(map[string]int64, len(r.Share.Weights))
	for _, name := range sortedKeys(r.Share.Weights) {
		field := fmt.Sprintf("share.weights[%q]", name)
		if !c.checkName(field, "tier", name) {
			continue
		}
		weight := r.Share.Weights[name]
		if weight < 1 || weight > fair.MaxWeight {
			c.fail(field, "write for example 1 for some and 5 for others", "the weight %d of %s must be from 1 to %d", weight, spelling.Quote(name), fair.MaxWeight)
		}
		tier := p.canonicalTier(name)
		if _, twice := all[tier]; twice {
			c.fail(field, "keep one of them", "no request can tell the tier %s from another of the rule", spelling.Quote(name))
		}
		all[tier] = weight
	}
	return all
}

// weight returns the weight of a tier.
func (f *sharing) weight(tier string) int64 {
	if w := f.weights[tier]; w > 0 {
		return w
	}
	return 1
}

// allocations are the parts of tenants of the limits that they share.
type allocations struct {
	silent
	shares *shares // of the engine
	list   []tenant
	first  int   // where the charges of their time begin
	asked  int64 // when these were added, in microseconds
}

// tenant is who shares the limit of a charge.
type tenant struct {
	rule   *rule
	charge int    // of the limit
	key    string // under which its time is counted
	weight int64
	terms  fair.Terms
	cap    *fair.Cap // nil: there are too many
}

func (a *allocations) reset() { a.list = a.list[:0] }

func (a *allocations) charge(_ *input, _ *charges, s *subject, first int) {
	t := extend(&a.list)
	t.rule, t.charge, t.key, t.weight = s.rule, first, s.key, s.weight
}

// beside adds the charges of the time of tenants, and has those who ask for more than their part leave the
// reserve to the others.
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

// ask asks the cap of the limit for the terms of the tenant. Unless it takes, it only looks at them.
func (t *tenant) ask(s *shares, limit *sluice.Charge, takes bool, now int64) {
	t.cap = s.of(limit.Key, t.rule.own.limits[0].plan, now)
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

// of returns the tenant who shares limit i, and which charge is that of its time; or nil.
func (a *allocations) of(i int) (t *tenant, turn int) {
	for n := range a.list {
		if a.list[n].charge == i {
			return &a.list[n], a.first + n
		}
	}
	return nil, 0
}

// join makes the result of a limit that is shared what it says to the tenant, whose time has a say.
func (a *allocations) join(c *charges, i int, r *Result) (closed bool) {
	if t, turn := a.of(i); t != nil {
		t.join(r, &c.receipts[i], &c.list[turn], &c.receipts[turn])
	}
	return false // or the limit is, too
}

func (a *allocations) spent(c *charges, i int, r *Result, limit *sluice.Receipt) {
	if t, turn := a.of(i); t != nil {
		charge, receipt := &c.list[turn], c.receipts[turn]
		spend(charge.Plan, &receipt, charge.Cost)
		t.join(r, limit, charge, &receipt)
	}
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

// takeShared takes from a tenant's time, and from the limit that it shares unless it takes all.
func (s *Subject) takeShared(ctx context.Context, cost int64) ([]Result, error) {
	r := s.rule
	l := r.own.limits[0]
	t := tenant{rule: r, key: s.charged, terms: fair.Terms{Each: 1, Line: l.plan.Capacity}}
	now := s.engine.shares.time(time.Time{})
	if t.cap = s.engine.shares.of(s.owner, l.plan, now); t.cap != nil {
		t.cap.Look(s.charged, max(s.weight, 1), 0, now, &t.terms)
	}
	charges := []sluice.Charge{
		{Key: s.charged, Plan: t.plan()},
		{Key: s.owner, Plan: l.plan, Cost: cost},
	}
	charges[0].Cost = t.takes(cost, charges[0].Plan)
	if cost == sluice.All {
		charges[0].Cost = cost
		charges[1].Cost = 0
	}
	receipts := make([]sluice.Receipt, len(charges))
	if err := s.engine.store.Take(ctx, charges, receipts); err != nil {
		return nil, err
	}
	if receipts[0].Origin.Degraded() || receipts[1].Origin.Degraded() {
		return nil, ErrStoreAway
	}
	result := Result{Rule: r.name, Name: l.name, Plan: l.plan, From: r.own.from, Source: r.own.source, Shadow: s.shadow, at: int32(r.index) + 1, Decision: l.plan.Decide(cost, receipts[1])}
	t.join(&result, &receipts[1], &charges[0], &receipts[0])
	return []Result{result}, nil
}

// taken tells the caps what their limits hold.
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

// maxCaps is how many limits that are shared an engine knows at a time.
const maxCaps = 1000

// divided is a store that divides limits by the number of instances while these cannot count together.
type divided interface{ Instances() int64 }

// shares are the caps of an engine by the keys of their limits.
type shares struct {
	divided divided // the store, if it is one

	// When the engine was made, in whole microseconds. From then on the monotonic clock counts, which is
	// half of reading the time, and ends no epoch when the wall's is set.
	made time.Time
	wall int64 // the same in microseconds since the Unix epoch

	known  atomic.Pointer[map[string]*fair.Cap]
	adding sync.Mutex
	full   int64 // when there was no room for another one, in microseconds
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

// lookAgain is after how many microseconds there may be room again.
const lookAgain = 1e6

// of returns the cap of a limit, or nil if there are too many.
func (s *shares) of(key string, p *sluice.Plan, now int64) *fair.Cap {
	known := s.known.Load()
	if known != nil {
		if c := (*known)[key]; c != nil && c.Same(p.Limit.Count, p.Limit.Period, p.Limit.Burst) {
			return c
		}
	}
	return s.add(key, p, now)
}

func (s *shares) add(key string, p *sluice.Plan, now int64) *fair.Cap {
	s.adding.Lock()
	defer s.adding.Unlock()
	if d := now - s.full; d >= 0 && d < lookAgain {
		return nil
	}
	next := make(map[string]*fair.Cap)
	if known := s.known.Load(); known != nil {
		if c := (*known)[key]; c != nil && c.Same(p.Limit.Count, p.Limit.Period, p.Limit.Burst) {
			return c
		}
		for k, c := range *known {
			if len(*known) < maxCaps || !c.Idle(now) {
				next[k] = c
			}
		}
	}
	if len(next) >= maxCaps {
		s.full = now
		return nil
	}
	c := fair.New(key, p.Limit.Count, p.Limit.Period, p.Limit.Burst, p.Unit)
	next[strings.Clone(key)] = c
	s.known.Store(&next)
	return c
}

// Demand returns what this engine's tenants of limits that are shared have asked for lately, for
// [Engine.HearDemand] of the other engines that count in the same store; nil if there was nothing. It
// is to be told to them some four times a second. It has at most 1000 tenants by hashes of their names,
// those who ask for the most, and the sum of the others: some 12 KiB.
func (e *Engine) Demand(now time.Time) []byte {
	known := e.shares.known.Load()
	if known == nil {
		return nil
	}
	var posts []fair.Post
	for _, c := range *known {
		if asked := c.Asked(e.shares.time(now)); len(asked) > 0 {
			posts = append(posts, fair.Post{Cap: c.ID, Asked: asked})
		}
	}
	if len(posts) == 0 {
		return nil
	}
	fair.Trim(posts)
	return fair.Append(nil, posts)
}

// HearDemand tells the engine all that the others have last said by [Engine.Demand]. It holds for a
// second: tenants of whom nothing is heard any more are divided by what they ask this engine for. What
// cannot be read, since it is of another version, is passed over.
func (e *Engine) HearDemand(now time.Time, said [][]byte) {
	known := e.shares.known.Load()
	if known == nil {
		return
	}
	all := make(map[uint64][]fair.Asked)
	for _, post := range said {
		_ = fair.Read(post, func(id uint64, a fair.Asked) { all[id] = append(all[id], a) })
	}
	for _, c := range *known {
		c.Hear(all[c.ID], e.shares.time(now))
	}
}
