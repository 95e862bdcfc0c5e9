package policy

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/loads"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/underway"
)

// Engine decides about requests by a [Policy], counting in a store. It is safe for
// concurrent use.
type Engine struct {
	observers []func(context.Context, *Observation)
	settled   []func(context.Context, *Settlement)
	outcomes  []func(id uint64, o *Outcome)
	untimed   bool
	timed     bool // observers get the durations
	named     bool // denied requests get an ID

	store    sluice.Store
	holder   *sluice.Holder     // renews permits in flight
	loads    loads.Limits       // automatic limits of requests under way
	shares   shares             // caps of limits that tenants share
	turns    sluice.Turns       // turns in queues that requests gave up
	awaited  awaited            // requests that wait in queues
	underWay underway.Estimates // estimates of requests under way
	shadow   bool               // treat every policy as a shadow: see ShadowAll
	policy   atomic.Pointer[Policy]
	pool     sync.Pool // of *work
	lists    sync.Pool // of *each

	blocking sync.Mutex // held while blocks change
	blocks   atomic.Pointer[map[string]int64]
}

// NewEngine returns an engine that decides by p and counts in store. A nil policy limits nothing. NewEngine panics if
// store is nil.
func NewEngine(store sluice.Store, p *Policy) *Engine {
	if store == nil {
		panic("policy: NewEngine needs a store: memory.New() is one")
	}
	e := &Engine{store: store, holder: sluice.NewHolder(store)}
	e.shares.begin(time.Now())
	e.loads.Begin()
	e.pool.New = func() any { return e.newWork() }
	e.lists.New = func() any { return &each{shared: e.newWork()} }
	e.shares.divided, _ = store.(divided)
	e.Swap(p)
	return e
}

// Observe registers f to be called with every decision, on the goroutine of the caller, which waits for f to
// return. Several functions are called in the order in which they were registered. Call Observe before the first
// decision.
func (e *Engine) Observe(f func(context.Context, *Observation)) {
	e.observers, e.timed = append(e.observers, f), !e.untimed
}

// Untimed turns off the timing of decisions: Began and Took of an [Observation] are zero. It is for replays, in
// which reading the clock is a large part of the cost of a decision. Call it before the first decision.
func (e *Engine) Untimed() { e.untimed, e.timed = true, false }

// watched reports whether the engine has observers of decisions.
func (e *Engine) watched() bool { return len(e.observers) > 0 }

// began returns the present time if observers get the durations, else the zero time.
func (e *Engine) began() (t time.Time) {
	if e.timed {
		t = time.Now()
	}
	return t
}

// took returns the timing of a decision that started at began.
func (e *Engine) took(began time.Time) (at timing) {
	if e.timed {
		at = timing{began, time.Since(began)}
	}
	return at
}

// timing is when a decision started, and how long it took.
type timing struct {
	began time.Time
	took  time.Duration
}

// Swap makes p the policy of all decisions that start from now on. Counts stay, because they are stored under the
// name of the rule and the kind of the limit. If the document of p sets Shadow, the policy is a shadow until the time
// in Shadow: see [Policy.ShadowUntil].
func (e *Engine) Swap(p *Policy) {
	if p == nil {
		p = new(Policy)
	}
	e.policy.Store(e.effective(p))
	e.loads.Configure(p.adaptiveOf)
}

// SwapOverrides replaces all overrides of the policy in force, and changes nothing else: see
// [Policy.WithOverrides]. The next Swap replaces them with the overrides of the new policy.
func (e *Engine) SwapOverrides(list []Override) error {
	return e.exchange(func(p *Policy) (*Policy, error) { return p.WithOverrides(list) })
}

// SwapSubjects replaces the subjects of tiers as SwapOverrides replaces overrides: see [Policy.WithSubjects].
func (e *Engine) SwapSubjects(list []TierSubject) error {
	return e.exchange(func(p *Policy) (*Policy, error) { return p.WithSubjects(list) })
}

// exchange replaces the policy in force with the result of change.
func (e *Engine) exchange(change func(*Policy) (*Policy, error)) error {
	for {
		p := e.policy.Load()
		written := p
		if p.original != nil {
			written = p.original
		}
		next, err := change(written)
		if err != nil || e.policy.CompareAndSwap(p, e.effective(next)) {
			return err
		}
	}
}

