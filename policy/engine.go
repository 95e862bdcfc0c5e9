package policy

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
)

// Engine decides about requests by a [Policy], counting in a store. It is safe for
// concurrent use.
type Engine struct {
	// Observe, if set, is called with every decision once it is made, on the goroutine that
	// asked, which waits for it. Set it before the first decision.
	Observe func(context.Context, *Observation)

	store  sluice.Store
	policy atomic.Pointer[Policy]
	pool   sync.Pool // of *scratch

	blocking sync.Mutex // whoever changes blocks
	blocks   atomic.Pointer[map[string]int64]
}

// retryUnavailable is when to ask again while the store is away.
const retryUnavailable = time.Second

// NewEngine returns an engine for p over store. A nil policy limits nothing. A nil store
// is a mistake in the wiring, and panics.
func NewEngine(store sluice.Store, p *Policy) *Engine {
	if store == nil {
		panic("policy: NewEngine needs a store: memory.New() is one")
	}
	e := &Engine{store: store}
	e.pool.New = func() any { return new(scratch) }
	e.Swap(p)
	return e
}

// Swap makes p the policy of all decisions that begin from now on. What has been
// counted stays: it belongs to the names of the rules and to the kind of their limits.
func (e *Engine) Swap(p *Policy) {
	if p == nil {
		p = new(Policy)
	}
	e.policy.Store(p)
}

// SwapOverrides replaces all overrides of the policy in force, and leaves the rest of it as it
// is: see [Policy.WithOverrides]. The next Swap brings the overrides of its own policy.
func (e *Engine) SwapOverrides(list []Override) error {
	return e.exchange(func(p *Policy) (*Policy, error) { return p.WithOverrides(list) })
}

// SwapSubjects does so with the subjects of tiers: see [Policy.WithSubjects].
func (e *Engine) SwapSubjects(list []TierSubject) error {
	return e.exchange(func(p *Policy) (*Policy, error) { return p.WithSubjects(list) })
}

// exchange replaces the policy in force with what change makes of it.
func (e *Engine) exchange(change func(*Policy) (*Policy, error)) error {
	for {
		p := e.policy.Load()
		next, err := change(p)
		if err != nil || e.policy.CompareAndSwap(p, next) {
			return err
		}
	}
}

// Policy returns the policy in force.
func (e *Engine) Policy() *Policy { return e.policy.Load() }

// TrustedProxies returns the trusted proxies of the policy in force, for uses other than
// decisions, which resolve their clients themselves. Do not change it.
func (e *Engine) TrustedProxies() []netip.Prefix { return e.policy.Load().trusted }

// Decide asks all the rules that apply to the request, and takes from all of them or
// from none. It has an answer whatever happens: while the store does not have one, each
// rule's on_error speaks for it.
func (e *Engine) Decide(ctx context.Context, req *Request) (d Decision) {
	e.DecideInto(ctx, req, &d)
	return d
}

// DecideInto is Decide with a decision that is used again, the memory of its results too.
func (e *Engine) DecideInto(ctx context.Context, req *Request, d *Decision) {
	d.reset()
	s := e.begin(req, d)
	e.decide(ctx, s, d)
	if len(s.barring)+len(s.blocked) > 0 {
		s.addBarring(d)
	}
	e.observe(ctx, s, d)
	e.end(s) // a panic of the store or the observer may take s with it
}

func (e *Engine) observe(ctx context.Context, s *scratch, d *Decision) {
	if e.Observe == nil {
		return
	}
	s.seen = Observation{Request: s.request, Decision: *d, scratch: s}
	e.Observe(ctx, &s.seen)
	s.seen = Observation{}
}

func (e *Engine) decide(ctx context.Context, s *scratch, d *Decision) {
	if s.exemptPreflight() || s.match() != nil {
		d.Allowed, d.Exempt = true, true
		return
	}
	if by := s.barred(); by != nil {
		s.refuseBarred(d, by)
		return
	}
	if s.ambiguous {
		d.Missing = ambiguousPath
	} else if e.refusedUnread(ctx, s, d) {
		return
	} else {
		s.chargeAll(d)
	}
	if d.Missing != "" {
		e.countMalformed(ctx, s, d)
		return
	}
	if s.refuseBlocked(d) {
		return
	}
	if len(s.charges) == 0 {
		d.Allowed = true
		return
	}
	if err := s.take(ctx, e.store); err != nil {
		s.withoutStore(d, err)
		return
	}
	s.decision(d, true)
}

// chargeAll makes the charges of the rules that apply, unless the request is refused for what
// it lacks.
func (s *scratch) chargeAll(d *Decision) {
	for i := range s.matches {
		if part, out := s.charge(&s.matches[i]); out == refused {
			d.Missing = s.lacking(part)
			return
		}
	}
}

