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
	observers []func(context.Context, *Observation)
	settled   []func(context.Context, *Settlement)
	untimed   bool
	named     bool // refused requests get an ID

	store   sluice.Store
	holder  *sluice.Holder // of places in flight
	shares  shares
	turns   sluice.Turns // in queues, that requests have given up
	awaited awaited
	shadow  bool // see ShadowAll
	policy  atomic.Pointer[Policy]
	pool    sync.Pool // of *scratch
	lists   sync.Pool // of *each

	blocking sync.Mutex // whoever changes blocks
	blocks   atomic.Pointer[map[string]int64]
}

// retryUnavailable is when to ask again while the store is away.
const retryUnavailable = time.Second

// NewEngine returns an engine for p over store. A nil policy limits nothing. A nil store is a
// programming error, and panics.
func NewEngine(store sluice.Store, p *Policy) *Engine {
	if store == nil {
		panic("policy: NewEngine needs a store: memory.New() is one")
	}
	e := &Engine{store: store, holder: sluice.NewHolder(store)}
	e.shares.begin(time.Now())
	e.pool.New = func() any { return new(scratch) }
	e.lists.New = func() any { return new(each) }
	e.shares.divided, _ = store.(divided)
	e.Swap(p)
	return e
}

// Observe registers f to be called with every decision once it is made, on the goroutine that asked,
// which waits for f to return. Several functions are called in the order in which they were
// registered. Call Observe before the first decision.
func (e *Engine) Observe(f func(context.Context, *Observation)) {
	e.observers = append(e.observers, f)
}

// Untimed leaves out when a decision has begun and how long it took: Began and Took of an [Observation] are
// zero. It is for replays, in which reading the clock is a good part of a decision. Call it before the first
// decision.
func (e *Engine) Untimed() { e.untimed = true }

// watched reports whether anybody looks at decisions.
func (e *Engine) watched() bool { return len(e.observers) > 0 }

// timed reports whether somebody is told how long they take.
func (e *Engine) timed() bool { return e.watched() && !e.untimed }

// began returns when a decision begins, if anybody wants to know.
func (e *Engine) began() (t time.Time) {
	if e.timed() {
		t = time.Now()
	}
	return t
}

// took returns when that was, and how long ago.
func (e *Engine) took(began time.Time) (at timing) {
	if e.timed() {
		at = timing{began, time.Since(began)}
	}
	return at
}

// timing is when a decision began, and how long it took.
type timing struct {
	began time.Time
	took  time.Duration
}

// Swap makes p the policy of all decisions that begin from now on. Counts stay: they belong to the
// names of the rules and to the kind of their limits. A policy whose document says so is a shadow
// until the end given there: see [Policy.ShadowUntil].
func (e *Engine) Swap(p *Policy) {
	if p == nil {
		p = new(Policy)
	}
	e.policy.Store(e.dressed(p))
}

// SwapOverrides replaces all overrides of the policy in force, and leaves the rest of it as it
// is: see [Policy.WithOverrides]. The next Swap brings the overrides of its own policy.
func (e *Engine) SwapOverrides(list []Override) error {
	return e.exchange(func(p *Policy) (*Policy, error) { return p.WithOverrides(list) })
}

// SwapSubjects replaces the subjects of tiers in the same way: see [Policy.WithSubjects].
func (e *Engine) SwapSubjects(list []TierSubject) error {
	return e.exchange(func(p *Policy) (*Policy, error) { return p.WithSubjects(list) })
}

// exchange replaces the policy in force with what change makes of it.
func (e *Engine) exchange(change func(*Policy) (*Policy, error)) error {
	for {
		p := e.policy.Load()
		written := p
		if p.beneath != nil {
			written = p.beneath
		}
		next, err := change(written)
		if err != nil || e.policy.CompareAndSwap(p, e.dressed(next)) {
			return err
		}
	}
}

// Policy returns the policy in force, as a shadow while it is one.
func (e *Engine) Policy() *Policy { return e.current() }

