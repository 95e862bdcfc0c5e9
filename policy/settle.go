package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy/internal/money"
	"github.com/sluicehq/sluice/policy/internal/underway"
)

// Outcome is the outcome of an allowed request: see [Engine.Settle].
type Outcome struct {
	// Status is the status of the response, or 101 for a connection that was taken over. Status is zero if the
	// status is unknown, because a handler panicked or a client left before the response. Such a request counts,
	// because it may have been a guess at a password.
	Status int
	Header http.Header // header fields of the response
	// Bytes is the length of the response's body. It is negative while the length is unknown; rules that depend on
	// it then wait for another Settle.
	Bytes int64
	// Verdict is the program's own verdict for rules with a count. If Verdict is zero, these rules use the
	// response.
	Verdict Verdict
	// Cost is the program's own cost of the request for rules with a cost from the response. It is not multiplied by
	// the Cost of the [Request]. A cost in USD is in micro-USD. A cost above the max of a rule counts as that max, or
	// as the estimate if that is more. A negative Cost stands for a cost of zero.
	Cost int64
	// Read is a reader that has read the body of the response, for rules that count by numbers in the body: see
	// [Decision.ReadResponse]. If Read and Numbers are nil, the request costs the estimate under such rules.
	Read *ResponseReader
	// At is when the outcome became known, for a request with a Time. Zero means now.
	At time.Time
	// Numbers are the numbers of the response by their paths, such as "usage.prompt_tokens", for callers that have
	// read the response themselves. They are used if Read is nil.
	Numbers map[string]int64
}

// Verdict states whether a request counts under rules that set Count.
type Verdict uint8

const (
	ByResponse Verdict = iota // the status and header of the response decide
	Counts
	CountsNot
)

// settleTimeout bounds the time of a settlement, for a store without a deadline of its own.
const settleTimeout = 5 * time.Second

// unsettled are the charges that wait for the outcome of a request. All copies of a decision share them.
type unsettled struct {
	mu    sync.Mutex
	open  []openCharge
	reads *numbers  // see Decision.ReadsResponse; may be nil
	asks  bool      // see Decision.AsksUsage
	taken time.Time // the time before the Take of the charges
	made  time.Time // the Time of the request: see Outcome.At; zero: none
	id    uint64    // see Decision.Track; 0: none
}

// openCharge is a charge that the outcome may change.
type openCharge struct {
	sluice.Charge // the charge that was taken, with a copy of its key
	rule          string
	subject       string // the key of its subject
	index         int    // index among the limits of the subject
	counts        *counting
	cost          *cost
	reserved      reservation
	lasts         time.Duration      // how long the charge can be given back
	pending       *underway.Estimate // the estimate until the charge is settled; may be nil
}

// Unsettled reports whether a rule waits for the outcome of the request: see [Engine.Settle].
func (d *Decision) Unsettled() bool { return d.unsettled != nil }

// Settle reports the outcome of a request to the rules that depend on it. d is the decision that allowed the request.
// If the request does not count, its units are given back. If its cost is known by now, the difference from the
// estimate is charged or given back. A difference that does not fit becomes a debt of the key: its requests are
// denied until the debt has drained or expired. Debts are bounded (see [Policy.Debts]), and [Subject.Reset] clears
// them. A request that is never settled counts, and costs its estimate. A debt by itself does not start a [Penalty],
// but a request that is denied because of the debt does.
//
// Each rule is settled only once, even if several copies of the decision are settled. A rule depends on a part of the
// outcome; the first call that has this part settles the rule. For a decision that denied the request, Settle does
// nothing.
//
// The units given back are the newest under the key, and they are given back only while the request's own units
// still count: in a window, until the window ends; in a bucket, until these units would have drained; in a log, for a
// period. So a late response does not give units back to a later window. In a log and in a bucket, units that were
// taken between charge and refund may expire earlier, by at most the time that the response took.
//
// Settle works even if the context has ended. If the store does not answer in time, the units of the request stay,
// and expire like any others. A decision with an Err is not settled.
func (e *Engine) Settle(ctx context.Context, d Decision, o Outcome) {
	if d.unsettled == nil {
		return
	}
	e.observeOutcome(d.unsettled.id, &o)
	b := d.unsettled.settle(&o)
	_ = e.settle(ctx, &b) // charges that cannot be settled stay until they expire
	e.underWay.Remove(b.pending)
}

