package policy

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/paths"
)

// scratch is the memory of one decision. Everything in it is used again, so that
// nothing of it may live on in a [Decision].
type scratch struct {
	policy  *Policy
	request *Request
	x       extractor
	views   paths.Buffer

	ids     []int32 // of the patterns that match, view by view, then of pathless rules
	ends    []int   // where each view ends in ids
	order   []int32
	matches []matched
	barring []*rule // with "block", that apply

	keys     keyText
	seen     Observation
	blocks   map[string]int64 // see Engine.blocksNow
	charges  []sluice.Charge
	charged  []chargedRule // of each charge of a limit
	locks    []ruleLock    // of the rules that have a penalty; their charges come last
	receipts []sluice.Receipt

	hostKnown, tierKnown bool
	isBlocked            bool // a subject of the request
	ambiguous            bool // the path
	offence              bool // that a Take would note: see foretellLocks
	hostName, tier       string
	now                  int64     // in microseconds since the Unix epoch; 0 until it is asked for
	began                time.Time // the Take, if a rule goes by the outcome
}

// chargedRule is what a charge is for.
type chargedRule struct {
	*rule
	limit   *limit
	from    string // see resolved
	blocked int64  // until when the subject is, or 0
}

// maxScratch is the most text that is kept from one decision to the next.
const maxScratch = 1 << 16

func (e *Engine) begin(req *Request) *scratch {
	s := e.pool.Get().(*scratch)
	s.reset(e.policy.Load(), req)
	s.blocks = e.blocksNow()
	return s
}

func (s *scratch) reset(p *Policy, req *Request) {
	s.policy, s.request = p, req
	s.x.reset(req, p)
	s.ids, s.ends, s.order, s.matches = s.ids[:0], s.ends[:0], s.order[:0], s.matches[:0]
	s.barring = s.barring[:0]
	s.keys.reset()
	s.charges, s.charged, s.locks, s.offence = s.charges[:0], s.charged[:0], s.locks[:0], false
	s.hostKnown, s.tierKnown, s.ambiguous, s.isBlocked, s.now = false, false, false, false, 0
}

func (e *Engine) end(s *scratch) {
	if cap(s.keys.text) > maxScratch || cap(s.order) > maxScratch || cap(s.charges) > maxScratch/16 {
		return // of an extraordinary request or policy
	}
	s.request, s.x.r, s.blocks = nil, nil, nil
	e.pool.Put(s)
}

// outcome is what a rule that matches does to a request.
type outcome uint8

const (
	charged outcome = iota
	skipped         // it lacks a part of the key, and the rule does not apply
	refused         // it lacks one, and is refused for it
)

// charge adds what a rule charges. If it does not, it returns the part that is missing.
func (s *scratch) charge(m *matched) (*part, outcome) {
	r := m.rule
	s.x.route = ""
	if m.pattern != nil {
		s.x.route = m.pattern.text
	}
	s.keys.begin(r.keyStart)
	for i := range r.key {
		value, found := r.key[i].value(&s.x)
		if found && r.key[i].kind == routePart {
			s.keys.addWritten(m.pattern.written)
		} else if found {
			s.keys.add(value)
		} else if out := s.missing(r); out == charged {
			s.keys.addShared()
		} else {
			return &r.key[i], out
		}
	}
	by := s.resolve(r)
	blocked, key, cost := s.blockedUntil(r), s.keys.key(r.together), s.cost(r)
	for i := range by.limits {
		l := &by.limits[i]
		s.charged = append(s.charged, chargedRule{r, l, by.from, blocked})
		s.charges = append(s.charges, sluice.Charge{Key: key, Plan: l.plan, Cost: cost, Shadow: r.shadow, OnError: r.onError})
	}
	if r.lock != nil {
		s.locks = append(s.locks, ruleLock{r, len(s.charges) - len(by.limits), len(s.charges)})
	}
	return nil, charged
}

// missing says what a rule does about the part that has just been found missing. To
// garble a part is no way around a rule that is skipped without it.
func (s *scratch) missing(r *rule) outcome {
	switch {
	case r.missing == refuse && r.shadow, r.missing == skip && !s.x.garbled:
		return skipped
	case r.missing == refuse, r.strict && s.x.garbled && !s.x.brokeOff:
		return refused
	}
	return charged
}