// Policy returns the policy in force: while its shadow lasts, the result of [Policy.Shadowed].
func (e *Engine) Policy() *Policy { return e.current() }

// TrustedProxies returns the trusted proxies of the policy in force. Decisions apply them by themselves, so this is
// for other uses. Do not change the result.
func (e *Engine) TrustedProxies() []netip.Prefix { return e.current().trusted }

// Decide decides about the request by all rules that apply to it, and charges all of them or none. It always has an
// answer: if the store does not answer, each rule's on_error decides.
func (e *Engine) Decide(ctx context.Context, req *Request) (d Decision) {
	e.DecideInto(ctx, req, &d)
	return d
}

// DecideInto is like Decide, but overwrites d and reuses the memory of its results.
func (e *Engine) DecideInto(ctx context.Context, req *Request, d *Decision) {
	d.reset()
	began := e.began()
	w := e.begin(req, d)
	finished := false
	if w.timed {
		defer func() {
			if !finished { // the store or an observer panicked
				w.subjects.leave()
				e.loads.Release(d.load)
			}
		}()
	}
	e.decide(ctx, w, d)
	e.finish(ctx, w, d, e.took(began))
	finished = true
}

func (e *Engine) decide(ctx context.Context, w *work, d *Decision) {
	if e.prepare(ctx, w, d) {
		d.derive(w, e.take(ctx, w))
	}
}

// prepare makes the charges of the request, and reports whether to take them from the store. If it reports false, d
// is the decision. If it reports true, d.Missing may nevertheless deny the request.
func (e *Engine) prepare(ctx context.Context, w *work, d *Decision) bool {
	if w.request.Subject != nil {
		if !w.resolveSubject(d) {
			return false
		}
	} else {
		if !w.apply(d) || w.policy.readsBody && e.refusedUnread(ctx, w, d) {
			return false
		}
		w.resolve(d)
	}
	if len(w.subjects.blocked) > 0 && d.refuseBlocked(w) {
		d.Missing = ""
		return false
	}
	if len(w.subjects.loads) > 0 && !e.enter(w, d) {
		return false
	}
	if w.charge(d.Missing != ""); len(w.charges.list) == 0 {
		d.Allowed = d.Missing == ""
		return false
	}
	return !w.needsFreePermit() || d.Missing != "" || !e.refusedInFlight(ctx, w, d)
}

// take asks the store for the charges.
func (e *Engine) take(ctx context.Context, w *work) error {
	c := &w.charges
	c.complete(&w.input)
	if w.policy.queueless && w.request.Subject == nil { // no limit is a queue, so no turn is needed
		return e.taken(ctx, w, e.store.Take(ctx, c.list, c.receipts))
	}
	return e.taken(ctx, w, e.turns.Take(ctx, e.store, c.list, c.receipts))
}

// taken completes a Take: it allows a request that repeats an earlier request with the same ID.
func (e *Engine) taken(ctx context.Context, w *work, err error) error {
	if err == nil && w.charges.once.at != 0 {
		return w.charges.once.repeat(ctx, w)
	}
	return err
}

// finish completes a decision and calls the observers.
func (e *Engine) finish(ctx context.Context, w *work, d *Decision, at timing) {
	if len(w.matches.barring)+len(w.subjects.blocked) > 0 {
		d.addBlocks(w)
	}
	if w.subjects.entered {
		d.addLoads(e, w)
	}
	if d.Degraded && w.charges.inFlight() {
		w.charges.permits.giveBackUnsure(&w.charges, d)
	}
	if w.policy.forms && !d.Exempt {
		d.form(w)
	}
	if e.watched() {
		e.observe(ctx, w, d, at)
	}
	e.end(w) // not deferred: w is not reused after a panic of the store or an observer
}

func (e *Engine) observe(ctx context.Context, w *work, d *Decision, at timing) {
	if e.named && !d.Allowed {
		d.name(w.request)
	}
	w.seen = Observation{Request: w.request, Decision: *d, Began: at.began, Took: at.took, work: w}
	for _, f := range e.observers {
		f(ctx, &w.seen)
	}
}

