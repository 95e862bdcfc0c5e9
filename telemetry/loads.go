package telemetry

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Classes is the number of classes of requests: see [policy.ClassNames].
const Classes = 3

// ByClass has the number of requests of each class, in the order of [policy.ClassNames].
type ByClass [Classes]uint64

// Total returns the number of requests of all classes.
func (c *ByClass) Total() uint64 { return totalOf(c[:]) }

// Add adds the numbers of o.
func (c *ByClass) Add(o *ByClass) { addTo(c[:], o[:]) }

// LoadState is the present state of a rule with "in_flight: auto". Such a rule has an automatic limit of requests in
// flight for each value of its key, on each instance.
type LoadState struct {
	Limits          uint64 // number of limits
	Limit, InFlight uint64 // sums over the limits; Limit is the sum for the class normal
	// Base is the latency while the upstream has no queue, and Latency the present latency. Both are from the limit
	// with the largest ratio of Latency to Base. They are 0 if unknown.
	Base, Latency time.Duration
	// Overloaded is when the present overload started. It is zero if no request exceeded a limit in the last minute.
	Overloaded time.Time
}

// add adds the state of other limits.
func (s *LoadState) add(o *LoadState) {
	s.Limits += o.Limits
	s.Limit += o.Limit
	s.InFlight += o.InFlight
	if worse(o.Base, o.Latency, s.Base, s.Latency) {
		s.Base, s.Latency = o.Base, o.Latency
	}
	if s.Overloaded.IsZero() || !o.Overloaded.IsZero() && o.Overloaded.Before(s.Overloaded) {
		s.Overloaded = o.Overloaded
	}
}

// worse reports whether latency is a larger multiple of base than otherLatency is of otherBase.
func worse(base, latency, otherBase, otherLatency time.Duration) bool {
	return base > 0 && (otherBase == 0 || float64(latency)*float64(otherBase) > float64(otherLatency)*float64(base))
}

// Slowdown returns Latency divided by Base, or 0 if that is unknown.
func (s *LoadState) Slowdown() float64 {
	if s.Base <= 0 {
		return 0
	}
	return float64(s.Latency) / float64(s.Base)
}

// LoadStep is the state of a rule's automatic limits in one step. Limit, Base and Latency are the values at the end of
// the step.
type LoadStep struct {
	Limit         uint64
	InFlight      uint64 // the sum, over instances, of each instance's largest sample; samples are taken once a second
	Base, Latency time.Duration
	LoadDenials
}

// LoadDenials has the number of requests that exceeded an automatic limit, by class.
type LoadDenials struct {
	Denied  ByClass
	Watched ByClass // allowed because the rule is in shadow mode, or is not enforced for the client
}

func (d *LoadDenials) add(o *LoadDenials) {
	d.Denied.Add(&o.Denied)
	d.Watched.Add(&o.Watched)
}

// loadColumns is the number of columns of a LoadStep in a post. Times are in microseconds.
const loadColumns = 4 + 2*Classes

func (s *LoadStep) column(c int) uint64 {
	switch {
	case c == 0:
		return s.Limit
	case c == 1:
		return s.InFlight
	case c == 2:
		return uint64(s.Base.Microseconds())
	case c == 3:
		return uint64(s.Latency.Microseconds())
	case c < 4+Classes:
		return s.Denied[c-4]
	}
	return s.Watched[c-4-Classes]
}

func (s *LoadStep) setColumn(c int, v uint64) {
	switch {
	case c == 0:
		s.Limit = v
	case c == 1:
		s.InFlight = v
	case c == 2:
		s.Base = time.Duration(v) * time.Microsecond
	case c == 3:
		s.Latency = time.Duration(v) * time.Microsecond
	case c < 4+Classes:
		s.Denied[c-4] = v
	default:
		s.Watched[c-4-Classes] = v
	}
}

// add adds the step of another instance.
func (s *LoadStep) add(o *LoadStep) {
	s.Limit += o.Limit
	s.InFlight += o.InFlight
	if worse(o.Base, o.Latency, s.Base, s.Latency) {
		s.Base, s.Latency = o.Base, o.Latency
	}
	s.LoadDenials.add(&o.LoadDenials)
}

// sample adds a later sample of the same instance.
func (s *LoadStep) sample(now *LoadState, added *LoadDenials) {
	s.Limit, s.InFlight = now.Limit, max(s.InFlight, now.InFlight)
	s.Base, s.Latency = now.Base, now.Latency
	s.LoadDenials.add(added)
}

// loadSteps are the steps of one rule, of one instance or of all.
type loadSteps struct{ recent, days ring[LoadStep] }

func (s *loadSteps) move(at int64) {
	s.recent.move(recentStep(at), RecentSteps)
	s.days.move(longStep(at), LongSteps)
}

// addAll adds the steps of another instance.
func (s *loadSteps) addAll(o *loadSteps) {
	addRing(&s.recent, &o.recent)
	addRing(&s.days, &o.days)
}

