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

	ids     []int32 // of pathless rules, then of the patterns that match, view by view
	ends    []int   // where the former end in ids, and each view
	order   []int32 // see ordered
	matches []matched
	barring []*rule // with "block", that apply
	blocked []blockedSubject

	keys     keyText
	seen     Observation
	blocks   map[string]int64 // see Engine.blocksNow
	charges  []sluice.Charge
	results  []Result   // of each charge of a limit, on the memory of the decision
	locks    []ruleLock // of the rules that have a penalty; their charges come last
	receipts []sluice.Receipt

	hostKnown, tierKnown     bool
	ambiguous                bool // the path
	pathless                 bool // rules that ask for a path are left out
	offence                  bool // that a Take would note: see foretellLocks
	hostName, tier, tierFrom string
	tierKey                  keyText   // of the subject that is looked up
	override                 *Override // that was found last
	now                      int64     // in microseconds since the Unix epoch; 0 until it is asked for
	began                    time.Time // the Take, if a rule goes by the outcome
}

// maxScratch is the most text that is kept from one decision to the next.
const maxScratch = 1 << 16

// begin returns the scratch for a decision, whose results it uses again.
func (e *Engine) begin(req *Request, d *Decision) *scratch {
	s := e.pool.Get().(*scratch)
	s.results = d.Results
	s.reset(e.policy.Load(), req)
	s.blocks = e.blocksNow()
	return s
}

func (s *scratch) reset(p *Policy, req *Request) {
	s.policy, s.request = p, req
	s.x.reset(req, p)
	s.ids, s.ends, s.order, s.matches = s.ids[:0], s.ends[:0], s.order[:0], s.matches[:0]
	s.barring = s.barring[:0]
	s.forget()
	s.hostKnown, s.tierKnown, s.ambiguous, s.pathless, s.now = false, false, false, false, 0
}

func (e *Engine) end(s *scratch) {
	if cap(s.keys.text) > maxScratch || cap(s.ids) > maxScratch || cap(s.charges) > maxScratch/16 {
		return // of an extraordinary request or policy
	}
	s.request, s.x.r, s.blocks, s.results = nil, nil, nil, nil
	e.pool.Put(s)
}

// outcome is what a rule that matches does to a request.
type outcome uint8

const (
	charged  outcome = iota
	skipped          // it lacks a part of the key, and the rule does not apply
	refused          // it lacks one, and is refused for it
	exempted         // its subject is exempt from the rule
	barred           // its subject is blocked
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
		p := &r.key[i]
		switch value, found := p.value(&s.x); {
		case found && p.kind == routePart:
			s.keys.addWritten(m.pattern.written)
		case found && p.kind == clientIP:
			s.keys.addWritten(value) // no character of an address is escaped
		case found:
			s.keys.add(value)
		default:
			if out := s.missing(r); out != charged {
				return p, out
			}
			s.keys.addShared()
		}
	}
	return nil, s.addCharges(r)
}

// addCharges adds a charge for each limit of the subject of the key that has been built. What is
// added is written in place: a struct that is made elsewhere and copied holds up the processor.
func (s *scratch) addCharges(r *rule) outcome {
	by, until := s.resolve(r)
	switch {
	case s.isBlocked(r, by, until):
		return barred
	case by.exempt:
		return exempted
	}
	key, cost := s.keys.key(r.together), s.cost(r)
	for i := range by.limits {
		l := &by.limits[i]
		c, told := extend(&s.charges), extend(&s.results)
		c.Key, c.Plan, c.Cost, c.Shadow, c.OnError = key, l.plan, cost, r.shadow, r.onError
		told.Rule, told.Name, told.Plan, told.From, told.Source, told.Cost, told.Shadow = r.name, l.name, l.plan, by.from, by.source, cost, r.shadow
	}
	if r.lock != nil {
		s.locks = append(s.locks, ruleLock{r, len(s.charges) - len(by.limits), len(s.charges)})
	}
	return charged
}

// extend makes a list one longer, and returns the new element, which is to be overwritten.
func extend[T any](list *[]T) *T {
	n := len(*list)
	if n == cap(*list) {
		*list = append(*list, *new(T))
	}
	*list = (*list)[:n+1]
	return &(*list)[n]
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

// resolve returns what holds for the subject of the key that is being built: its override, until
// when that does, else the limits of its tier, else the rule's own.
func (s *scratch) resolve(r *rule) (by *resolved, until int64) {
	if e, says := s.policy.overrides.find(r, s); e != nil {
		return says, e.until
	}
	if r.tiers != nil {
		if t := r.tiers[s.tierName()]; t != nil {
			return t, 0
		}
	}
	return &r.own, 0
}

// clock returns the time of the request, which is read once.
func (s *scratch) clock() int64 {
	if s.now == 0 {
		s.now = s.request.now()
	}
	return s.now
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

// taken returns what gives back the places in queues that a request has for as long as
// it waits, on memory of its own. What else was counted stays: by the time that a client
// leaves, it may belong to a window that is over, or have had its turn in a shorter
// queue, and giving it back would lift the limit of others.
func (s *scratch) taken(d *Decision) []sluice.Charge {
	back := d.taken[:0]
	for i, c := range s.charges[:len(s.results)] {
		if d.Results[i].Delay >= d.Delay {
			c.Key, c.Cost, c.Shadow = strings.Clone(c.Key), -c.Cost, false
			back = append(back, c)
		}
	}
	return back
}
