package policy

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Penalty is how long a rule denies all requests of a subject that has exceeded a limit of the rule, even if its
// requests would fit again. The penalty is the same under the limits of tiers and overrides. Requests that are denied
// during a penalty do not prolong it. The fields are the fields of [sluice.Penalty], with lengths of time such as
// "10m" or "1d". In JSON and YAML, a penalty is a text if it has only First, otherwise an object.
//
// For a rule with a count, requests under way count until their outcome is known. So if more requests than the
// limit allows are under way at the same time, that is an offence, whatever their outcomes.
type Penalty struct {
	First  string `json:"first,omitempty"`
	Factor int64  `json:"factor,omitempty"`
	Most   string `json:"most,omitempty"`
	Forget string `json:"forget,omitempty"`
}

// penaltyObject is Penalty as a JSON object.
type penaltyObject Penalty

func (p Penalty) MarshalJSON() ([]byte, error) {
	if p == (Penalty{First: p.First}) {
		return json.Marshal(p.First)
	}
	return json.Marshal(penaltyObject(p))
}

func (p *Penalty) UnmarshalJSON(data []byte) error {
	var o penaltyObject
	if json.Unmarshal(data, &o.First) != nil && json.Unmarshal(data, &o) != nil {
		return errors.New(`policy: a penalty is a length of time such as "10m", or {"first": "1m", "factor": 2}`)
	}
	*p = Penalty(o)
	return nil
}

// penalty compiles the penalty of a rule. It returns nil for a rule without one.
func (c *compiler) penalty(in *Penalty) *sluice.Plan {
	if *in == (Penalty{}) {
		return nil
	}
	before := len(c.problems)
	if in.First == "" {
		c.fail("penalty", "write for example \"first: 1m\"", "the penalty has no \"first\"")
	}
	first := "penalty.first"
	if *in == (Penalty{First: in.First}) {
		first = "penalty"
	}
	p := sluice.Penalty{
		First: c.length(first, in.First), Factor: in.Factor,
		Most: c.length("penalty.most", in.Most), Forget: c.length("penalty.forget", in.Forget),
	}
	if len(c.problems) > before {
		return nil
	}
	plan, err := p.Plan()
	if err != nil {
		c.fail("penalty", "", "%v", err)
	}
	return plan
}

// length reads a length of time. An empty text is 0.
func (c *compiler) length(field, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := sluice.ParsePeriod(text)
	if err != nil {
		c.fail(field, "write it as in 10m, 1h or 1d", "%v", err)
	}
	return d
}

// penalties is the counter of offences.
type penalties struct {
	noCounter
	list    []penalized
	first   int  // index of the first penalty's charge
	offence bool // a Take would record an offence: see preview
}

// penalized is the penalty of a rule, and the range of charges of the rule's limits.
type penalized struct {
	lock       *sluice.Plan
	first, end int
}

func (p *penalties) reset() { p.list, p.offence = p.list[:0], false }

func (p *penalties) charge(_ *input, c *charges, s *subject, first int) {
	p.list = append(p.list, penalized{s.rule.lock, first, len(c.list)})
}

func (p *penalties) beside(_ *input, c *charges) {
	p.first, p.offence = len(c.list), false
	for _, o := range p.list {
		lock := c.list[o.first]
		lock.Plan, lock.Cost = o.lock, min(max(lock.Cost, 0), 1)
		c.list = append(c.list, lock)
	}
}

// chargeFor returns the index of the penalty's charge for limit i, or -1.
func (p *penalties) chargeFor(i int) int {
	for n := range p.list {
		if o := &p.list[n]; o.first <= i && i < o.end {
			return p.first + n
		}
	}
	return -1
}

// preview changes the receipts of the penalties to those of a Take, including the offences that a Take would record.
func (p *penalties) preview(_ *input, c *charges) {
	for n := p.first; n < p.first+len(p.list); n++ {
		lock, r := &c.list[n], &c.receipts[n]
		if lock.Cost < 1 || r.Origin == sluice.ByOnError {
			continue
		}
		state, now, origin := kernel.State{Tick: r.Tick, Used: r.Used, Prev: r.Prev}, r.Now, r.Origin
		lock.Plan.Step(state, now, lock.Cost, &r.Receipt)
		if sluice.Offends(c.list, c.receipts, n) {
			lock.Plan.Offend(state, now, &r.Receipt)
			p.offence = true
		}
		r.Origin = origin
	}
}

func (p *penalties) join(c *charges, i int, r *Result) (closed bool) {
	lock := p.chargeFor(i)
	if lock < 0 {
		return false
	}
	r.LockOut(c.list[lock].Plan.Decide(c.list[lock].Cost, c.receipts[lock]))
	return c.closed(lock)
}

// administer adds the charge of the penalty. A reset lifts the penalty; a refund does not.
func (p *penalties) administer(s *Subject, c *charges, cost int64) {
	if cost != sluice.All {
		cost = 0
	}
	p.list, p.first = append(p.list, penalized{s.rule.lock, 0, len(c.list)}), len(c.list)
	c.list = append(c.list, sluice.Charge{Key: s.charged, Plan: s.rule.lock, Cost: cost})
}

// merge makes the parts of a request commit at most one offence.
func (p *penalties) merge(_ *together, sum, c *sluice.Charge) bool {
	if c.Plan.Kernel != kernel.Lock {
		return false
	}
	sum.Cost = max(sum.Cost, c.Cost)
	return true
}
