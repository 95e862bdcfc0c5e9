package telemetry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// fleetSubjects is what several instances have posted of subjects. The zero value is that of no instance.
// It is not safe for concurrent use while anything is added.
type fleetSubjects struct {
	rules map[string]*fleetRule
	rest  [kinds][Windows]uint64 // the sum of what a subject of a rule that is in no post can have
}

type fleetRule struct {
	windows [kinds][Windows]summary
	rest    [kinds][Windows]uint64 // of the instances that have posted the rule
}

func newFleetRule() *fleetRule {
	r := new(fleetRule)
	for k := range r.windows {
		for w := range r.windows[k] {
			r.windows[k][w] = newSummary(Window(w), nil)
		}
	}
	return r
}

// mostItems is how many subjects are in a [Top].
const mostItems = 100

// add adds what export of an instance has returned. After an error everything that was added is to be thrown
// away.
func (f *fleetSubjects) add(post []byte) error {
	if len(post) == 0 {
		return nil
	}
	d := &decoder{rest: post}
	if len(post) > mostPosted || d.byte() != postedVersion {
		return errUnreadable
	}
	if f.rules == nil {
		f.rules = make(map[string]*fleetRule)
	}
	var rest [kinds][Windows]uint64
	for k := range rest {
		for w := range rest[k] {
			rest[k][w] = d.uvarint(maxCount)
			f.rest[k][w] += rest[k][w]
		}
	}
	for n := d.uvarint(mostRules); n > 0 && !d.failed; n-- {
		name := d.bytes(d.uvarint(mostPosted))
		r := f.rules[string(name)]
		if r == nil {
			r = newFleetRule()
			f.rules[string(name)] = r
		}
		for k := range r.windows {
			for w := range r.windows[k] {
				r.windows[k][w].merge(d)
				r.rest[k][w] += rest[k][w]
			}
		}
	}
	if d.failed || len(d.rest) > 0 {
		return errUnreadable
	}
	return nil
}

// fill sets what a rule of a view tells of subjects.
func (f *fleetSubjects) fill(r *Rule, p *policy.Policy, at time.Time) {
	known := f.rules[r.Name]
	if known == nil {
		known = newFleetRule()
	}
	shown := func(key, sent string) (string, string) { return key, p.ShownSent(key, sent) }
	for w := range Window(Windows) {
		r.Refused[w], r.Refusals[w] = known.top(f, refusals, w, shown, at)
		r.Asked[w], r.Traffic[w] = known.top(f, traffic, w, shown, at)
	}
}

// top returns how many subjects there were in a window, and the first of them. shown returns the key that the
// admin API knows a subject by, and what people are to see of it.
func (r *fleetRule) top(f *fleetSubjects, k kind, w Window, shown func(key, sent string) (string, string), at time.Time) (subjects uint64, top Top) {
	s := &r.windows[k][w]
	untold := f.rest[k][w] - r.rest[k][w]
	top.Total = s.total
	top.Error = s.floor + untold
	order := s.largest()
	if len(order) > mostItems {
		top.Error += order[mostItems].over
		order = order[:mostItems]
	}
	for _, e := range order {
		one := Subject{Sent: cmp.Or(e.sent, e.key), Count: e.over + s.floor + untold, Blocked: e.blocked, Limit: e.limit.limit()}
		if one.Key, one.Shown = shown(e.key, one.Sent); one.Key != "" {
			one.ID = SubjectID(one.Key)
		}
		one.Error = one.Count - e.low
		one.First, one.Last = time.UnixMilli(e.first), time.UnixMilli(e.last)
		one.Minutes, one.Steps = r.lately(k, e.key, at)
		top.Items = append(top.Items, one)
	}
	return s.subjects(), top
}

// lately returns in how many minutes of the last hour a subject is known to have been counted, and how often in
// each step.
func (r *fleetRule) lately(k kind, key string, at time.Time) (minutes int, counts [SubjectSteps]uint64) {
	e := r.windows[k][Hour].get(key)
	if e == nil {
		return 0, counts
	}
	steps, now := e.bySteps(), at.UnixMilli()/stepMillis
	for i := range counts {
		counts[i] = steps[(now-int64(SubjectSteps-1-i))&(stepPlaces-1)]
	}
	return min(bits.OnesCount64(e.minutes), 60), counts
}

// SubjectID returns the ID of the subject with that key, which is the same on all instances: see
// [Subject]. A caller who can guess the key can verify the guess.
func SubjectID(key string) string {
	h := sha256.Sum256([]byte("sluice subject\x00" + key))
	return hex.EncodeToString(h[:8])
}

// find returns the key of a subject, as it was sent, by its ID, if it is in a summary.
func (f *fleetSubjects) find(id string, p *policy.Policy) (key string, found bool) {
	for name, r := range f.rules {
		for k := range r.windows {
			for w := range r.windows[k] {
				for _, e := range r.windows[k][w].entries {
					key := e.key
					if strings.HasPrefix(name, tierPrefix) && !strings.Contains(key, "/") {
						key, _ = p.TierCustomer(key)
					}
					if SubjectID(key) == id {
						return cmp.Or(e.sent, key), true
					}
				}
			}
		}
	}
	return "", false
}