func addRing(to, from *ring[LoadStep]) {
	for n := max(from.first(), to.first()); n <= min(from.last, to.last) && from.cells != nil; n++ {
		to.cell(n).add(from.cell(n))
	}
}

// ruleLoads are the automatic limits of one rule on this instance. The recorder's lock guards them.
type ruleLoads struct {
	now     LoadState
	sampled LoadDenials // the denials since the start that have been added to steps
	steps   loadSteps
}

// noteLoads counts the decisions of automatic limits about a request. It reports whether a rule in shadow mode would
// have denied the request. It counts no subjects, because no single subject causes an overload.
func noteLoads(t *table, own bool, o *policy.Observation, stripe int) (would bool) {
	d := &o.Decision
	for i := range d.Loads {
		l := &d.Loads[i]
		c := t.find(o.LoadRuleIndex(i), own, l.Rule)
		if c == nil {
			continue
		}
		outcome := Allow
		switch {
		case l.Allowed:
		case l.Shadow:
			outcome, would = WouldDeny, true
			c.watched[classIndex(l)].Add(1)
		default:
			outcome = Deny
			c.denied[classIndex(l)].Add(1)
		}
		c.cells[stripe].n[outcome].Add(1)
	}
	return would
}

// classIndex returns the index of the class of the request in a ByClass.
func classIndex(l *policy.Load) int { return slices.Index(policy.ClassNames(), l.Class) }

// noteClasses counts a request as allowed for each rule that only gives it a class.
func noteClasses(t *table, own bool, o *policy.Observation, stripe int) {
	for _, rule := range o.Classifying() {
		if c := t.find(rule, own, o.Policy().RuleNames()[rule]); c != nil {
			c.cells[stripe].n[Allow].Add(1)
		}
	}
}

// loadStates returns the present state of the automatic limits of each rule of this instance.
func loadStates(e *policy.Engine) map[string]*LoadState {
	all := make(map[string]*LoadState)
	for _, name := range e.Policy().Adaptive() {
		all[name] = &LoadState{}
	}
	if len(all) == 0 {
		return nil
	}
	for _, l := range e.Loads() {
		if s := all[l.Rule]; s != nil {
			s.add(&LoadState{1, uint64(max(l.Limit, 0)), uint64(max(l.InFlight, 0)), l.Base, l.Latency, l.Overloaded})
		}
	}
	return all
}

// sampleLoads adds the counts since the last sample to the steps, and samples the present states.
func (r *Recorder) sampleLoads(t *table) {
	for name, state := range loadStates(r.engine) {
		i, known := t.byName[name]
		if !known || i >= MaxRules {
			continue // the rule has no counters of its own
		}
		c := t.rules[i]
		if c.loads == nil && state.Limits == 0 {
			continue // the rule has no request yet
		}
		if c.loads == nil {
			c.loads = new(ruleLoads)
		}
		sum := c.loadDenials()
		c.loads.sample(r.at, state, &sum)
	}
}

func (l *ruleLoads) sample(at int64, now *LoadState, sum *LoadDenials) {
	added := *sum
	for i := range added.Denied {
		added.Denied[i] -= l.sampled.Denied[i]
		added.Watched[i] -= l.sampled.Watched[i]
	}
	l.now, l.sampled = *now, *sum
	l.steps.move(at)
	l.steps.recent.cell(l.steps.recent.last).sample(now, &added)
	l.steps.days.cell(l.steps.days.last).sample(now, &added)
}

// loadDenials returns the denials since the start.
func (c *ruleCounters) loadDenials() (d LoadDenials) {
	for i := range d.Denied {
		d.Denied[i], d.Watched[i] = c.denied[i].Load(), c.watched[i].Load()
	}
	return d
}

// LoadTotals has the state of the automatic limits of one rule on this instance, and the denials by these limits.
type LoadTotals struct {
	Rule string
	LoadState
	LoadDenials // since the start
}

// Loads returns the state of each rule with "in_flight: auto", in the order of the document.
func (r *Recorder) Loads() (all []LoadTotals) {
	t, states := r.follow(), loadStates(r.engine)
	for _, name := range r.engine.Policy().Adaptive() {
		if i, known := t.byName[name]; known && i < MaxRules && states[name] != nil {
			all = append(all, LoadTotals{name, *states[name], t.rules[i].loadDenials()})
		}
	}
	return all
}

// Load is the history of a rule's automatic limits, on all instances: see [LoadState].
type Load struct {
	LoadState
	Recent []LoadStep // one for each [Step], the latest last, at most [RecentSteps]
	Days   []LoadStep // one for each [LongStep], the latest last, at most [LongSteps]
}

// LastMinute returns the number of requests of the last minute that did not fit: those that were denied, and those
// that were allowed because the rule is in shadow mode or is not enforced for the client.
func (l *Load) LastMinute() (denied, watched ByClass) {
	for i := max(len(l.Recent)-minuteSteps, 0); i < len(l.Recent); i++ {
		denied.Add(&l.Recent[i].Denied)
		watched.Add(&l.Recent[i].Watched)
	}
	return denied, watched
}

