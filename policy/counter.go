package policy

import "github.com/sluicehq/sluice"

// counter counts something in addition to the limits of a rule, or changes how the limits count. Each decision has
// a counter of each kind, with the state of this decision. The methods from reset to keep are called in this order, and
// only if the request uses the kind.
type counter interface {
	// reset forgets the previous decision.
	reset()
	// charge is called for each subject of a rule with the counter. It may change the charges of the subject's
	// limits, c.list[first:].
	charge(in *input, c *charges, s *subject, first int)
	// beside appends charges, which have no results.
	beside(in *input, c *charges)
	// preview changes the receipts of the counter's charges, which took nothing, to the receipts that a Take of the
	// real costs would return.
	preview(in *input, c *charges)
	// taken reads the receipts of a Take or a preview.
	taken(in *input, c *charges)
	// join changes the result of limit i. It reports whether on_error denies a charge of the counter.
	join(c *charges, i int, r *Result) (closed bool)
	// keep records in an allowed decision everything that is given back when the request ends.
	keep(w *work, d *Decision)
	// merge adds the charge of a part of a request to sum, a charge of the same state, in DecideTogether. It
	// reports false if the charge belongs to another counter.
	merge(t *together, sum, c *sluice.Charge) bool
	// administer adds the counter's charges of a subject to the charges of its limits. A cost of 0 only reads, a
	// negative cost gives units back, and All resets.
	administer(s *Subject, c *charges, cost int64)
	// explain returns the state of the counter for limit i in words, or "".
	explain(c *charges, i int) string
}

// counterKind is a kind of counter.
type counterKind struct {
	applies func(*rule) bool       // reports whether a rule has such a counter
	of      func(*charges) counter // returns the counter of a decision
}

// counterKinds has all kinds, in the order of their charges. Penalties come last, because an offence depends on
// all other charges. To add a kind, add its entry; at most 8 fit in a rule's bits.
var counterKinds = []counterKind{
	countsTenants:  {func(r *rule) bool { return r.sharing != nil }, func(c *charges) counter { return &c.allocations }},
	countsIDs:      {func(*rule) bool { return false }, func(c *charges) counter { return &c.once }}, // used by requests with an ID
	countsInFlight: {func(r *rule) bool { return r.inFlight }, func(c *charges) counter { return &c.permits }},
	countsValues:   {func(r *rule) bool { return r.distinct }, func(*charges) counter { return values{} }},
	countsUnderWay: {func(r *rule) bool { return r.cost.usage != nil }, func(c *charges) counter { return &c.estimates }},
	countsOffences: {func(r *rule) bool { return r.lock != nil }, func(c *charges) counter { return &c.penalties }},
}

const (
	countsTenants = iota
	countsIDs
	countsInFlight
	countsValues
	countsUnderWay
	countsOffences
)

// kinds returns which counters a rule has in addition to its limits, a bit for each kind.
func (r *rule) kinds() (kinds uint8) {
	for i, k := range counterKinds {
		if k.applies(r) {
			kinds |= 1 << i
		}
	}
	return kinds
}

// noCounter does nothing. A counter embeds it for the methods that it does not need.
type noCounter struct{}

func (noCounter) reset()                                               {}
func (noCounter) charge(*input, *charges, *subject, int)               {}
func (noCounter) beside(*input, *charges)                              {}
func (noCounter) preview(*input, *charges)                             {}
func (noCounter) taken(*input, *charges)                               {}
func (noCounter) join(*charges, int, *Result) (closed bool)            { return false }
func (noCounter) keep(*work, *Decision)                                {}
func (noCounter) merge(*together, *sluice.Charge, *sluice.Charge) bool { return false }
func (noCounter) administer(*Subject, *charges, int64)                 {}
func (noCounter) explain(*charges, int) string                         { return "" }
