package telemetry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// UnreadReasons has the reasons why a response does not report its cost: see [policy.Settlement].
var UnreadReasons = [...]string{"encoded", "type", "malformed", "missing", "interrupted", "no_body", "other"}

// Costs has sums of the costs of responses under a rule, and counts how good the estimates were. A request is added
// when its response has ended; a request that is never settled is missing.
type Costs struct {
	Responses uint64
	// Reserved is the sum of the charges before the responses, and Settled the sum of the final charges. Both are
	// in the unit of the rule, which is a micro-USD for [policy.USD].
	Reserved, Settled uint64
	// High counts the responses with a reserved charge of more than twice the cost, Low those with a reserved
	// charge below the cost, and Close all others. Responses that do not report their cost, or cost nothing, are in
	// none of them.
	High, Low, Close uint64
	Indebted         uint64 // number of times that a response left a limit in debt
	// Unread is the number of responses that did not report their cost, for each of UnreadReasons.
	Unread [len(UnreadReasons)]uint64
}

const costColumns = 7 + len(UnreadReasons)

// cells returns pointers to the numbers of c.
func (c *Costs) cells() (all [costColumns]*uint64) {
	copy(all[:], []*uint64{&c.Responses, &c.Reserved, &c.Settled, &c.High, &c.Low, &c.Close, &c.Indebted})
	for i := range c.Unread {
		all[costColumns-len(c.Unread)+i] = &c.Unread[i]
	}
	return all
}

// Add adds the costs of o.
func (c *Costs) Add(o *Costs) {
	from := o.cells()
	for i, n := range c.cells() {
		*n += *from[i]
	}
}

// AllUnread returns the sum of Unread.
func (c *Costs) AllUnread() uint64 { return totalOf(c.Unread[:]) }

// costsOf returns the costs of a settlement. Only the settlement of a request's first limit has all costs. The
// settlements of further limits have only debts.
func costsOf(s *policy.Settlement) (c Costs) {
	if s.Owed > 0 {
		c.Indebted = 1
	}
	if s.Index > 0 {
		return c
	}
	reserved, settled := s.Amounts()
	c.Responses, c.Reserved, c.Settled = 1, uint64(max(reserved, 0)), uint64(max(settled, 0))
	switch {
	case s.Unread != "":
		reason := slices.Index(UnreadReasons[:], s.Unread)
		if reason < 0 {
			reason = len(UnreadReasons) - 1
		}
		c.Unread[reason] = 1
	case c.Settled == 0:
	case c.Reserved/2 > c.Settled:
		c.High = 1
	case c.Reserved < c.Settled:
		c.Low = 1
	default:
		c.Close = 1
	}
	return c
}

// CostSteps is the number of LongSteps for which costs are kept: a day and the current step.
const CostSteps = 289

// ruleCosts are the costs of one rule on this instance.
type ruleCosts struct {
	mu    sync.Mutex
	unit  policy.Unit
	total Costs // since the start or, if the unit has changed, since the first cost in this unit
	steps costSteps

	models map[string]*uint64 // cost of each model, over the same time as total
}

func (r *ruleCosts) add(at int64, unit policy.Unit, c *Costs, model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unit != unit {
		r.unit, r.total, r.steps, r.models = unit, Costs{}, costSteps{}, nil
	}
	r.total.Add(c)
	if c.Settled > 0 {
		*r.model(model, c.AllUnread() == 0) += c.Settled
	}
	r.steps.move(longStep(at))
	r.steps.cell(r.steps.last).Add(c)
}

// maxModels is how many models of a rule are counted by name, and maxModel the length of a name in bytes. Both are
// bounded because clients write the names.
const (
	maxModels = 20
	maxModel  = 64
)

// OtherModels is the name for all models of a rule after the first 20, and for models with names that are long, not
// ASCII, or known only from requests. They are counted together.
const OtherModels = "*other"

// model returns the cell of a model. A new name is added only if the upstream has answered for the model.
func (r *ruleCosts) model(name string, answered bool) *uint64 {
	if cell := r.models[name]; cell != nil {
		return cell
	}
	if name == "" || len(name) > maxModel || !printable.ASCII(name) || !answered || len(r.models) >= maxModels {
		name = OtherModels
	}
	if r.models == nil {
		r.models = make(map[string]*uint64)
	}
	cell := r.models[name]
	if cell == nil {
		cell = new(uint64)
		r.models[strings.Clone(name)] = cell
	}
	return cell
}

// costSteps has the costs of the latest LongSteps. It takes 32 KiB once there is a cost.
type costSteps struct{ ring[Costs] }

func (s *costSteps) move(n int64) { s.ring.move(n, CostSteps) }

