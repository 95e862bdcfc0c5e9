package sluice

import (
	"context"
	"fmt"

	"github.com/sluicehq/sluice/internal/turns"
	"github.com/sluicehq/sluice/kernel"
)

// Charge asks for Cost units of Plan under Key. Cost 0 peeks, a negative cost gives
// back, and [All] gives back everything.
type Charge struct {
	// Key is whatever is limited. States under one key are kept apart by the plan's
	// Fingerprint. A store keeps no reference to the string after Take returns.
	Key  string
	Plan *Plan
	Cost int64
	// Shadow charges are counted like others, but never refuse the request.
	Shadow bool
	// Owe marks a Cost above 0 that is due in any case, such as the rest of the cost of a request
	// that has passed. Receipt.Fits reports as usual whether it fits. If it does not, it is
	// committed all the same, up to the plan's Most, and Receipt.Cut is the rest. It never refuses the
	// Take; if another charge does, it is not committed. Penalties and permits ignore Owe.
	Owe bool
	// OnError decides this charge if the shared store does not answer. Stores that cannot fail over ignore it.
	OnError OnError
	// Consistency is how exactly processes that share a store count the charge together.
	Consistency Consistency
	// Permit is the permit to take or give back, for a plan of [NewInFlight]: a number that
	// no other caller has chosen, such as a random one. For a plan of [NewDistinct] it is a hash of the value.
	Permit uint64
	// Until, if not 0, is the time, in microseconds since the Unix epoch by the store's clock, from
	// which a negative Cost counts as 0. So units taken in a window that is over, or that have
	// drained, are not deducted from what others have used since.
	Until int64
}

// CostAt returns the Cost at now, in microseconds since the Unix epoch by the store's clock: 0
// if c gives back units and its Until has passed.
func (c *Charge) CostAt(now int64) int64 {
	if c.Cost < 0 && c.Until != 0 && now >= c.Until {
		return 0
	}
	return c.Cost
}

// Refuses reports whether c refuses its Take if it does not fit.
func (c *Charge) Refuses() bool { return !c.Shadow && !c.Owe }

// Undo returns the charge that gives back what c has taken, by its receipt. It is for a store that does a Take in
// several steps, of which a later one refuses. Units are given back only while they count: later, they would be
// deducted from what others have used since. A turn in the queue of a [LeakyBucket] is not given back, since later
// turns may have been given by then: Undo sets r.Prev, so that [Turns] keeps the turn.
func (c *Charge) Undo(r *Receipt) Charge {
	u := *c
	u.Shadow, u.Owe, u.Cost = true, false, 0
	switch {
	case !r.Fits && !c.Owe || c.Plan.Kernel == kernel.Lock: // nothing was taken
	case c.Plan.Kernel == kernel.Distinct && r.Prev > 0: // another request has used the value
	case c.Plan.Queue && c.Cost > 0:
		r.Prev = r.TurnEnd()
	default:
		u.Cost, u.Until = -max(c.Cost-r.Cut, -maxUndo), c.countsUntil(r)
	}
	return u
}

// maxUndo is at least the capacity of any plan.
const maxUndo = 1 << 52

// Turn returns the turn of a charge of a [LeakyBucket] that was admitted. It reports false if there is
// no turn to wait for, or if it was not given by the shared store.
func (c *Charge) Turn(r *Receipt) (t turns.Turn, waits bool) {
	if !c.Plan.Queue || c.Cost < 1 || !r.Fits || r.Origin.Degraded() {
		return t, false
	}
	span, waits := c.Plan.TurnOf(c.Cost, &r.Receipt)
	if !waits {
		return t, false
	}
	return turns.New(c.Key, &c.Plan.Plan, span, r.Now), true
}

// countsUntil returns until when what c has taken counts, in microseconds since the Unix epoch; 0 if
// that is not known.
func (c *Charge) countsUntil(r *Receipt) int64 {
	p := c.Plan
	lasts := p.Decide(c.Cost, *r).ResetAfter
	if p.Sliding {
		lasts -= p.Limit.Period // then it belongs to the previous window
	}
	if c.Cost <= 0 || lasts <= 0 {
		return 0
	}
	return r.Now + lasts.Microseconds()
}