// TrustedProxies returns the trusted proxies of the policy in force, for uses other than
// decisions, which resolve their clients themselves. Do not change it.
func (e *Engine) TrustedProxies() []netip.Prefix { return e.current().trusted }

// Decide asks all the rules that apply to the request, and takes from all of them or from none. It
// always has an answer: while the store gives none, each rule's on_error decides.
func (e *Engine) Decide(ctx context.Context, req *Request) (d Decision) {
	e.DecideInto(ctx, req, &d)
	return d
}

// DecideInto is Decide that overwrites d, and reuses the memory of its results.
func (e *Engine) DecideInto(ctx context.Context, req *Request, d *Decision) {
	d.reset()
	began := e.began()
	s := e.begin(req, d)
	e.decide(ctx, s, d)
	e.finish(ctx, s, d, e.took(began))
}

// finish tells of a decision that is made.
func (e *Engine) finish(ctx context.Context, s *scratch, d *Decision, at timing) {
	if len(s.barring)+len(s.blocked) > 0 {
		s.addBarring(d)
	}
	if s.flying && d.Degraded {
		s.giveBackUnsure(d)
	}
	e.observe(ctx, s, d, at)
	e.end(s) // a panic of the store or the observer may take s with it
}

func (e *Engine) observe(ctx context.Context, s *scratch, d *Decision, at timing) {
	if !e.watched() {
		return
	}
	if e.named && !d.Allowed {
		d.name(s.request)
	}
	s.seen = Observation{Request: s.request, Decision: *d, Began: at.began, Took: at.took, scratch: s}
	for _, f := range e.observers {
		f(ctx, &s.seen)
	}
}

func (e *Engine) decide(ctx context.Context, s *scratch, d *Decision) {
	if e.prepare(ctx, s, d) {
		s.conclude(d, s.take(ctx, e))
	}
}

// prepare makes the charges of the request, and reports whether the store is to be asked for them.
// If not, d is the decision; if so, d.Missing may say what the request is refused for all the same.
func (e *Engine) prepare(ctx context.Context, s *scratch, d *Decision) bool {
	if s.request.Subject != nil {
		if !s.chargeSubject(d) {
			return false
		}
	} else if !e.chargeRules(ctx, s, d) {
		return false
	}
	if s.refuseBlocked(d) {
		d.Missing = ""
		return false
	}
	if len(s.charges) == 0 {
		d.Allowed = d.Missing == ""
		return false
	}
	return !s.looksForPlaces() || d.Missing != "" || !e.refusedInFlight(ctx, s, d)
}

// chargeRules makes the charges of the rules that apply, unless the request is decided by then.
func (e *Engine) chargeRules(ctx context.Context, s *scratch, d *Decision) bool {
	if s.exemptPreflight() {
		d.Allowed, d.Exempt = true, true
		return false
	}
	if s.exempting = s.match(); s.exempting != nil {
		d.Allowed, d.Exempt = true, true
		return false
	}
	if by := s.barred(); by != nil {
		s.refuseBarred(d, by)
		return false
	}
	if s.ambiguous {
		d.Missing = ambiguousPath
	} else if e.refusedUnread(ctx, s, d) {
		return false
	} else {
		s.chargeAll(d)
	}
	if d.Missing != "" {
		s.chargeMalformed()
	}
	return true
}

// conclude makes the decision from what the store has said about the charges.
func (s *scratch) conclude(d *Decision, err error) {
	missing := d.Missing
	d.Missing = ""
	if s.mode == Peek {
		s.recost()
	}
	switch {
	case err == nil && s.mode == Peek:
		s.foretell()
		s.foretellRepeat()
		s.decision(d)
	case err == nil:
		s.decision(d)
	case missing == "":
		s.withoutStore(d, err)
	}
	if missing != "" && (err != nil || d.Allowed) {
		d.reset()
		d.Missing = missing
	}
}

// chargeAll makes the charges of the rules that apply, unless the request is refused for what
// it lacks.
func (s *scratch) chargeAll(d *Decision) {
	for i := range s.matches {
		if part, out := s.charge(&s.matches[i]); out == refused {
			d.Missing = lacking(part.String(), s.x.Garbled)
			return
		}
	}
}

