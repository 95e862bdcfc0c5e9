package telemetry

import (
	"context"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// table has the counters of the rules of a policy. Only its counters change.
type table struct {
	names []string // policy.RuleNames, by which policies with the same rules are recognized
	// rules has counters for at most MaxRules rules, in the order of the document. Then come the counters of all
	// other rules together, and those of limits that callers send.
	rules  []*ruleCounters
	byName map[string]int // the index of a rule in the document
	// tiers has the name under which the customers of each tier are kept: see tierRules. It is empty if the policy
	// has no tiers.
	tiers map[string]string
	since time.Time // when the table was made, soon after its rules came into force
}

func (t *table) caller() *ruleCounters { return t.rules[len(t.rules)-1] }

// at returns the counters of the rule with the given index in the document.
func (t *table) at(i int) *ruleCounters { return t.rules[min(i, len(t.rules)-2)] }

// find returns the counters of a rule, or nil if the rule has left the policy. i is the index of the rule in the
// document of an observation. If the parameter own is false, the table belongs to another document, and find looks
// the rule up by name.
func (t *table) find(i int, own bool, name string) *ruleCounters {
	if !own {
		at, known := t.byName[name]
		if !known {
			return nil
		}
		i = at
	}
	if i < 0 {
		return nil
	}
	return t.at(i)
}

// isFor reports whether the table is for the rules with these names.
func (t *table) isFor(names []string) bool {
	return len(t.names) == len(names) && unsafe.SliceData(t.names) == unsafe.SliceData(names)
}

// callers is the value of From in results for limits that callers supply: see policy.Result.
const callers = "caller"

// follow returns the table for the policy in force, and replaces the table if the policy has other rules. Rules
// keep their counters by name.
func (r *Recorder) follow() *table {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.followLocked()
}

func (r *Recorder) followLocked() *table {
	old, names := r.table.Load(), r.engine.Policy().RuleNames()
	if old != nil && old.isFor(names) {
		return old
	}
	own := min(len(names), MaxRules)
	t := &table{tiers: tierRules(r.engine.Policy().TierNames()), since: time.Now(), names: names, rules: make([]*ruleCounters, 0, own+2), byName: make(map[string]int, len(names))}
	var kept map[string]*ruleCounters
	if old != nil {
		kept = make(map[string]*ruleCounters, len(old.rules))
		for _, c := range old.rules {
			kept[c.name] = c
		}
	}
	for _, name := range append(slices.Clip(names[:own]), OtherRules, CallerRule) {
		c := kept[name]
		if c == nil {
			c = newRuleCounters(name)
		}
		t.rules = append(t.rules, c)
	}
	for i, name := range names {
		t.byName[name] = i
	}
	r.table.Store(t)
	return t
}

func (r *Recorder) observe(_ context.Context, o *policy.Observation) {
	if o.Request.Mode != policy.Charge {
		return
	}
	stripe := stripeOf(o.Request)
	d := &o.Decision
	if d.Repeated && d.Allowed {
		cell := &r.door(o.Request.Door).cells[stripe]
		cell.repeated.Add(1)
		cell.timed(o)
		return
	}
	t := r.table.Load()
	names := o.Policy().RuleNames()
	if !t.isFor(names) {
		t = r.follow()
	}
	own := t.isFor(names) // false if another policy has come into force since the decision
	at := int64(0)
	if r.subjects != nil {
		at = o.Began.Add(o.Took).UnixNano()
	}
	would, marked, local := o.Pardoned() != "", false, d.Degraded
	for i := 0; i < len(d.Results); {
		first := i
		judged := judge(d, &i)
		would, marked = would || judged.outcome == WouldDeny, marked || judged.outcome == Marked
		local = local || judged.local
		result := &d.Results[first]
		c := t.caller()
		if result.From != callers {
			if c = t.find(o.RuleIndex(first), own, result.Rule); c == nil {
				continue
			}
		}
		cell := &c.cells[stripe]
		cell.n[judged.outcome].Add(1)
		if judged.near {
			cell.n[nearColumn].Add(1)
		}
		if judged.local {
			cell.local.Add(1)
		}
		if judged.blocked {
			cell.n[blockedColumn].Add(1)
		}
		if r.subjects != nil {
			r.subjects.note(o, first, c.name, &judged, at)
		}
	}
	noteClasses(t, own, o, stripe)
	if len(d.Loads) > 0 && noteLoads(t, own, o, stripe) {
		would = true
	}
	if r.subjects != nil && len(t.tiers) > 0 {
		r.subjects.noteCustomer(o, t, at)
	}
	cell := &r.door(o.Request.Door).cells[stripe]
	cell.n[overall(d, would, marked)].Add(1)
	switch {
	case d.Blocked != "":
		cell.blocked.Add(1)
	case d.Exempt:
		cell.exempt.Add(1)
	case d.Missing != "":
		cell.malformed.Add(1)
	case d.Overloaded != "":
		cell.overloaded[classIndex(&d.Loads[len(d.Loads)-1])].Add(1)
	}
	if local {
		cell.local.Add(1)
	}
	cell.timed(o)
}

func (c *doorCell) timed(o *policy.Observation) {
	c.took[bucket(o.Took)].Add(1)
	c.sum.Add(int64(o.Took))
}

// overall returns the outcome of a request over all rules.
func overall(d *policy.Decision, would, marked bool) Outcome {
	switch {
	case !d.Allowed:
		return Deny
	case marked:
		return Marked
	case would:
		return WouldDeny
	case d.Degraded:
		return Degraded
	case d.Delay > 0:
		return Delayed
	}
	return Allow
}

// judgement is the outcome of one rule for a request.
type judgement struct {
	outcome              Outcome
	near, local, blocked bool
	// plan is the plan of the denying limit with the longest wait, or else of the limit with the smallest
	// fraction left.
	plan *sluice.Plan
}

// judge returns the outcome of one rule, over all of its limits. The results of the rule start at index i; judge
// sets i to the index after them.
func judge(d *policy.Decision, i *int) (j judgement) {
	rule, shadow, marks := d.Results[*i].Rule, d.Results[*i].Shadow, d.Results[*i].Marks
	refuses, delays := false, false
	wait, tightest := time.Duration(-1), (*policy.Result)(nil)
	for ; *i < len(d.Results) && d.Results[*i].Rule == rule; *i++ {
		r := &d.Results[*i]
		if !r.Allowed {
			refuses = true
			j.blocked = j.blocked || r.Plan == nil && !shadow
			if r.RetryAfter > wait {
				wait, j.plan = r.RetryAfter, r.Plan
			}
		} else if !refuses && r.Plan != nil && (tightest == nil || float64(r.Remaining)*float64(tightest.Plan.Capacity) < float64(tightest.Remaining)*float64(r.Plan.Capacity)) {
			tightest, j.plan = r, r.Plan
		}
		delays = delays || r.Delay > 0
		j.local = j.local || r.Origin.Degraded()
		// If Now is 0, the remaining units are unknown.
		j.near = j.near || r.Plan != nil && d.Now != 0 && r.Remaining*5 < r.Plan.Capacity
	}
	switch {
	case refuses && marks && d.Allowed:
		j.outcome = Marked
	case refuses && marks: // another rule denies the request, so it is not marked
	case refuses && shadow:
		j.outcome = WouldDeny
	case refuses:
		j.outcome = Deny
	case j.local:
		j.outcome = Degraded
	case delays && d.Allowed:
		j.outcome = Delayed
	}
	j.near = j.near && !refuses
	return j
}

const maxDoors = 16

// OtherDoors is the name under which all doors after the first sixteen are counted together.
const OtherDoors = "*other"

// door returns the counters of a door.
func (r *Recorder) door(name string) *doorCounters {
	for _, c := range *r.doors.Load() {
		if c.name == name {
			return c
		}
	}
	if all := *r.doors.Load(); len(all) > maxDoors {
		return all[maxDoors]
	}
	return r.addDoor(name)
}

func (r *Recorder) addDoor(name string) *doorCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := *r.doors.Load()
	if len(all) >= maxDoors {
		name = OtherDoors
	}
	for _, c := range all {
		if c.name == name {
			return c
		}
	}
	c := newDoorCounters(strings.Clone(name))
	all = append(slices.Clip(all), c)
	r.doors.Store(&all)
	return c
}
