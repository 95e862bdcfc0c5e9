package telemetry

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// viewFor is how long a view is good for.
const viewFor = time.Second

// View returns what was seen until now, at most a second ago.
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

// merge makes a view of what this instance has counted and what others have said.
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
	self := r.head(now, store)
	self.events = slices.Clone(self.events)
	r.mu.Unlock()

	v.Instances = []Instance{self.instance(true, now)}
	v.Events = self.events
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
	for _, o := range f.others {
		fromRecent, fromLong := int64(math.MaxInt64), int64(math.MaxInt64)
		v.Since = earlier(v.Since, o.head.started)
		if o.now != nil {
			fromRecent, fromLong = o.head.fromRecent, o.head.fromLong
			i := o.head.instance(false, o.seenAt)
			i.Differs = i.Policy != self.policy && now.Sub(later(o.changedAt, t.since)) >= differsAfter
			if i.Stale = now.Sub(o.seenAt) > staleAfter; !o.left && !f.succeeded(&i) {
				v.Instances = append(v.Instances, i)
			}
			_, _ = readPost(o.now, math.MaxInt64, math.MaxInt64, sumsOf) // it was read before
			v.Events = append(v.Events, o.head.events...)
		}
		if o.history != nil {
			h, _ := readPost(o.history, fromRecent, fromLong, sumsOf)
			v.Events = append(v.Events, h.events...)
		}
	}
	v.Since = later(v.Since, now.Add(-LongSteps*LongStep))
	v.All, v.blocked = all.counts(v.Since), all.blocked(v.Since)
	v.Malformed = all.recent.latest(RecentSteps)[nearColumn]
	v.Rules = make([]Rule, 0, len(t.rules))
	known := spansOf(all, v.Since, at)
	for i, c := range t.rules {
		s := rules[c.name]
		if i >= len(t.rules)-2 && s == nil {
			continue
		}
		rule := Rule{Name: c.name}
		if s != nil {
			rule.Series, rule.Near = s.counts(v.Since), s.near()
			rule.blocked = s.blocked(v.Since)
		}
		known := known.usual(s)
		rule.Usual, rule.usualShare = known.rate, known.share
		f.subjects.fill(&rule, p, now)
		v.Rules = append(v.Rules, rule)
	}
	v.Tiers = f.subjects.tiers(t, p, now)
	slices.SortFunc(v.Instances, func(a, b Instance) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Started.Compare(b.Started))
	})
	v.Events = latest(v.Events)
	return v
}

// succeeded reports whether an instance is silent and another run has had its name since, as after a crash.
func (f *Fleet) succeeded(i *Instance) bool {
	if !i.Stale {
		return false
	}
	own := f.Recorder
	if own.config.Instance == i.Name && own.started.After(i.Started) {
		return true
	}
	for _, o := range f.others {
		if o.head.name == i.Name && o.head.started.After(i.Started) {
			return true
		}
	}
	return false
}

// join puts together who is refused and who asks most. That takes milliseconds, and what others say
// of it does not change more often.
func (f *Fleet) join(now time.Time) {
	if age := now.Sub(f.joinedAt); f.subjects != nil && age >= 0 && age < postEvery {
		return
	}
	f.subjects, f.joinedAt = make(fleetSubjects), now
	if own := f.Recorder.subjects; own != nil {
		_ = f.subjects.add(own.export(now)) // it was written here
	}
	for _, o := range f.others {
		_ = f.subjects.add(o.subjects) // what could not be read was left out
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (h *head) instance(self bool, seen time.Time) Instance {
	return Instance{
		Name: h.name, Self: self, Started: h.started, Seen: seen, Version: h.version, Policy: h.policy,
		Store: h.store, Took: h.took,
	}
}

// latest returns the latest events, each once, the latest first.
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

// fewer returns the latest events of a list that begins with them, at most maxEvents. Those of a kind that comes
// again and again, such as a circuit that flaps, leave room for all others.
func fewer(all []Event) []Event {
	if len(all) <= maxEvents {
		return all
	}
	kinds := make(map[string]int)
	for _, e := range all {
		kinds[e.Kind]++
	}
	counts := slices.Sorted(maps.Values(kinds))
	left, each := maxEvents, 0 // of each kind
	for i, n := range counts {
		if each = left / (len(counts) - i); n > each {
			break
		}
		left -= n
	}
	each = max(each, 1)
	clear(kinds)
	kept := all[:0]
	for _, e := range all {
		if kinds[e.Kind]++; kinds[e.Kind] <= each && len(kept) < maxEvents {
			kept = append(kept, e)
		}
	}
	return kept
}

// counts returns the counts of the steps since a time.
func (s *series) counts(since time.Time) Series {
	return Series{
		Recent: s.recent.counts(recentStep(since.Unix())),
		Days:   s.days.counts(longStep(since.Unix())),
	}
}

func (s *steps) counts(from int64) (all []Counts) {
	for n := s.since(from); n <= s.last; n++ {
		var c Counts
		for i := range c {
			c[i] = uint64(s.cell(n)[i])
		}
		all = append(all, c)
	}
	return all
}

// blocked is how many refusals of each step of a series a block made.
type blocked struct{ recent, days perStep }

// perStep is a number for each step; nil: zero for each.
type perStep []uint64

func (p perStep) at(i int) uint64 {
	if p == nil {
		return 0
	}
	return p[i]
}

func (s *series) blocked(since time.Time) blocked {
	return blocked{s.recent.blocked(recentStep(since.Unix())), s.days.blocked(longStep(since.Unix()))}
}

func (s *steps) blocked(from int64) (all perStep) {
	from = s.since(from)
	for step := from; step <= s.last; step++ {
		if n := s.cell(step)[blockedColumn]; n > 0 {
			if all == nil {
				all = make(perStep, s.last-from+1)
			}
			all[step-from] = uint64(n)
		}
	}
	return all
}

// Steps of each window, with the one that is under way.
const (
	minuteSteps = 7
	daySteps    = 289
)

// near returns how many decisions of each window left little.
func (s *series) near() (n [Windows]uint64) {
	n[Minute] = s.recent.latest(minuteSteps)[nearColumn]
	n[Hour] = s.recent.latest(RecentSteps)[nearColumn]
	n[Day] = s.days.latest(daySteps)[nearColumn]
	return n
}