// OnError is a rule's decision on what happens while the shared store does not answer.
type OnError uint8

const (
	Allow OnError = iota // the charge passes
	Deny                 // the request is refused; a store whose answer was lost may have counted it
	Local                // a local allowance of the limit decides
)

var onErrorNames = [...]string{Allow: "allow", Deny: "deny", Local: "local"}

// ParseOnError reads "allow", "deny" or "local".
func ParseOnError(name string) (OnError, error) {
	for o, n := range onErrorNames {
		if n == name {
			return OnError(o), nil
		}
	}
	return 0, fmt.Errorf("unknown on_error %.40q: use allow, deny or local", name)
}

// String returns what [ParseOnError] reads.
func (o OnError) String() string { return onErrorNames[min(o, Local)] }

// All is the negative cost that gives back everything taken.
const All = kernel.All

// Receipt is the state of a charge's key after a [Store.Take], from which
// [Plan.Decide] derives the [Decision]. Stores that saw the same history give the same
// receipts.
type Receipt struct {
	// Now is the store's clock, Used what is used, and Fits means that the charge fits. It is still not
	// committed if another charge of the same Take refuses it.
	kernel.Receipt
	// Origin is where the decision was made. Receipts of the same history differ in nothing else.
	Origin Origin
}

// Store counts. Implementations are safe for concurrent use.
type Store interface {
	// Take checks every charge and commits all of them, or none if any that is neither a Shadow nor an Owe does not
	// fit. A shadow that does not fit is not committed. Receipts are written to receipts, which is as long as
	// charges: the caller owns both, so that a decision need not allocate. A charge that gives back too late gives
	// back nothing (see [Charge.CostAt]). A refused Take writes nothing, except for states that a stepped clock has
	// made impossible (see [kernel.Plan.Step]), and for offences. If a charge of a [kernel.Lock] [Offends], its
	// penalty begins: it would have fit, but its receipt reports that it does not. That happens whether or not the
	// Take is refused, and however many charges offend at the same time.
	//
	// Charges of one Take must differ in key or fingerprint: see [CheckCharges]. If the error is not nil, receipts
	// are undefined, and the store documents whether the charges were committed.
	//
	// A state that has drained may be forgotten. It then stays empty, even if the
	// clock steps back to a time at which it was not.
	Take(ctx context.Context, charges []Charge, receipts []Receipt) error
}

// CheckCharges returns an error for arguments of [Store.Take] that break its contract.
// Every store calls it first.
func CheckCharges(charges []Charge, receipts []Receipt) error {
	if len(charges) != len(receipts) {
		return usage("sluice: %d charges, but room for %d receipts", len(charges), len(receipts))
	}
	if len(charges) > 32 {
		return checkMany(charges)
	}
	for i := range charges {
		a := &charges[i]
		if a.Plan == nil {
			return usage("sluice: charge %d has no plan", i)
		}
		for j := range charges[:i] {
			if b := &charges[j]; a.Plan.Fingerprint == b.Plan.Fingerprint && a.Key == b.Key {
				return ErrDuplicateCharge
			}
		}
	}
	return nil
}

func checkMany(charges []Charge) error {
	type id struct {
		key         string
		fingerprint uint64
	}
	seen := make(map[id]bool, len(charges))
	for i, c := range charges {
		if c.Plan == nil {
			return usage("sluice: charge %d has no plan", i)
		}
		if k := (id{c.Key, c.Plan.Fingerprint}); seen[k] {
			return ErrDuplicateCharge
		} else {
			seen[k] = true
		}
	}
	return nil
}

// Admitted reports whether a Take was committed: every charge that is neither a shadow nor owed fits.
func Admitted(charges []Charge, receipts []Receipt) bool {
	for i := range charges {
		if !receipts[i].Fits && charges[i].Refuses() {
			return false
		}
	}
	return true
}