// Refund removes a request with a Delay from its queue, and releases its permits. Call it before the delay has
// passed, if the client leaves before its turn. Another request that this engine decides about may get the turn:
// see [Engine.LeaveQueue]. The charges of other rules stay, except those that depend on the outcome (see Settle).
// Refund works even if the context has ended. For a decision without a Delay, it only releases permits.
func (e *Engine) Refund(ctx context.Context, d Decision) {
	e.Release(ctx, d)
	if e.refund(ctx, d.queued) {
		e.Settle(ctx, d, notPassed)
	}
}

// Observation is a decision with its request. It is valid only until the observer returns. Do not change anything
// that it points to.
type Observation struct {
	Request  *Request
	Decision Decision
	// Began is when the decision started or, for [Engine.DecideEach], when the decisions of its list started.
	Began time.Time
	// Took is how long the decision took or, for [Engine.DecideEach], how long its list took.
	Took time.Duration
	work *work
}

// Policy returns the policy by which the engine decided.
func (o *Observation) Policy() *Policy { return o.work.policy }

// RuleIndex returns the position in the document of the rule of result i, or -1 for a limit that the caller
// supplies (see [Engine.Adhoc]).
func (o *Observation) RuleIndex(i int) int { return int(o.Decision.Results[i].at) - 1 }

// If a request is malformed, but passes because all rules that would deny it are shadows or have Enforce, Pardoned
// returns what the request lacks, as Missing of a [Decision] does. Otherwise it returns "".
func (o *Observation) Pardoned() string {
	if o.Decision.Missing != "" || o.Decision.Exempt {
		return ""
	}
	return o.work.pardoned()
}

// Exempting returns the name of the rule that exempts the request. It returns "" if no rule exempts the request, even
// if cors exempts it as a preflight.
func (o *Observation) Exempting() string {
	if r := o.work.matches.exempting; r != nil {
		return r.name
	}
	return ""
}

// Client returns the address of the client. The policy by which the engine decided lists the proxies that are trusted
// to report it.
func (o *Observation) Client() netip.Addr { return o.work.policy.client(o.Request) }

// Shown returns the key of result i in the form for people: whole, shortened or hashed, as the ShowKey of the rule
// requires. Names are spelled as in the request.
func (o *Observation) Shown(i int) string { return o.Policy().ShownSent(o.Key(i), o.Sent(i)) }

// Key returns the key of result i: the key under which the store counts, or would count if the subject were not
// blocked. For a shared limit it is the key of the tenant. For a rule with "block", which counts nothing, it is "".
func (o *Observation) Key(i int) string {
	subjects := o.work.subjects.blocked
	if at := i - (len(o.Decision.Results) - len(subjects)); at >= 0 {
		return subjects[at].key
	}
	if o.Decision.Results[i].Plan == nil {
		return ""
	}
	return o.work.charges.subjects[i].key
}

// Sent returns [Observation.Key] with the names in it as the request spelled them. Names in queries and bodies are
// folded before they are counted: "lucy" and "Lucy" are one subject, with the folded form "lucu". (Folding makes "y" a
// "u", because some databases treat "ü" as "u", and others as "y".) But people look for the name as it was typed.
// [Policy.ShownSent] turns Key and Sent into readable text. A name of more than [sluice.MaxKeyPart] bytes stays folded.
func (o *Observation) Sent(i int) string {
	key := o.Key(i)
	at := o.RuleIndex(i)
	if key == "" || at < 0 || o.Request.Subject != nil || !o.Policy().rules[at].folds {
		return key
	}
	return o.spelled(&o.Policy().rules[at], key)
}

// spelled returns a key of a rule with the request's spelling in place of folded values. It is valid until the next
// call.
func (o *Observation) spelled(r *rule, key string) string {
	w := o.work
	name, subject := parts.CutKey(key)
	b := append(append(w.sent[:0], name...), '/')
	same := true
	for i := range r.key {
		written, rest, more := strings.Cut(subject, "/")
		if i > 0 {
			b = append(b, '/')
		}
		from := len(b)
		if text := w.x.Spelling(&r.key[i]); text != "" && written != parts.Shared {
			b = sluice.AppendKeyPart(b, text)
		} else {
			b = append(b, written...)
		}
		same = same && string(b[from:]) == written
		if subject = rest; more != (i < len(r.key)-1) {
			return key // the rule has another key now
		}
	}
	if w.sent = b; same {
		return key
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}
