package recent

import (
	"cmp"
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// The sides of a pass: the policies before and after the change, each with counters that start empty, and with
// counters that start full. Real counters were between empty and full.
const (
	emptyBefore = iota
	emptyAfter
	fullBefore
	fullAfter
)

// pass is one replay of the records on all sides.
type pass struct {
	trial    *trial
	sides    [4]*side // by index: emptyBefore and so on
	reader   *reader
	requests int64
	refused  int64 // the number of requests that were really denied
	differs  int64
	blind    int64
	from, to int64
	change   Change
	bounds   [2]Change // from empty and from full counters: see the method bound
	full     Change    // the change from full counters, without regard to the real decisions
	rules    map[limitSource]*RuleTrial
	order    map[string]int   // the index of each rule, by name
	seed     maphash.Seed     // the seed for hashes of keys
	begin    int64            // the time of the first request, in microseconds since the Unix epoch
	show     map[string]show  // the stricter show_key of the two policies, by rule
	changed  map[string]scope // see changedRules
	exact    bool             // the trial is fresh and omits no rule, or no rule changes; so only the empty sides run
	subjects map[string]*SubjectTrial
	early    bool // the pass ended after maxTime
}

// limitSource is a rule and the source of its limits.
type limitSource struct{ rule, from string }

func (t *trial) newPass() (*pass, error) {
	p := &pass{trial: t, rules: map[limitSource]*RuleTrial{}, subjects: map[string]*SubjectTrial{}, order: map[string]int{}, seed: maphash.MakeSeed(), begin: max(t.since, t.oldest()), show: t.showKeys()}
	docs := [2]policy.Document{t.judges[0].judged(t.left), t.judges[1].judged(t.left)}
	p.changed = changedRules(&docs[0], &docs[1])
	p.exact = t.fresh && len(t.left) == 0 || len(p.changed) == 0
	for i := range docs {
		compiled, err := policy.Compile(docs[i])
		if err != nil {
			return nil, err
		}
		p.sides[emptyBefore+i], p.sides[fullBefore+i] = p.newSide(compiled, &docs[i]), p.newSide(compiled, &docs[i])
		for _, r := range docs[i].Rules {
			if _, known := p.order[r.Name]; !known {
				p.order[r.Name] = len(p.order)
			}
		}
	}
	p.sides[fullBefore].full, p.sides[fullAfter].full = true, true
	p.sides[fullAfter].like = p.sides[fullBefore]
	return p, nil
}

// showKeys returns the stricter show_key of the two policies for each rule, by name.
func (t *trial) showKeys() map[string]show {
	all := map[string]show{}
	for i := range t.judges {
		for _, r := range t.judges[i].doc.Rules {
			all[r.Name] = max(all[r.Name], showOf(r.ShowKey))
		}
	}
	return all
}

// oldest returns the time of the first record.
func (t *trial) oldest() int64 {
	if len(t.chunks) == 0 {
		return t.since
	}
	return slices.MinFunc(t.chunks, func(a, b chunk) int { return cmp.Compare(a.first, b.first) }).first
}

// pass replays the records.
func (t *trial) pass(ctx context.Context) (*pass, error) {
	p, err := t.newPass()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	records := newMerger(t.chunks)
	for n := 0; !p.early; n++ {
		if p.reader = records.next(); p.reader == nil {
			break
		}
		if p.reader.at >= t.since {
			p.step(ctx)
		}
		if n%256 == 0 {
			runtime.Gosched() // live requests take precedence
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.early = time.Since(began) > maxTime
		}
	}
	return p, nil
}

// step replays the current record, which is a request or an outcome, on all sides.
func (p *pass) step(ctx context.Context) {
	if !p.reader.ended {
		p.decide(ctx)
		return
	}
	for _, s := range p.sides {
		if p.reader.id == 0 {
			s.missSettled()
			continue
		}
		s.settle(ctx)
	}
}

// decide replays the current request on all sides.
func (p *pass) decide(ctx context.Context) {
	r := p.reader
	if p.from == 0 {
		p.from = r.at
	}
	p.to = r.at
	var passes [4]bool
	for i, s := range p.sides {
		if i < fullBefore || !p.exact {
			passes[i] = s.decide(ctx)
		}
	}
	if r.request.Mode != policy.Charge {
		return
	}
	p.requests++
	if p.sides[0].blind || p.sides[1].blind {
		p.blind++
	}
	if r.denied {
		p.refused++
	}
	if r.denied == passes[emptyBefore] {
		p.differs++
	}
	p.bound(passes)
	for i := range p.sides[0].refusals {
		p.trialOf(&p.sides[0].refusals[i]).Before++
	}
	for i := range p.sides[1].refusals {
		p.trialOf(&p.sides[1].refusals[i]).After++
	}
	switch {
	case passes[emptyBefore] && !passes[emptyAfter]:
		p.change.Newly++
		p.note(p.sides[1], func(c *Change) { c.Newly++ })
	case passes[emptyAfter] && !passes[emptyBefore]:
		p.change.Freed++
		p.note(p.sides[0], func(c *Change) { c.Freed++ })
	}
}

// bound counts the effect of the change compared with the real decision, from empty and from full counters. It
// counts a difference only if the change may be the cause, because the two policies decide differently, or because
// a changed rule denies the request.
func (p *pass) bound(passes [4]bool) {
	if p.exact {
		return
	}
	for i := range p.bounds {
		before, after := passes[2*i], passes[2*i+1]
		switch {
		case !p.reader.denied && !after && (before || p.denies(p.sides[2*i+1])):
			p.bounds[i].Newly++
		case p.reader.denied && after && (!before || p.denies(p.sides[2*i])):
			p.bounds[i].Freed++
		}
	}
	switch before, after := passes[fullBefore], passes[fullAfter]; {
	case before && !after:
		p.full.Newly++
	case after && !before:
		p.full.Freed++
	}
}

// denies reports whether a changed rule denies the request on a side.
func (p *pass) denies(s *side) bool {
	return slices.ContainsFunc(s.refusals, func(f refusal) bool { return !f.shadow && p.changes(f.rule, f.key) })
}

// changes reports whether the change affects the limits of a rule for a key of the current request.
func (p *pass) changes(rule, key string) bool {
	if p.changed[rule] != someChanged {
		return p.changed[rule] == allChanged
	}
	id := maphash.String(p.seed, key)
	before, after := p.sides[emptyBefore].charged(id), p.sides[emptyAfter].charged(id)
	return !slices.Equal(before, after) || len(before) == 0
}

// note counts a request that only side s denies, under the rules and subjects of its denials.
func (p *pass) note(s *side, count func(*Change)) {
	for i := range s.refusals {
		f := &s.refusals[i]
		if f.shadow {
			continue
		}
		count(&p.trialOf(f).Change)
		if c := p.subject(s, f); c != nil {
			count(c)
		}
	}
}

func (p *pass) trialOf(f *refusal) *RuleTrial {
	at := limitSource{f.rule, f.from}
	if p.rules[at] == nil {
		p.rules[at] = &RuleTrial{Rule: f.rule, From: f.from}
	}
	return p.rules[at]
}

// maxSubjects bounds the number of subjects in memory.
const maxSubjects = 50_000

// subject returns the counts of a refusal's subject, or nil if maxSubjects would be exceeded.
func (p *pass) subject(s *side, f *refusal) *Change {
	known := p.subjects[f.key]
	if known == nil {
		if len(p.subjects) >= maxSubjects || f.key == "" {
			return nil
		}
		key := strings.Clone(f.key)
		known = &SubjectTrial{Rule: f.rule, Subject: p.shown(f.rule, s.engine.Policy().ShownKey(key))}
		p.subjects[key] = known
	}
	return &known.Change
}

// shown returns a subject as the rule's show_key shows it.
func (p *pass) shown(rule, subject string) string {
	values := strings.Split(subject, between)
	for i, v := range values {
		if values[i] = p.reader.shown(v); values[i] != v {
			continue
		}
		switch p.show[rule] {
		case short:
			values[i] = policy.Shorten(v)
		case hash:
			values[i] = shownHash(string(appendToken(nil, maphash.String(p.trial.ring.seed, v))))
		}
	}
	return strings.Join(values, between)
}

// shown returns the visible form of the value whose token is text, or text if it is not a token.
func (r *reader) shown(text string) string {
	out := text
	for k := range r.values {
		out = r.values[k].shownFor(text, out)
	}
	return r.client.shownFor(text, out)
}

// between separates the values of a subject.
const between = " · "

// shownFor returns the visible form of v if text is the value of v, or else the text other.
func (v *value) shownFor(text, other string) string {
	switch {
	case v.State != policy.Present || text != v.Value:
		return other
	case v.shown != "":
		return v.shown
	case v.hidden:
		return shownHash(text)
	}
	return other
}

// shownHash returns the visible form of a hash with the given token.
func shownHash(token string) string { return "#" + token[:min(len(token), 12)] }