// notPassed is the outcome of an allowed request that has not reached a handler after all.
var notPassed = Outcome{Verdict: CountsNot, Cost: -1}

// Settlement is the charge under one limit of a rule before and after the outcome: see [Engine.ObserveSettled].
type Settlement struct {
	Rule  string
	Key   string // the key of the subject: see [Observation.Key]
	Limit sluice.Limit
	// Index is the position of the limit among the settled limits of the subject. An observer that counts requests
	// should count only settlements with Index 0.
	Index int
	// Unit is the unit of the cost if it is read from the body of the response, otherwise NoUnit.
	Unit Unit
	// Model is the model that the request asks for, as the client wrote it. It is empty if the rule does not read
	// the model.
	Model string
	// Estimate is the charge before the response, and Cost the final one, both in units of Limit: see
	// [sluice.Limit.Money].
	Estimate, Cost int64
	// Cut is the part of the reported cost that is not charged, because it is above the rule's max, or above what a
	// key can owe.
	Cut int64
	// Unread, for rules that read the cost from the body, is the reason why the response does not report it:
	// "encoded" (compressed), "type" (neither JSON nor events), "malformed", "missing", "interrupted" or "no_body".
	// Otherwise it is empty.
	Unread string
	// Owed is the debt of the key after a request that cost more than its estimate.
	Owed int64
}

// Amounts returns the charge before the response and the final one, in units of Unit: in micro-USD for USD.
func (s *Settlement) Amounts() (reserved, settled int64) {
	return s.Limit.Value(s.Estimate), s.Limit.Value(s.Cost)
}

// ObserveSettled registers f to be called for each charge that is settled, even if its cost stays the same, on the
// goroutine that settles, which waits for f to return. Call it before the first decision.
func (e *Engine) ObserveSettled(f func(context.Context, *Settlement)) {
	e.settled = append(e.settled, f)
}

// ObserveOutcomes registers f to be called with each outcome, before it is settled, and with the ID of
// [Decision.Track]. The ID is 0 for outcomes of [Engine.SettleRequest]. Call it before the first decision.
func (e *Engine) ObserveOutcomes(f func(id uint64, o *Outcome)) { e.outcomes = append(e.outcomes, f) }

func (e *Engine) observeOutcome(id uint64, o *Outcome) {
	for _, f := range e.outcomes {
		f(id, o)
	}
}

// Track gives an unsettled decision an ID other than 0, by which observers recognize its outcome: see
// [Engine.ObserveOutcomes]. An observer of decisions may call it.
func (d *Decision) Track(id uint64) {
	if d.unsettled != nil {
		d.unsettled.id = id
	}
}

// bill has the changes of charges that an outcome causes.
type bill struct {
	charges []sluice.Charge
	first   int                  // index of the charge of items[0]; a charge before it is that of the request's ID, and does not fit if the bill is already settled
	items   []Settlement         // those with a charge come first
	pending []*underway.Estimate // estimates that are settled
}

// settle takes the charges of a bill.
func (e *Engine) settle(ctx context.Context, b *bill) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	receipts := make([]sluice.Receipt, len(b.charges))
	if len(b.charges) > 0 {
		if err := e.store.Take(ctx, b.charges, receipts); err != nil {
			return err
		}
		if !sluice.Admitted(b.charges, receipts) {
			return nil
		}
	}
	if len(e.settled) == 0 {
		return nil
	}
	for i := range b.items {
		s := &b.items[i]
		if b.first+i < len(receipts) {
			r := &receipts[b.first+i]
			s.Cost, s.Cut = s.Cost-r.Cut, s.Cut+r.Cut
			if c := &b.charges[b.first+i]; c.Owe {
				s.Owed = c.Plan.Owed(&r.Receipt)
			}
		}
		for _, f := range e.settled {
			f(ctx, s)
		}
	}
	return nil
}

