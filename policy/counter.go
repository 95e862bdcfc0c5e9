package policy

// counter is one kind of thing that a rule can count beside its limits, or do with what they count. Each
// decision has one of each kind, which keeps what it needs of that decision. Its methods are called in this
// order, and only if it applies to a rule or to the request.
type counter interface {
	// reset forgets the last decision.
	reset()
	// charge adds to the charges of one subject's limits, c.list[first:], or changes them.
	charge(in *input, c *charges, s *subject, first int)
	// beside adds charges behind those of limits. They have no results.
	beside(in *input, c *charges)
	// preview makes the receipts of its charges, which took nothing, those of a Take with their costs.
	preview(in *input, c *charges)
	// taken reads the receipts of a Take or a preview.
	taken(in *input, c *charges)
	// join gives the counter a say in the result of a limit. It reports whether on_error has refused it.
	join(c *charges, i int, r *Result) (closed bool)
	// keep notes in a decision that allows what the request has still to give back.
	keep(w *work, d *Decision)
	// explain says how the counter stands for a result, or "".
	explain(c *charges, i int) string
}

// counterKind is a kind of counters.
type counterKind struct {
	applies func(*rule) bool       // reports whether a rule has such a counter
	of      func(*charges) counter // returns that of a decision
}

// counterKinds are all kinds, in the order in which their charges stand behind those of limits. Penalties come
// last: an offence depends on what all others refuse. To add a kind of counter, add its entry;
// there is room for 8.
var counterKinds = []counterKind{
	countsTenants:  {func(r *rule) bool { return r.sharing != nil }, func(c *charges) counter { return &c.allocations }},
	countsIDs:      {func(*rule) bool { return false }, func(c *charges) counter { return &c.once }}, // whatever the rules are
	countsInFlight: {func(r *rule) bool { return r.inFlight }, func(c *charges) counter { return &c.permits }},
	countsOffences: {func(r *rule) bool { return r.lock != nil }, func(c *charges) counter { return &c.penalties }},
}

const (
	countsTenants = iota
	countsIDs
	countsInFlight
	countsOffences
)

// kinds returns which counters a rule has beside its limits, a bit for each kind.
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

func (noCounter) reset()                                    {}
func (noCounter) charge(*input, *charges, *subject, int)    {}
func (noCounter) beside(*input, *charges)                   {}
func (noCounter) preview(*input, *charges)                  {}
func (noCounter) taken(*input, *charges)                    {}
func (noCounter) join(*charges, int, *Result) (closed bool) { return false }
func (noCounter) keep(*work, *Decision)                     {}
func (noCounter) explain(*charges, int) string              { return "" }
