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
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/paths"
)

// scratch is the memory of one decision. All of it is reused, so nothing in a [Decision] may refer to
// it.
type scratch struct {
	policy  *Policy
	request *Request
	x       parts.Reader
	views   paths.Buffer

	ids     []int32 // of pathless rules, then of the patterns that match, view by view
	ends    []int   // where the former end in ids, and each view
	order   []int32 // see ordered
	matches []matched
	// exempting is the rule that exempts the request, or nil.
	exempting *rule
	barring   []*rule // with "block", that apply
	blocked   []blockedSubject

	keys      parts.Keys
	seen      Observation
	blocks    map[string]int64 // see Engine.blocksNow
	holder    *sluice.Holder
	mode      Mode
	charges   []sluice.Charge
	onceText  []byte   // see addOnce
	costs     []int64  // of charges that are only looked at
	results   []Result // of each charge of a limit, on the memory of the decision
	shares    *shares  // of the engine
	turns     *sluice.Turns
	awaited   *awaited
	tenants   []tenant   // who share limits; the charges of their time come behind those of results
	turned    int64      // when these were added, in microseconds
	locks     []ruleLock // of the rules that have a penalty; their charges come last, from firstLock on
	firstLock int
	receipts  []sluice.Receipt

	hostKnown, tierKnown     bool
	ambiguous                bool // the path, and it is refused for that
	pardonedGarbled          bool // see pardoned
	pathless                 bool // rules that ask for a path are left out
	offence                  bool // that a Take would note: see foretellLocks
	flying                   bool // a charge is of a place in flight
	repeated                 bool // the store has refused the charge of the request's ID
	hostName, tier, tierFrom string
	tierKey                  parts.Keys // of the subject that is looked up
	sent                     []byte     // see asSent
	override                 *Override  // that was found last
	pardoned                 string     // what the request lacks, and would be refused for by a rule that only watches
	now                      int64      // in microseconds since the Unix epoch; 0 until it is asked for
	began                    time.Time  // the Take, if a rule goes by the outcome
}

// maxScratch is the most text kept from one decision to the next.
const maxScratch = 1 << 16

// begin returns the scratch for a decision, whose results it uses again.
func (e *Engine) begin(req *Request, d *Decision) *scratch {
	s := e.pool.Get().(*scratch)
	s.results = d.Results
	s.reset(e.current(), req)
	s.blocks, s.holder, s.shares, s.turns, s.awaited = e.blocksNow(), e.holder, &e.shares, &e.turns, &e.awaited
	return s
}

func (s *scratch) reset(p *Policy, req *Request) {
	s.policy, s.request, s.mode = p, req, req.Mode
	s.x.Reset(&parts.Request{
		Method: req.Method, Host: req.Host, RawQuery: req.RawQuery, Peer: req.Peer, Header: req.Header, ForwardedHeader: req.ForwardedHeader,
		Body: req.Body, Attributes: req.Attributes, TLSFingerprint: req.TLSFingerprint, Trusted: p.trusted, IPv6Prefix: p.ipv6Prefix,
	})
	s.ids, s.ends, s.order, s.matches = s.ids[:0], s.ends[:0], s.order[:0], s.matches[:0]
	s.barring = s.barring[:0]
	s.forget()
	s.hostKnown, s.tierKnown, s.ambiguous, s.pathless, s.now = false, false, false, req.NoPath, 0
	s.exempting, s.repeated = nil, false
	s.pardoned, s.pardonedGarbled = "", false
}