// chargeMalformed makes the charges of a request that is refused for what it lacks: of the rules
// that can count it all the same, so that such requests are not free. Those need no body, and where
// the path is in doubt no pattern. If these refuse it, that is the answer.
func (s *scratch) chargeMalformed() {
	s.forget()
	if s.mode == GiveBack {
		return
	}
	for i := range s.matches {
		if m := &s.matches[i]; !m.rule.readsBody && (!s.ambiguous || m.pattern == nil) {
			s.charge(m)
		}
	}
	s.leavePlaces()
}

// forget drops the charges made so far.
func (s *scratch) forget() {
	s.keys.Reset()
	s.charges, s.results, s.blocked = s.charges[:0], s.results[:0], s.blocked[:0]
	s.locks, s.tenants, s.offence, s.flying = s.locks[:0], s.tenants[:0], false, false
}

// looksFirst reports whether rules are asked before the body is read for others. An ID that has
// passed before passes whatever these say, and what is given back is not refused.
func (s *scratch) looksFirst() bool {
	return s.policy.readsBody && s.request.Body != nil && s.request.ID == "" && s.mode <= Peek &&
		slices.ContainsFunc(s.matches, func(m matched) bool { return m.rule.readsBody })
}

// refusedUnread reports whether the request is refused by rules that need not read its body,
// so that nobody who is over a limit makes us wait for a body, or work on it. It looks and
// takes nothing: what passes is decided again, whole. Rules that take more than one unit are left
// to that.
func (e *Engine) refusedUnread(ctx context.Context, s *scratch, d *Decision) bool {
	if !s.looksFirst() {
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

// Refund has a request leave the queue whose decision has a Delay, for a client that leaves before its
// turn has come: call it before the delay has passed. Another request that this engine decides about
// may have the turn: see [Engine.LeaveQueue]. What other rules have counted stays, but for those that go
// by the outcome (see Settle). Its places in flight are released. The context may have ended. Of
// other decisions nothing is given back.
func (e *Engine) Refund(ctx context.Context, d Decision) {
	e.Release(ctx, d)
	if e.refund(ctx, d.queued) {
		e.Settle(ctx, d, notPassed)
	}
}

// decision derives the answer from the receipts.
func (s *scratch) decision(d *Decision) {
	d.Repeated = s.repeated
	d.Allowed = sluice.Admitted(s.charges, s.receipts)
	d.Now = s.receipts[0].Now
	d.Results = s.results
	if len(s.tenants) > 0 {
		s.noteShares()
	}
	for i := range d.Results {
		r, receipt, cost := &d.Results[i], &s.receipts[i], s.charges[i].Cost
		if receipt.Fits && s.mode == Peek && !(receipt.Prev > 0 && isQueue(r.Plan)) { // see Turns.Offer
			cost = 0
		}
		d.Degraded = d.Degraded || receipt.Origin.Degraded()
		lock := s.lockOf(i)
		if s.closed(i) || lock >= 0 && s.closed(lock) {
			d.close(r)
			continue
		}
		s.charges[i].Plan.DecideInto(cost, receipt, &r.Decision)
		if len(s.tenants) > 0 {
			s.joinTurn(i, r)
		}
		if lock >= 0 {
			r.LockOut(s.charges[lock].Plan.Decide(s.charges[lock].Cost, s.receipts[lock]))
		}
		if !d.Allowed || s.mode == GiveBack {
			r.Delay, r.Early = 0, 0 // there is no turn to wait for
		}
		d.weigh(r)
	}
	if s.mode == Charge && !d.Repeated {
		s.keepOpen(d)
	}
}

// keepOpen notes what can still be given back of what was taken.
func (s *scratch) keepOpen(d *Decision) {
	if d.Delay > 0 {
		d.queued = s.queued()
	}
	if d.Allowed && s.flying {
		s.hold(d)
	}
	if d.Allowed && s.policy.settles {
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

// close refuses because the store is away.
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
