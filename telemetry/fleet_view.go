package telemetry

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// viewFor is how long a view is reused.
const viewFor = time.Second

// View returns the counts of all instances. It may be a second old.
func (f *Fleet) View() *View {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.viewedAt = now
	if f.view != nil {
		if age := now.Sub(f.view.At); age >= 0 && age < viewFor && f.view.watchOnly == f.Recorder.engine.Policy().WatchOnly() {
			return f.view
		}
	}
	f.view = f.merge(now)
	return f.view
}

// merge makes a view of the counts of this instance and the posts of others.
func (f *Fleet) merge(now time.Time) *View {
	r := f.Recorder
	store := f.store()
	v := &View{At: now, Since: r.started}
	p := r.engine.Policy()
	v.watchOnly, v.engine = p.WatchOnly(), r.engine
	rules := make(map[string]*series)

	r.mu.Lock()
	r.sampleLocked(now)
	t := r.table.Load()
	at := r.at
	all := newSeries(at)
	all.addSeries(r.all)
	for _, c := range t.rules {
		rules[c.name] = nil
		if c.history != nil {
			s := newSeries(at)
			s.addSeries(c.history)
			rules[c.name] = s
		}
	}
	upstreams := r.copyUpstreams()
	self := r.head(now, store)
	self.Events = slices.Clone(self.Events)
	r.mu.Unlock()

	self.Self, self.Seen = true, now
	v.Instances = []Instance{self.Instance}
	v.Events = self.Events
	sumsOf := func(name string) *series {
		if name == "" {
			return all
		}
		s, known := rules[name]
		if known && s == nil {
			s = newSeries(at)
			rules[name] = s
		}
		return s
	}
	f.join(now)
	to := sums{sumsOf, upstreams.sum(at)}
	for id, o := range f.others {
		fromRecent, fromLong := int64(math.MaxInt64), int64(math.MaxInt64)
		v.Since = earlier(v.Since, o.head.Started)
		if o.now != nil {
			fromRecent, fromLong = o.head.FromRecent, o.head.FromLong
			i := o.head.Instance
			i.Seen = o.seenAt
			i.Differs = i.Policy != self.Policy && now.Sub(later(o.changedAt, t.since)) >= differsAfter
			if i.Stale = now.Sub(o.seenAt) > staleAfter; !f.ended[id] && !f.replaced(&i) {
				v.Instances = append(v.Instances, i)
			}
			_, _ = readPost(o.now, math.MaxInt64, math.MaxInt64, to) // no error: the post was checked when it was read
			v.Events = append(v.Events, o.head.Events...)
		}
		if o.history != nil {
			h, _ := readPost(o.history, fromRecent, fromLong, to)
			v.Events = append(v.Events, h.Events...)
		}
	}
	v.Since = later(v.Since, now.Add(-LongSteps*LongStep))
	v.All = all.counts(v.Since)
	v.Malformed = all.recentSum(RecentSteps)[nearColumn]
	v.Rules = make([]Rule, 0, len(t.rules))
	known, budgets := spansOf(all, v.Since, at), f.budgets(p, now)
	loads := f.loads(p, at, v.Since, now)
	for i, c := range t.rules {
		s := rules[c.name]
		if i >= len(t.rules)-2 && s == nil {
			continue
		}
		rule := Rule{Name: c.name, Budget: budgets[c.name], Load: loads[c.name]}
		if s != nil {
			rule.Series, rule.Near = s.counts(v.Since), s.near()
		}
		known := known.usual(s)
		rule.Usual, rule.usualShare = known.rate, known.share
		f.subjects.fill(&rule, p, now)
		v.Rules = append(v.Rules, rule)
	}
	v.Tiers = f.subjects.tiers(t, p, now)
	v.Upstreams = upstreams.view(v)
	slices.SortFunc(v.Instances, func(a, b Instance) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Started.Compare(b.Started))
	})
	v.Events = latest(v.Events)
	return v
}

