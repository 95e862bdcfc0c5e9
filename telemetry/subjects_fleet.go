package telemetry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// fleetSubjects has the subjects of each rule from the posts of several instances. It is not safe for concurrent
// use while posts are added.
type fleetSubjects map[string]*fleetRule

// fleetRule has the subjects of one rule from the posts of several instances.
type fleetRule [kinds][Windows]summary

func newFleetRule() *fleetRule {
	r := new(fleetRule)
	for k := range r {
		for w := range r[k] {
			r[k][w] = newSummary(Window(w))
		}
	}
	return r
}

// mostItems is the maximum number of subjects in a [Top].
const mostItems = 100

// add adds a post that [subjects.export] has made. After an error, discard f: it may have a part of the post.
func (f fleetSubjects) add(post []byte) error {
	if len(post) == 0 {
		return nil
	}
	d := &decoder{rest: post}
	if len(post) > maxPost || d.byte() != postedVersion {
		return errUnreadable
	}
	for n := 0; len(d.rest) > 0 && n < mostRules; n++ {
		name := string(d.bytes(d.uvarint(maxPost)))
		r := f[name]
		if r == nil {
			r = newFleetRule()
			f[name] = r
		}
		for k := range r {
			for w := range r[k] {
				r[k][w].merge(d)
			}
		}
	}
	if d.failed || len(d.rest) > 0 {
		return errUnreadable
	}
	return nil
}

// fill sets the subjects of a rule in a view.
func (f fleetSubjects) fill(r *Rule, p *policy.Policy, at time.Time) {
	known := f[r.Name]
	if known == nil {
		known = newFleetRule()
	}
	shown := func(key, sent string) (string, string) { return key, p.ShownSent(key, sent) }
	for w := range Window(Windows) {
		r.Refused[w], r.Refusals[w] = known.top(refusals, w, shown, at)
		r.Asked[w], r.Traffic[w] = known.top(traffic, w, shown, at)
	}
}

// spenders sets the spenders of a rule's budget.
func (f fleetSubjects) spenders(rule string, b *Budget, p *policy.Policy, at time.Time) {
	known := f[rule]
	if known == nil {
		return
	}
	shown := func(key, sent string) (string, string) { return key, p.ShownSent(key, sent) }
	for w := range Window(Windows) {
		_, b.Spenders[w] = known.top(spending, w, shown, at)
	}
}

// top returns the number of subjects in a window, and the subjects with the largest counts. The function shown returns
// the key of a subject in the admin API, and the text that people see for the subject.
func (r *fleetRule) top(k kind, w Window, shown func(key, sent string) (string, string), at time.Time) (subjects uint64, top Top) {
	s := &r[k][w]
	top.Total, top.Error = s.total, s.floor
	order := s.largest()
	if len(order) > mostItems {
		top.Error += order[mostItems].over
		order = order[:mostItems]
	}
	for _, e := range order {
		one := Subject{Sent: cmp.Or(e.sent, e.key), Count: e.over + s.floor, Blocked: e.blocked, Limit: sluice.Limit{Count: e.limit.count, Period: e.limit.period}}
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

// lately returns in how many minutes of the last hour a subject was certainly counted, and its counts by step.
func (r *fleetRule) lately(k kind, key string, at time.Time) (minutes int, counts [SubjectSteps]uint64) {
	e := r[k][Hour].get(key)
	if e == nil {
		return 0, counts
	}
	steps, now := e.bySteps(), at.UnixMilli()/stepMillis
	for i := range counts {
		counts[i] = steps[(now-int64(SubjectSteps-1-i))&(stepPlaces-1)]
	}
	return min(bits.OnesCount64(e.minutes), 60), counts
}

// SubjectID returns the ID of the subject with a key: see [Subject]. The ID is the same on all instances. It does
// not contain the key, but a guess of the key can be verified with it.
func SubjectID(key string) string {
	h := sha256.Sum256([]byte("sluice subject\x00" + key))
	return hex.EncodeToString(h[:8])
}

// find returns the key of the subject with an ID, if a summary has the subject. The key is spelled as one of the
// subject's requests spelled it.
func (f fleetSubjects) find(id string, p *policy.Policy) (key string, found bool) {
	for name, r := range f {
		for k := range r {
			for w := range r[k] {
				for _, e := range r[k][w].entries {
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