// countMalformed charges a request that is refused for what it lacks to the rules that can
// count it all the same, so that such requests are not free: those that need no body, and
// where the path is in doubt no pattern. If these refuse it, that is the answer.
func (e *Engine) countMalformed(ctx context.Context, s *scratch, d *Decision) {
	missing := d.Missing
	d.reset()
	s.chargeMalformed()
	if s.refuseBlocked(d) {
		return
	}
	if len(s.charges) > 0 && s.take(ctx, e.store) == nil {
		s.decision(d, true)
	}
	if len(d.Results) == 0 || d.Allowed {
		d.reset()
		d.Missing = missing
	}
}

// chargeMalformed makes the charges of countMalformed.
func (s *scratch) chargeMalformed() {
	s.forget()
	for i := range s.matches {
		if m := &s.matches[i]; !m.rule.readsBody && (!s.ambiguous || m.pattern == nil) {
			s.charge(m)
		}
	}
}

// forget forgets the charges that were made.
func (s *scratch) forget() {
	s.keys.reset()
	s.charges, s.results, s.blocked = s.charges[:0], s.results[:0], s.blocked[:0]
	s.locks, s.offence = s.locks[:0], false
}

// refusedUnread reports whether the request is refused by rules that need not read its body,
// so that nobody who is over a limit makes us wait for a body, or work on it. It looks and
// takes nothing: what passes is decided again, whole. Requests that cost more than one unit
// are left to that, since only a charge says how long such a one has to wait.
func (e *Engine) refusedUnread(ctx context.Context, s *scratch, d *Decision) bool {
	if s.request.Body == nil || !slices.ContainsFunc(s.matches, func(m matched) bool { return m.rule.readsBody }) {
		return false
	}
	for i := range s.matches {
		if r := s.matches[i].rule; r.readsBody || r.shadow || s.cost(r) != 1 {
			continue
		}
		if _, out := s.charge(&s.matches[i]); out == refused {
			s.forget() // it is found again, with the others
			return false
		}
	}
	if len(s.charges)+len(s.blocked) == 0 {
		return false
	}
	if e.rehearse(ctx, s, d); !d.Allowed && !s.offence { // which has to be noted
		return true
	}
	d.reset()
	s.forget()
	return false
}

// Refund gives back the place in a queue of a request whose decision has a Delay, for a
// client that leaves before its turn has come: call it before the delay has passed. What
// other rules have counted stays, but for those that go by the outcome (see Settle), and so do
// places in queues that are shorter. The context may have ended. Of other decisions nothing is
// given back.
func (e *Engine) Refund(ctx context.Context, d Decision) {
	if len(d.taken) == 0 {
		return
	}
	e.Settle(ctx, d, notPassed)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_ = e.store.Take(ctx, d.taken, make([]sluice.Receipt, len(d.taken)))
}

// decision derives the answer from the receipts. They include the charges if those were
// taken, and not merely looked at.
func (s *scratch) decision(d *Decision, taken bool) {
	d.Allowed = sluice.Admitted(s.charges, s.receipts)
	d.Now = s.receipts[0].Now
	d.Results = s.results
	for i := range d.Results {
		r, receipt, cost := &d.Results[i], &s.receipts[i], s.charges[i].Cost
		if receipt.Fits && !taken {
			cost = 0
		}
		d.Degraded = d.Degraded || receipt.Origin.Degraded()
		lock := s.lockOf(i)
		if s.closed(i) || lock >= 0 && s.closed(lock) {
			d.close(r)
			continue
		}
		r.Plan.DecideInto(cost, receipt, &r.Decision)
		if lock >= 0 {
			r.LockOut(s.charges[lock].Plan.Decide(s.charges[lock].Cost, s.receipts[lock]))
		}
		if !d.Allowed {
			r.Delay = 0 // there is no turn to wait for
		}
		d.weigh(r)
	}
	if taken && d.Delay > 0 {
		d.taken = s.taken(d)
	}
	if taken && d.Allowed && s.policy.settles {
		d.unsettled = s.unsettled(d)
	}
}

// closed reports whether charge i does not fit because the shared store is away.
func (s *scratch) closed(i int) bool {
	return s.receipts[i].Origin == sluice.ByOnError && !s.receipts[i].Fits
}

// withoutStore is the answer when the store has none.
func (s *scratch) withoutStore(d *Decision, err error) {
	d.Allowed, d.Degraded, d.Err, d.Results = true, true, err, s.results
	for i := range d.Results {
		if s.charges[i].OnError == sluice.Deny {
			d.close(&d.Results[i])
		} else {
			d.Results[i].Decision = sluice.Decision{Allowed: true, Origin: sluice.ByOnError}
		}
	}
}

// close refuses for want of the store.
func (d *Decision) close(r *Result) {
	r.Decision = sluice.Decision{RetryAfter: retryUnavailable, Origin: sluice.ByOnError}
	if !r.Shadow {
		d.Allowed, d.Unavailable, d.Now = false, true, 0
	}
	d.weigh(r)
}

// weigh adds what r says to the decision. Shadows only report.
func (d *Decision) weigh(r *Result) {
	if r.Shadow {
		return
	}
	d.Delay = max(d.Delay, r.Delay)
	if !r.Allowed {
		d.RetryAfter = max(d.RetryAfter, r.RetryAfter)
	}
}