// replaced reports whether an instance is stale and a later run has its name, as after a crash.
func (f *Fleet) replaced(i *Instance) bool {
	if !i.Stale {
		return false
	}
	own := f.Recorder
	if own.config.Instance == i.Name && own.started.After(i.Started) {
		return true
	}
	for _, o := range f.others {
		if o.head.Name == i.Name && o.head.Started.After(i.Started) {
			return true
		}
	}
	return false
}

// join merges the subjects of all instances. The merge takes milliseconds, so join repeats it at most once in
// postEvery.
func (f *Fleet) join(now time.Time) {
	if age := now.Sub(f.joinedAt); f.subjects != nil && age >= 0 && age < postEvery {
		return
	}
	f.subjects, f.joinedAt = make(fleetSubjects), now
	if own := f.Recorder.subjects; own != nil {
		_ = f.subjects.add(own.export(now)) // our own post is valid
	}
	for _, o := range f.others {
		_ = f.subjects.add(o.posts[subjectsPart]) // unreadable posts were dropped before
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// latest returns at most maxEvents events without duplicates, the latest first.
func latest(all []Event) []Event {
	type same struct {
		at                   int64
		kind, text, instance string
	}
	seen := make(map[same]bool, len(all))
	kept := all[:0]
	for _, e := range all {
		id := same{e.At.UnixNano(), e.Kind, e.Text, e.Instance}
		if !seen[id] {
			seen[id] = true
			kept = append(kept, e)
		}
	}
	slices.SortStableFunc(kept, func(a, b Event) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Instance, b.Instance))
	})
	return fewer(kept)
}

// fewer returns at most maxEvents events of a list that starts with the latest. It removes the oldest events of the
// most frequent kind. So a kind with many events, as from a flapping circuit breaker, leaves room for other kinds.
func fewer(all []Event) []Event {
	kinds := make(map[string]int)
	for _, e := range all {
		kinds[e.Kind]++
	}
	for len(all) > maxEvents {
		most := all[0].Kind
		for _, e := range all {
			if kinds[e.Kind] > kinds[most] {
				most = e.Kind
			}
		}
		kinds[most]--
		for i, e := range slices.Backward(all) {
			if e.Kind == most {
				all = slices.Delete(all, i, i+1)
				break
			}
		}
	}
	return all
}

// counts returns the counts of the steps since a time.
func (s *series) counts(since time.Time) (c Series) {
	c.Recent, c.blockedRecent = countsSince(&s.recent, recentStep(since.Unix()))
	c.Days, c.blockedDays = countsSince(&s.days, longStep(since.Unix()))
	return c
}

// countsSince returns the counts of all steps from the given step number on, and the number of denials by a block
// in each of these steps.
func countsSince(s *steps[[columns]uint32], from int64) (all []Counts, blocked perStep) {
	from = s.since(from)
	for n := from; n <= s.last; n++ {
		var c Counts
		cell := s.cell(n)
		for i := range c {
			c[i] = uint64(cell[i])
		}
		all = append(all, c)
		if cell[blockedColumn] > 0 {
			if blocked == nil {
				blocked = make(perStep, s.last-from+1)
			}
			blocked[n-from] = uint64(cell[blockedColumn])
		}
	}
	return all, blocked
}

// perStep has a number for each step; nil has only zeros.
type perStep []uint64

func (p perStep) at(i int) uint64 {
	if p == nil {
		return 0
	}
	return p[i]
}

// These are the numbers of steps in a minute and a day, including the current step.
const (
	minuteSteps = 7
	daySteps    = 289
)

// near returns how many decisions of each window left less than a fifth of the limit.
func (s *series) near() (n [Windows]uint64) {
	n[Minute] = s.recentSum(minuteSteps)[nearColumn]
	n[Hour] = s.recentSum(RecentSteps)[nearColumn]
	n[Day] = s.longSum(daySteps)[nearColumn]
	return n
}
