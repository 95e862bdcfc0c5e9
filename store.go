package sluice

import (
	"context"
	"fmt"

	"github.com/sluicehq/sluice/internal/turns"
	"github.com/sluicehq/sluice/kernel"
)

// Charge is a request to a [Store] for Cost units of Plan under Key. A Cost of 0 peeks, a negative Cost gives units
// back, and [All] gives back everything.
type Charge struct {
	// Key identifies the caller or thing that is limited. A store keeps a separate state, which holds the count,
	// for each Key and Fingerprint of a Plan. It keeps no reference to the string after Take returns.
	Key  string
	Plan *Plan
	Cost int64
	// Shadow marks a charge that never refuses its Take. If it fits, it is counted like any other.
	Shadow bool
	// Owe marks a charge that is committed even if it does not fit, such as the rest of the cost of a request that has
	// passed. Its Cost is above 0. Receipt.Fits reports whether the charge fits, as for any other charge. If it does
	// not fit, units are committed only up to the plan's field Most. That can be more than the limit; the difference is
	// the largest debt of a key (see [Plan.WithMost]). Receipt.Cut is the number of units that were not committed. The
	// charge itself never refuses its Take. If another charge refuses the Take, nothing is committed. Charges of
	// penalties, permits and distinct values that do not fit are not committed even with Owe.
	Owe bool
	// OnError decides this charge if the shared store is unavailable. Stores that cannot fail over ignore it.
	OnError OnError
	// Consistency is how exactly the charge is counted across the processes that share the store.
	Consistency Consistency
	// Permit is the number of the permit to take or give back, for a plan of [NewInFlight]. No two callers may use
	// the same number: see [NewPermit]. For a plan of [NewDistinct], Permit is a hash of the value.
	Permit uint64
	// If Until is not 0, a negative Cost counts as 0 from that time on. Until is in microseconds since the Unix
	// epoch, by the store's clock. Without Until, a late refund could give back units of other callers: by then,
	// the units that it refunds have drained, or their window has ended.
	Until int64
}

// CostAt returns the Cost at the time now: 0 if c gives back units and its Until has passed. now is in microseconds
// since the Unix epoch, by the store's clock.
func (c *Charge) CostAt(now int64) int64 {
	if c.Cost < 0 && c.Until != 0 && now >= c.Until {
		return 0
	}
	return c.Cost
}

// Refuses reports whether c refuses its Take if it does not fit.
func (c *Charge) Refuses() bool { return !c.Shadow && !c.Owe }

// Undo returns the charge that gives back what c has taken according to its receipt r. It is for a store that makes
// a Take in several steps, if a later step refuses the Take. Units are given back only as long as they count (see
// Until). A turn in the queue of a [LeakyBucket] cannot be given back, because later turns may have been assigned
// by then. For such a charge, the result has a Cost of 0, and Undo stores the end of the turn in r.Prev. From this,
// [Turns] recognizes that the turn is free for another caller.
func (c *Charge) Undo(r *Receipt) Charge {
	u := *c
	u.Shadow, u.Owe, u.Cost = true, false, 0
	switch {
	case !r.Fits && !c.Owe || c.Plan.Kernel == kernel.Lock: // nothing was taken, or it is a penalty
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

// Turn returns the turn of an admitted charge of a [LeakyBucket]. It reports false if the charge does not have to
// wait, or if the shared store did not assign the turn.
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

// countsUntil returns the time until which the units of c count, in microseconds since the Unix epoch, or 0 if it
// is unknown.
func (c *Charge) countsUntil(r *Receipt) int64 {
	p := c.Plan
	lasts := p.Decide(c.Cost, *r).ResetAfter
	if p.Sliding {
		lasts -= p.Limit.Period // from then on, the units count for the previous window
	}
	if c.Cost <= 0 || lasts <= 0 {
		return 0
	}
	return r.Now + lasts.Microseconds()
}

// OnError is the decision about a charge while the shared store is unavailable.
type OnError uint8

const (
	Allow OnError = iota // the charge passes
	Deny                 // the charge is denied; if the store counted it, and only the answer was lost, it stays counted
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

// String returns the name that [ParseOnError] reads.
func (o OnError) String() string { return onErrorNames[min(o, Local)] }

// All is the negative cost that gives back everything taken.
const All = kernel.All

// Receipt is a store's answer to a charge: the state of the key after a [Store.Take], from which [Plan.Decide] derives
// the [Decision]. Two stores with the same history return receipts that are equal in everything but Origin, unless a
// store decides without its server.
type Receipt struct {
	// Now is the time by the store's clock. Fits reports that the charge fits. Even then, the charge is not
	// committed if another charge refuses the Take.
	kernel.Receipt
	// Origin is the source of the decision.
	Origin Origin
}

// Store keeps counts. Implementations are safe for concurrent use.
type Store interface {
	// Take checks every charge, and writes the result to the receipt with the same index: receipts is as long as
	// charges. If a charge does not fit and is neither a Shadow nor an Owe, the Take is refused, and no charge is
	// committed. Otherwise all charges are committed, except shadows that do not fit. A charge that gives back too
	// late gives back nothing (see [Charge.CostAt]). The caller owns both slices, so that a decision need not
	// allocate.
	//
	// A refused Take writes nothing, with two exceptions. If the clock was set back so far that a state became
	// impossible, the state is corrected (see [kernel.Plan.Step]). And if the charge of a penalty records an offence
	// (see [Offends]), the penalty starts, whether or not the Take is refused. The receipt of that charge then reports
	// that it does not fit. Package redisstore makes a further exception on a cluster.
	//
	// Charges of one Take must differ in key or fingerprint: see [CheckCharges]. If the error is not nil, receipts
	// are undefined, and the store documents whether the charges were committed.
	//
	// A store may forget a state that has drained. The state then stays empty, even if the clock is set back to a
	// time at which the state was not empty.
	Take(ctx context.Context, charges []Charge, receipts []Receipt) error
}

// CheckCharges returns an error if the arguments of a [Store.Take] break its contract. Every Take calls it first.
func CheckCharges(charges []Charge, receipts []Receipt) error {
	if len(charges) != len(receipts) {
		return usage("sluice: %d charges, but room for %d receipts", len(charges), len(receipts))
	}
	if len(charges) > 32 {
		return checkMany(charges)
	}
	for i := range charges {
		a := &charges[i]
		if !a.planned() {
			return noPlan(i)
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
		if !c.planned() {
			return noPlan(i)
		}
		if k := (id{c.Key, c.Plan.Fingerprint}); seen[k] {
			return ErrDuplicateCharge
		} else {
			seen[k] = true
		}
	}
	return nil
}

// planned reports whether c has a plan that a function of this package has made.
func (c *Charge) planned() bool { return c.Plan != nil && c.Plan.Tick > 0 }

func noPlan(i int) error {
	return usage("sluice: charge %d has no plan, or one that no function of package sluice has made", i)
}

// Admitted reports whether a Take was committed: whether every charge fits, except charges with Shadow or Owe, which
// never refuse a Take.
func Admitted(charges []Charge, receipts []Receipt) bool {
	for i := range charges {
		if !receipts[i].Fits && charges[i].Refuses() {
			return false
		}
	}
	return true
}