func (e *Engine) end(s *scratch) {
	if s.keys.Cap() > maxScratch || cap(s.ids) > maxScratch || cap(s.charges) > maxScratch/16 {
		return // of an extraordinary request or policy
	}
	s.request, s.blocks, s.results, s.shares, s.turns, s.awaited = nil, nil, nil, nil, nil, nil
	s.x.Forget()
	if s.seen.Request != nil {
		s.seen = Observation{}
	}
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
func (s *scratch) charge(m *matched) (*parts.Part, outcome) {
	r := m.rule
	if r.inFlight && s.request.Part {
		return nil, exempted
	}
	s.x.Route = ""
	if m.pattern != nil {
		s.x.Route = m.pattern.Key
	}
	s.keys.Begin(r.keyStart)
	for i := range r.key {
		p := &r.key[i]
		switch value, found := p.Value(&s.x); {
		case found && p.IsVerbatim():
			s.keys.AddWritten(value)
		case found:
			s.keys.Add(value)
		default:
			if out := s.missing(r, p); out != charged {
				return p, out
			}
			s.keys.AddWritten(parts.Shared)
		}
	}
	return nil, s.addCharges(r)
}

// addCharges adds a charge for each limit of the subject of the key that has been built.
func (s *scratch) addCharges(r *rule) outcome {
	by, until := s.resolve(r)
	shadow := s.policy.isShadow(r) || r.isPartial() && r.isShadowFor(s.keys.Bytes())
	switch {
	case (by.block || len(s.blocks) > 0) && s.isBlocked(r, by, until, shadow):
		return barred
	case by.exempt:
		return exempted
	}
	if r.sharing != nil {
		s.addLimits(r, by, s.addTenant(r), shadow)
		return charged
	}
	s.addLimits(r, by, s.keys.Key(r.together), shadow)
	return charged
}

// addLimits adds a charge under a key for each limit that a rule has. What is added is written in
// place: a struct that is made elsewhere and copied holds up the processor.
func (s *scratch) addLimits(r *rule, by *resolved, key string, shadow bool) {
	cost := s.cost(r)
	for i := range by.limits {
		l := &by.limits[i]
		c, told := extend(&s.charges), extend(&s.results)
		c.Key, c.Plan, c.Cost, c.Shadow, c.OnError = key, l.plan, cost, shadow, r.onError
		c.Owe, c.Consistency, c.Permit, c.Until = false, r.consistency, 0, 0
		told.Rule, told.Name, told.Plan, told.From, told.Source, told.Cost, told.Shadow, told.at = r.name, l.name, l.plan, by.from, by.source, cost, shadow, int32(r.index)+1
	}
	if r.inFlight {
		s.takePlace()
	}
	if r.lock != nil {
		s.locks = append(s.locks, ruleLock{r, len(s.charges) - len(by.limits), len(s.charges)})
	}
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
func (s *scratch) missing(r *rule, p *parts.Part) outcome {
	refuses := r.missing == refuse || r.strict && s.x.Garbled && !s.x.BrokeOff
	switch {
	case refuses && !r.isLenient():
		return refused
	case refuses && s.pardoned == "":
		s.pardoned, s.pardonedGarbled = p.String(), s.x.Garbled
	}
	switch {
	case r.missing == refuse, r.missing == skip && !s.x.Garbled:
		return skipped
	}
	return charged
}

// unambiguous is before the name of what can be read in more than one way.
const unambiguous = "an unambiguous "

// lacking names the part that a request is refused for.
func lacking(part string, garbled bool) string {
	if garbled {
		return unambiguous + part
	}
	return part
}

// overridden is the source of a limit that comes from an override.
const overridden = "override"

// resolve returns what applies to the subject of the key being built: its override until that ends,
// else the limits of its tier, else the rule's own.
func (s *scratch) resolve(r *rule) (by *resolved, until int64) {
	if s.policy.overrides.byRule != nil {
		if e, says := s.policy.overrides.find(r, s); e != nil {
			return says, e.Until
		}
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
func (s *scratch) take(ctx context.Context, e *Engine) error {
	s.complete()
	return s.taken(ctx, e, e.turns.Take(ctx, e.store, s.charges, s.receipts))
}

// taken completes what the store was asked for, with what it has answered.
func (s *scratch) taken(ctx context.Context, e *Engine, err error) error {
	if err != nil || !s.repeats() {
		return err
	}
	s.repeated = true
	allowAgain(s.receipts)
	if s.mode != Charge {
		return nil
	}
	return e.again(ctx, s.charges[s.onceAt()].Key, s.charges[:len(s.results)], s.receipts)
}

// complete makes the charges those that the store is asked for.
func (s *scratch) complete() {
	s.charges = s.charges[:len(s.results)]
	if len(s.tenants) > 0 {
		s.addTurns()
	}
	if s.request.ID != "" {
		s.addOnce()
	}
	if s.firstLock = len(s.charges); len(s.locks) > 0 {
		s.addLocks()
	}
	switch {
	case s.mode == GiveBack:
		s.keepTurns()
		if s.flying {
			s.lookOnly()
		}
	case s.mode == Peek:
		s.uncost()
	case s.flying:
		s.lookOnly()
	}
	s.receipts = slices.Grow(s.receipts[:0], len(s.charges))[:len(s.charges)]
	s.noteTime()
}

// noteTime notes when the store is asked, if an outcome may give back what is taken.
func (s *scratch) noteTime() {
	if s.policy.settles {
		s.began = time.Now()
	}
}

// of returns the cost that a header gives. If there are several values the largest counts; it is
// capped at max, 0 becomes 1, and anything but a whole number becomes the default.
func (c *cost) of(h http.Header) int64 {
	most := int64(0)
	for _, v := range h[c.header] {
		one := c.fixed
		if n, ok := number(v); ok {
			one = max(n, 1)
		}
		most = max(most, min(one, c.max))
	}
	if most == 0 {
		return c.fixed
	}
	return most
}

// number reads a whole number of a header. One too large for an int64 is the largest.
func number(s string) (n int64, ok bool) {
	if s = strings.TrimSpace(s); !isDigits(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// cost returns what the request takes from a rule: less than nothing if it gives that back.
func (s *scratch) cost(r *rule) int64 {
	one := r.cost.fixed
	if r.cost.header != "" && s.request.Subject == nil {
		one = r.cost.of(s.request.Header)
	}
	switch {
	case s.request.Cost <= 1 || r.inFlight:
	case one > math.MaxInt64/s.request.Cost:
		one = math.MaxInt64 // which never fits
	default:
		one *= s.request.Cost
	}
	if s.mode == GiveBack {
		return -one
	}
	return one
}
