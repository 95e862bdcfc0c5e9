package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Distinct limits how many different values of a part of the request a key can have, in place of Limit: how many
// addresses use one account, or how many accounts one address tries. A request with a value that is already counted
// passes, and the value then counts for another full period. A new value beyond the limit is denied until the least
// recently used value has expired, and is not remembered.
//
// Values are identified by 64 bits of their SHA-256; values with the same 64 bits count as one. Requests that lack
// the part share one value, unless Missing of the rule is "skip" or "refuse". The cost of a request is ignored.
type Distinct struct {
	// Of is the key part with the values to count. It must not be in Key.
	Of string `json:"of,omitempty"`
	// Limit is the number of values in a period, such as "5/hour": from 1 to 1000, without a burst.
	Limit string `json:"limit,omitempty"`
}

// distinct compiles the part with the values that a rule counts. The key of the rule must be compiled.
func (c *compiler) distinct(r *Rule, out *rule) {
	c.without([]setting{
		{"limit", r.Limit != ""}, {"limits", len(r.Limits) > 0}, {"in_flight", r.InFlight != (InFlight{})}, {"share", !r.Share.isZero()},
		{"algorithm", r.Algorithm != ""}, {"cost", !r.Cost.IsZero()}, {"count", !r.Count.isZero()},
	}, "use a second rule with a limit for that", "a rule with distinct counts different values, and cannot have %s")
	out.distinct = true
	if r.Distinct.Limit == "" {
		c.fail("distinct", "write for example \"limit: 5/hour\" in it", "distinct has no limit")
	}
	if r.Distinct.Of == "" {
		c.fail("distinct", "write for example \"of: client_ip\" in it", "distinct does not name the key part whose values count")
		return
	}
	switch part := c.part("distinct.of", r.Distinct.Of); {
	case part == nil:
	case out.key.Contains(part):
		c.fail("distinct.of", "name another part, such as client_ip or \"body:username\"", "%s is a part of the key, so each key has only one value of it", part)
	default:
		out.reads = append(out.reads, *part)
	}
}

// distinctPlan compiles a limit of different values. Values of different parts are counted in different states.
func (c *compiler) distinctPlan(field string, l sluice.Limit, r *rule) *sluice.Plan {
	switch {
	case l.Burst != 0 || l.MonthDay != 0:
		c.fail(field, "write only a count and a period, as in \"5/hour\"", "%v has a burst or a month, which distinct does not support", l)
		return nil
	case l.Count > kernel.MaxDistinct:
		c.fail(field, fmt.Sprintf("use from 1 to %d", kernel.MaxDistinct), "%d different values per key are too many", l.Count)
		return nil
	}
	plan, err := sluice.NewDistinct(l)
	if err != nil {
		c.fail(field, "", "%v", err)
		return nil
	}
	if len(r.reads) > 0 { // otherwise an error has been reported
		h := fnv.New64a()
		fmt.Fprint(h, plan.Fingerprint, r.reads[0].String())
		plan.Fingerprint = h.Sum64()
	}
	return plan
}

// values is the counter of different values.
type values struct{ noCounter }

// charge sets the permit of each charge to a hash of the value. A refund does not remove the value, because other
// requests may have used it.
func (values) charge(in *input, c *charges, s *subject, first int) {
	cost := int64(1)
	if in.mode == GiveBack {
		cost = 0
	}
	sum := sha256.Sum256([]byte(s.value))
	for i := first; i < len(c.list); i++ {
		c.list[i].Permit, c.list[i].Cost, c.results[i].Cost = binary.LittleEndian.Uint64(sum[:]), cost, cost
	}
}

// merge notes whether the parts of a request have different values for one key. A Take can have only one.
func (values) merge(t *together, sum, c *sluice.Charge) bool {
	if c.Plan.Kernel != kernel.Distinct {
		return false
	}
	t.differ = t.differ || sum.Permit != c.Permit
	sum.Cost = max(sum.Cost, c.Cost)
	return true
}

// preview lets a value pass if it is already counted.
func (values) preview(_ *input, c *charges) {
	for i := range c.results {
		if r := &c.receipts[i]; known(&c.list[i], r) && r.Origin != sluice.ByOnError {
			r.Fits = true
		}
	}
}

// known reports whether the value of a charge was counted before.
func known(c *sluice.Charge, r *sluice.Receipt) bool {
	return c.Plan.Kernel == kernel.Distinct && r.Prev > 0
}

// appendValue appends the value of a charge, if it has one.
func appendValue(dst []byte, c *sluice.Charge) []byte {
	if c.Plan.Kernel != kernel.Distinct {
		return dst
	}
	return binary.LittleEndian.AppendUint64(dst, c.Permit)
}

func (values) explain(c *charges, i int) string {
	r, plan := c.subjects[i].rule, c.list[i].Plan
	if plan.Kernel != kernel.Distinct || c.results[i].Origin == sluice.ByOnError {
		return ""
	}
	used := c.receipts[i].Used
	if known(&c.list[i], &c.receipts[i]) {
		return fmt.Sprintf("the value of %v is one of %d that count", &r.reads[0], used)
	}
	return fmt.Sprintf("the value of %v is new: %d of %d count", &r.reads[0], used, plan.Capacity)
}

// Distinct reports whether the rule counts different values. Such a subject can only be reset: single values cannot
// be given back.
func (s *Subject) Distinct() bool { return s.rule.distinct }