// unsettled returns the charges that wait for the outcome of the request, copied so that they outlive w, or nil.
func (c *charges) unsettled(d *Decision) *unsettled {
	var open []openCharge
	var reads *numbers
	asks := false
	for i := range d.Results {
		r, taken, receipt := c.subjects[i].rule, c.list[i], &c.receipts[i]
		if !r.settles() || !receipt.Fits || receipt.Origin == sluice.ByOnError {
			continue
		}
		taken.Key, taken.Shadow = strings.Clone(taken.Key), true
		if r.cost.usage != nil {
			reads, asks = c.subjects[i].reserved.reads, asks || c.subjects[i].reserved.omitsUsage && !c.subjects[i].shadow
		}
		reserved := c.subjects[i].reserved
		reserved.model = strings.Clone(reserved.model)
		open = append(open, openCharge{taken, r.name, strings.Clone(c.subjects[i].key), 0, r.counts, &r.cost, reserved, d.Results[i].Lasts(), nil})
	}
	numberLimits(open)
	if len(open) == 0 {
		return nil
	}
	return &unsettled{open: open, reads: reads, asks: asks, taken: c.began, made: c.made}
}

// numberLimits sets the index of each charge.
func numberLimits(open []openCharge) {
	for i := 1; i < len(open); i++ {
		if before := &open[i-1]; before.rule == open[i].rule && before.subject == open[i].subject {
			open[i].index = before.index + 1
		}
	}
}

// Lasts returns how long the units of the request can be given back: in a window, until the window ends; otherwise,
// until no units are in use.
func (r *Result) Lasts() time.Duration {
	if r.Plan.Limit.Algorithm == sluice.SlidingWindowCounter {
		return r.ResetAfter - r.Plan.Limit.Period // after that time, the units belong to the previous window
	}
	return r.ResetAfter
}

// settle returns the corrections that the outcome causes, for all charges that depend only on known parts of the
// outcome.
func (u *unsettled) settle(o *Outcome) (b bill) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.open) == 0 {
		return b
	}
	var same []Settlement
	age := time.Since(u.taken)
	if !o.At.IsZero() && !u.made.IsZero() {
		age = o.At.Sub(u.made)
	}
	rest := u.open[:0]
	for _, c := range u.open {
		reported, unread, known := c.costOf(o)
		if !known {
			rest = append(rest, c)
			continue
		}
		if c.pending != nil {
			b.pending = append(b.pending, c.pending)
		}
		cost := money.Units(c.cost.atMost(reported, c.Plan.Limit.Value(c.Cost)), c.Plan)
		more := cost - c.Cost
		item := Settlement{Rule: c.rule, Key: c.subject, Limit: c.Plan.Limit, Index: c.index, Unit: c.cost.unit, Model: c.reserved.model, Estimate: c.Cost, Cost: cost, Cut: money.Units(reported, c.Plan) - cost, Unread: unread}
		switch {
		case more > 0:
			c.Charge.Cost, c.Owe = min(more, c.Plan.Most), true
			item.Cost, item.Cut = item.Cost-(more-c.Charge.Cost), item.Cut+(more-c.Charge.Cost)
		case more < 0 && age < c.lasts:
			c.Charge.Cost = more
		default:
			same = append(same, item)
			continue
		}
		b.charges, b.items = append(b.charges, c.Charge), append(b.items, item)
	}
	b.items = append(b.items, same...)
	clear(u.open[len(rest):])
	u.open = rest
	return b
}

