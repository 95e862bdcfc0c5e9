package policy

import "github.com/sluicehq/sluice"

// counter is one kind of thing that a rule can count beside its limits, or do with what they count. Each
// decision has one of each kind, which keeps what it needs of that decision. Its methods are called in this
// order, and only if it applies to a rule or to the request.
type counter interface {
	// reset forgets the last decision.
	reset()
	// charge completes the charges of a subject: those of its limits, which are the last from first on.
	charge(in *input, c *charges, s *subject, first int)
	// beside adds charges behind those of limits. They have no results.
	beside(in *input, c *charges)
	// preview makes the receipts of its charges, which took nothing, those of a Take with their costs.
	preview(in *input, c *charges)
	// taken reads the receipts of a Take or a preview.
	taken(in *input, c *charges)
	// join gives the counter a say in the result of a limit. It reports whether on_error has refused it.
	join(c *charges, i int, r *Result) (closed bool)
	// spent is join for a request whose costs will have been taken, of which limit is the receipt of the limit.
	spent(c *charges, i int, r *Result, limit *sluice.Receipt)
	// keep notes in a decision that allows what the request has still to give back.
	keep(w *work, d *Decision)
	// explain says how the counter stands for a result, or "".
	explain(c *charges, i int) string
}