// lacking names the part that a request is refused for.
func (s *scratch) lacking(p *part) string {
	if s.x.garbled {
		return "an unambiguous " + p.String()
	}
	return p.String()
}

// overridden is where a limit comes from that an override gives.
const overridden = "override"

// resolve returns the limits for the subject of the key that is being built: that of an
// override, else of its tier, else the rule's own.
func (s *scratch) resolve(r *rule) resolved {
	if o, found := s.overrideOf(r); found {
		return o
	}
	if r.tiers != nil {
		if t := r.tiers[s.tierName()]; t != nil {
			return *t
		}
	}
	return r.own
}

// overrideOf returns the limits of the override that is in force for the subject.
func (s *scratch) overrideOf(r *rule) (resolved, bool) {
	sets := s.policy.overrides.of(r)
	for i := range sets {
		if o := s.override(&sets[i]); o.limits != nil {
			return resolved{o.limits, overridden}, true
		}
	}
	return resolved{}, false
}

// override returns the one of the set that is in force for the subject, if there is one.
func (s *scratch) override(set *overrideSet) override {
	subject := s.keys.subjectOf(set)
	o, found := set.bySubject[string(subject)]
	if !found || o.until == 0 {
		return o
	}
	if s.clock() >= o.until {
		return override{}
	}
	return o
}

// clock returns the time of the request, which is read once.
func (s *scratch) clock() int64 {
	if s.now == 0 {
		s.now = s.request.now()
	}
	return s.now
}

func (s *scratch) tierName() string {
	if !s.tierKnown {
		s.tierKnown = true
		s.x.route = ""
		tier, found := s.policy.tierFrom.value(&s.x)
		if !found {
			tier = s.policy.tier
		}
		s.tier = tier
	}
	return s.tier
}

// take asks the store for the charges.
func (s *scratch) take(ctx context.Context, store sluice.Store) error {
	if len(s.locks) > 0 {
		s.addLocks()
	}
	s.receipts = slices.Grow(s.receipts[:0], len(s.charges))[:len(s.charges)]
	if s.policy.settles {
		s.began = time.Now()
	}
	return store.Take(ctx, s.charges, s.receipts)
}

// of returns the cost of a request. Where it is in a header, the largest value counts,
// above max it is max, 0 is 1, and what is not a whole number is the default.
func (c *cost) of(h http.Header) int64 {
	if c.header == "" {
		return c.fixed
	}
	most := int64(0)
	for _, v := range h[c.header] {
		most = max(most, c.parse(strings.TrimSpace(v)))
	}
	if most == 0 {
		return c.fixed
	}
	return most
}

func (c *cost) parse(s string) int64 {
	if !isDigits(s) {
		return c.fixed
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return c.max // it has more than 18 digits
	}
	return min(max(n, 1), c.max)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// cost returns what the request takes from a rule.
func (s *scratch) cost(r *rule) int64 {
	one := r.cost.of(s.request.Header)
	if s.request.Cost <= 1 {
		return one
	}
	if one > math.MaxInt64/s.request.Cost {
		return math.MaxInt64 // which never fits
	}
	return one * s.request.Cost
}

// results returns a result for each charge of a limit, without what it has said.
func (s *scratch) results(d *Decision) []Result {
	n, all := len(s.charged), d.Results
	if cap(all) < n {
		all = make([]Result, n)
	}
	all = all[:n]
	for i := range all {
		by, c, r := &s.charged[i], &s.charges[i], &all[i]
		r.Rule, r.Name, r.Plan, r.From, r.Cost, r.Shadow = by.name, by.limit.name, c.Plan, by.from, c.Cost, c.Shadow
		r.Decision = sluice.Decision{}
	}
	return all
}

// taken returns what gives back the places in queues that a request has for as long as
// it waits, on memory of its own. What else was counted stays: by the time that a client
// leaves, it may belong to a window that is over, or have had its turn in a shorter
// queue, and giving it back would lift the limit of others.
func (s *scratch) taken(d *Decision) []sluice.Charge {
	back := d.taken[:0]
	for i, c := range s.charges[:len(s.charged)] {
		if d.Results[i].Delay >= d.Delay {
			c.Key, c.Cost, c.Shadow = strings.Clone(c.Key), -c.Cost, false
			back = append(back, c)
		}
	}
	return back
}