// costOf returns the cost of the request, in micro-USD if the limit is in USD. unread is the reason why the
// response does not report the cost, and known is false before the outcome is complete.
func (c *openCharge) costOf(o *Outcome) (cost int64, unread string, known bool) {
	reserved := c.Plan.Limit.Value(c.Charge.Cost)
	switch u := c.cost.usage; {
	case c.counts != nil && !c.counts.has(o):
		return 0, "", true
	case u == nil || o.Cost != 0:
	case o.Read == nil && o.Numbers != nil:
		cost, unread = u.finalCost(&ResponseReader{numbers: c.reserved.reads, given: o.Numbers}, o.Status, &c.reserved, reserved)
		return cost, unread, true
	case o.Bytes < 0:
		return 0, "", false
	default:
		cost, unread = u.finalCost(o.Read, o.Status, &c.reserved, reserved)
		return cost, unread, true
	}
	cost, known = c.cost.after(o, reserved)
	return cost, "", known
}

// ErrNothingToSettle is returned by [Engine.SettleRequest] if no rule that counts the request depends on its
// outcome, or on the part of the outcome that is known so far.
var ErrNothingToSettle = errors.New("policy: no rule that counted the request depends on this outcome")

// [Engine.SettleRequest] returns an error that matches ErrNotCharged if the policy would not have allowed the request.
var ErrNotCharged = errors.New("policy: the request was not charged")

// SettleRequest settles a request by its outcome, as [Engine.Settle] does, for a caller that no longer has the
// decision. The request must have been allowed and charged by the same policy, and must not be settled yet: its
// charges are found by matching it again. A request with an ID is settled only once within [RepeatedWithin], however
// often SettleRequest is called.
//
// req.Time is when the request was charged; zero means now. It determines whether the units still count and can be
// given back. The level of a bucket at that time is unknown, so units can be given back for as long as a full
// bucket takes to drain, even if the actual bucket has drained earlier.
func (e *Engine) SettleRequest(ctx context.Context, req *Request, o Outcome) error {
	var d Decision
	w := e.begin(req, &d)
	defer e.end(w)
	w.mode = settling
	e.prepare(ctx, w, &d)
	switch {
	case d.Missing != "":
		return fmt.Errorf("%w: it lacks %s", ErrNotCharged, d.Missing)
	case d.Blocked != "":
		return fmt.Errorf("%w by the policy in force: rule %q blocks it", ErrNotCharged, d.Blocked)
	}
	e.observeOutcome(0, &o)
	u := chargedBefore(w)
	waiting := len(u.open)
	b := u.settle(&o)
	if len(u.open) == waiting {
		return ErrNothingToSettle
	}
	if list := w.charges.list; req.ID != "" {
		asked := appendAsked([]byte{settledOnce}, req.ID, list, 1)
		b.charges, b.first = append([]sluice.Charge{onceCharge(&w.charges.once.keys, asked, list[0].Key)}, b.charges...), 1
	}
	return e.settle(ctx, &b)
}

// chargedBefore returns the charges that the outcome settles, for a request with the charges in w.
func chargedBefore(w *work) *unsettled {
	u := &unsettled{taken: w.request.Time}
	if u.taken.IsZero() {
		u.taken = time.Now()
	}
	for i, c := range w.charges.list {
		if r := w.charges.subjects[i].rule; r.settles() {
			lasts := longestRefund(c.Plan, u.taken)
			if r.marks { // unknown whether the request was charged or only marked
				lasts = 0
			}
			c.Shadow = true
			u.open = append(u.open, openCharge{c, r.name, w.charges.subjects[i].key, 0, r.counts, &r.cost, w.charges.subjects[i].reserved, lasts, nil})
		}
	}
	numberLimits(u.open)
	return u
}

// longestRefund returns the longest time for which units taken at the given time can be given back.
func longestRefund(p *sluice.Plan, taken time.Time) time.Duration {
	if p.Kernel.Log() {
		return p.Limit.Period
	}
	var r sluice.Receipt
	p.Step(kernel.State{}, taken.UnixMicro(), p.Capacity, &r.Receipt)
	result := Result{Plan: p, Decision: p.Decide(p.Capacity, r)}
	return result.Lasts()
}