// A post of loads has a version, and for each rule its name, its state, and two lists of steps in the form of
// appendCells.
const loadVersion = 1

// postedLoads returns a post of the automatic limits of this instance, or nil if it has none.
func (r *Recorder) postedLoads() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return postOf(loadVersion, r.table.Load().rules, func(dst []byte, c *ruleCounters) []byte {
		if c.loads == nil {
			return dst
		}
		return c.loads.append(dst, c.name)
	})
}

func (l *ruleLoads) append(dst []byte, name string) []byte {
	dst = appendText(dst, name)
	s, since := &l.now, int64(0)
	if !s.Overloaded.IsZero() {
		since = s.Overloaded.Unix()
	}
	for _, n := range []uint64{s.Limits, s.Limit, s.InFlight, uint64(s.Base.Microseconds()), uint64(s.Latency.Microseconds()), uint64(since)} {
		dst = binary.AppendUvarint(dst, n)
	}
	return appendRing(appendRing(dst, &l.steps.recent), &l.steps.days)
}

// appendRing appends the steps, without those before the first that is not zero.
func appendRing(dst []byte, s *ring[LoadStep]) []byte {
	return appendCells(dst, loadColumns, sinceUsed(s, s.first()), s.last, func(n int64, c int) uint64 { return s.cell(n).column(c) })
}

// fleetLoads are the automatic limits of each rule on several instances.
type fleetLoads map[string]*ruleLoads

// rule returns the limits of a rule.
func (f fleetLoads) rule(name string, at int64) *ruleLoads {
	if f[name] == nil {
		f[name] = new(ruleLoads)
		f[name].steps.move(at)
	}
	return f[name]
}

// add adds the steps of a post and, if the parameter present is true, its states. It ignores rules that are not in
// the given list. After an error, discard f: it may have a part of the post.
func (f fleetLoads) add(post []byte, at int64, rules []string, present bool) error {
	return readRules(post, loadVersion, func(d *decoder, name string) {
		one := d.ruleLoads(at)
		if d.failed || !slices.Contains(rules, name) {
			return
		}
		if present {
			one.carry(&one.steps.recent)
			one.carry(&one.steps.days)
		}
		to := f.rule(name, at)
		to.steps.addAll(&one.steps)
		if present {
			to.now.add(&one.now)
		}
	})
}

// carry copies the state of an instance into the steps that started after its post. Otherwise, the sums over instances
// would drop in the latest steps.
func (l *ruleLoads) carry(s *ring[LoadStep]) {
	const most = 2 // steps: more than the time between posts
	for n := s.last; n > s.last-most && s.cell(n).Limit == 0; n-- {
		s.cell(n).sample(&l.now, &LoadDenials{})
	}
}

// ruleLoads reads the output of ruleLoads.append after the name.
func (d *decoder) ruleLoads(at int64) (l ruleLoads) {
	s := &l.now
	s.Limits, s.Limit, s.InFlight = d.uvarint(maxValue), d.uvarint(maxValue), d.uvarint(maxValue)
	s.Base, s.Latency = time.Duration(d.uvarint(maxMicros))*time.Microsecond, time.Duration(d.uvarint(maxMicros))*time.Microsecond
	if since := d.uvarint(maxValue); since > 0 {
		s.Overloaded = time.Unix(int64(since), 0)
	}
	l.steps.move(at)
	d.loadSteps(RecentSteps, &l.steps.recent)
	d.loadSteps(LongSteps, &l.steps.days)
	return l
}

// maxMicros is the longest latency in a post, in microseconds.
const maxMicros = 1 << 40

func (d *decoder) loadSteps(most int, to *ring[LoadStep]) {
	d.cells(loadColumns, most, func(n int64, c int, v uint64) {
		if to.has(n) {
			to.cell(n).setColumn(c, min(v, maxMicros))
		}
	})
}

// loads returns the automatic limits of each rule of the policy with "in_flight: auto", by rule.
func (f *Fleet) loads(p *policy.Policy, at int64, since, now time.Time) map[string]*Load {
	rules := p.Adaptive()
	if len(rules) == 0 {
		return nil
	}
	all := make(fleetLoads)
	_ = all.add(f.Recorder.postedLoads(), at, rules, true) // our own post is valid
	for id, o := range f.others {
		present := !f.ended[id] && o.now != nil && now.Sub(o.seenAt) <= staleAfter
		_ = all.add(o.posts[loadsPart], at, rules, present) // unreadable posts were dropped before
	}
	out := make(map[string]*Load, len(rules))
	for _, name := range rules {
		one := all.rule(name, at)
		out[name] = &Load{one.now, listOf(&one.steps.recent, recentStep(since.Unix())), listOf(&one.steps.days, longStep(since.Unix()))}
	}
	return out
}

// listOf returns all steps from the given step number on, and at least the latest step.
func listOf(s *ring[LoadStep], from int64) (all []LoadStep) {
	for n := s.since(from); n <= s.last; n++ {
		all = append(all, *s.cell(n))
	}
	return all
}