// observeSettled counts the cost of a response, once for all limits of the rule.
func (r *Recorder) observeSettled(_ context.Context, s *policy.Settlement) {
	if s.Unit == policy.NoUnit || s.Index > 0 && s.Owed == 0 {
		return
	}
	t := r.table.Load()
	if !t.isFor(r.engine.Policy().RuleNames()) {
		t = r.follow()
	}
	i, known := t.byName[s.Rule]
	if !known || i >= MaxRules { // the rule has left the policy, or has no counters of its own
		return
	}
	c, now := costsOf(s), time.Now()
	t.at(i).costs.add(now.Unix(), s.Unit, &c, s.Model)
	if r.subjects != nil && c.Settled > 0 {
		r.subjects.noteCost(s.Rule, s.Key, s.Unit, c.Settled, now.UnixMilli())
	}
}

// CostTotals has the costs of one rule on this instance since its start or, if the unit of the rule's costs has changed,
// since the first response with the present unit.
type CostTotals struct {
	policy.Budget
	Costs
	// Models has the costs of each model, which add up to Settled. At most 20 models have their names, and all others
	// are OtherModels.
	Models map[string]uint64
}

// Costs returns the costs of each of [policy.Policy.Budgets].
func (r *Recorder) Costs() (all []CostTotals) {
	t := r.follow()
	for _, b := range r.engine.Policy().Budgets() {
		one := CostTotals{Budget: b}
		if i, known := t.byName[b.Rule]; known && i < MaxRules {
			if c := &t.rules[i].costs; c.hasUnit(b.Unit) {
				one.Costs, one.Models = c.totals()
			}
			all = append(all, one)
		}
	}
	return all
}

func (r *ruleCosts) hasUnit(u policy.Unit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unit == u
}

func (r *ruleCosts) totals() (Costs, map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	models := make(map[string]uint64, len(r.models))
	for name, n := range r.models {
		models[name] = *n
	}
	return r.total, models
}

// Budget is the history of the costs of a rule that reads them from bodies of responses.
type Budget struct {
	Unit  policy.Unit
	Steps []Costs // CostSteps elements, one for each LongStep, the latest last
	// Spenders has the subjects with the highest costs. Their counts are in the unit of the rule, and their Limit
	// is unset.
	Spenders [Windows]Top
}

// Last returns the costs of the latest n steps, including the current one.
func (b *Budget) Last(n int) (sum Costs) {
	for i := range b.Steps[len(b.Steps)-min(n, len(b.Steps)):] {
		sum.Add(&b.Steps[len(b.Steps)-1-i])
	}
	return sum
}

// A post of costs has a version, and for each rule its name, its unit, and the steps in the form of appendCells.
const costVersion = 1

// postedCosts returns a post of the costs of this instance, or nil if no costs have been counted.
func (r *Recorder) postedCosts() []byte {
	return postOf(costVersion, r.follow().rules, func(dst []byte, c *ruleCounters) []byte { return c.costs.append(dst, c.name) })
}

func (r *ruleCosts) append(dst []byte, name string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.steps
	if s.cells == nil {
		return dst
	}
	dst = append(appendText(dst, name), byte(r.unit))
	return appendCells(dst, costColumns, sinceUsed(&s.ring, s.first()), s.last, func(n int64, column int) uint64 { return *s.cell(n).cells()[column] })
}

// fleetCosts has the costs of each rule on several instances.
type fleetCosts map[string]*costSteps

// add adds a post. It ignores costs if their unit is not the unit in the policy. After an error, discard f: it may
// have a part of the post.
func (f fleetCosts) add(post []byte, at int64, p *policy.Policy) error {
	return readRules(post, costVersion, func(d *decoder, name string) {
		unit := policy.Unit(d.byte())
		ours := unit != policy.NoUnit && unit == p.UnitOf(name)
		if ours && f[name] == nil {
			f[name] = new(costSteps)
			f[name].move(longStep(at))
		}
		d.cells(costColumns, CostSteps, func(n int64, column int, v uint64) {
			if s := f[name]; ours && s.has(n) {
				*s.cell(n).cells()[column] += v
			}
		})
	})
}

// budgets returns the budget of each rule of the policy that has one.
func (f *Fleet) budgets(p *policy.Policy, now time.Time) map[string]*Budget {
	budgets := p.Budgets()
	if len(budgets) == 0 {
		return nil
	}
	costs, at := make(fleetCosts), now.Unix()
	_ = costs.add(f.Recorder.postedCosts(), at, p) // our own post is valid
	for _, o := range f.others {
		_ = costs.add(o.posts[costsPart], at, p) // unreadable posts were dropped before
	}
	all := make(map[string]*Budget, len(budgets))
	for _, b := range budgets {
		out := &Budget{Unit: b.Unit, Steps: make([]Costs, CostSteps)}
		if known := costs[b.Rule]; known != nil {
			for i := range out.Steps {
				out.Steps[i] = *known.cell(known.first() + int64(i))
			}
		}
		f.subjects.spenders(b.Rule, out, p, now)
		all[b.Rule] = out
	}
	return all
}
