package recent

import (
	"cmp"
	"context"
	"hash/maphash"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// side replays the records of a pass with one of the policies, from empty or from used-up counters.
type side struct {
	pass     *pass
	engine   *policy.Engine
	store    *memory.Store
	taken    []taken          // the charges of the current request
	full     bool             // the counters of changed rules start used up
	filled   map[uint64]int64 // the units of counters at the start, by key and position among the key's charges
	like     *side            // the side on which counters start with the same units, or nil if they start with their capacity
	blind    bool             // the request was denied before a rule could read a part, so the rule does not count it
	denied   int64            // the number of denied requests
	decision policy.Decision
	missed   map[string]string // the inputs that records lack, by rule
	refusals []refusal         // the denials of the current request
	keys     []byte
	unread   string                      // the last unread part
	settling []bool                      // by index of a rule: whether it depends on the outcome
	open     map[uint64]*policy.Decision // the decisions that have no outcome yet, by request ID
	tier     string                      // the ID of the part that determines the tier
	tiered   []string
}

// refusal is a denial by a rule. A denial by a rule in shadow mode has no effect.
type refusal struct {
	rule, from string
	shadow     bool
	key        string
}

func (p *pass) newSide(compiled *policy.Policy, doc *policy.Document) *side {
	s := &side{pass: p, store: memory.NewSize(storeBytes), filled: map[uint64]int64{}, missed: map[string]string{}, open: map[uint64]*policy.Decision{}}
	s.tier = policy.PartID(cmp.Or(doc.Tiers.From, doc.Tiers.Subject))
	for i := range doc.Rules {
		s.settling = append(s.settling, settles(&doc.Rules[i]))
		if goesByTier(&doc.Rules[i]) {
			s.tiered = append(s.tiered, doc.Rules[i].Name)
		}
	}
	s.engine = policy.NewEngine(s, compiled)
	s.engine.Observe(s.observe)
	s.engine.Untimed()
	return s
}

// unknownOutcome names the missing input if outcomes were reported without the ID of their request.
const unknownOutcome = "the outcomes of /v1/settle"

// missSettled records unknownOutcome as the missing input of all rules that depend on outcomes.
func (s *side) missSettled() {
	for i, name := range s.engine.Policy().RuleNames() {
		if s.settling[i] {
			s.missed[name] = unknownOutcome
		}
	}
}

func (s *side) decide(ctx context.Context) (allowed bool) {
	r := s.pass.reader
	q := &r.request
	q.Time = time.UnixMicro(r.at)
	q.Recorded = s.recorded
	s.refusals, s.keys, s.taken, s.unread = s.refusals[:0], s.keys[:0], s.taken[:0], ""
	s.engine.DecideInto(ctx, q, &s.decision)
	if !s.decision.Allowed && q.Mode == policy.Charge {
		s.denied++
	}
	if r.id != 0 && s.decision.Unsettled() && len(s.open) < maxOpen {
		s.open[r.id] = &policy.Decision{}
		*s.open[r.id] = s.decision
		s.open[r.id].Results, s.open[r.id].Loads = nil, nil
	}
	return s.decision.Allowed
}

// maxOpen bounds the requests that have no outcome yet.
const maxOpen = 1 << 16

// settle settles the request of the current outcome if this side allowed it.
func (s *side) settle(ctx context.Context) {
	r := s.pass.reader
	d := s.open[r.id]
	if d == nil {
		return
	}
	s.engine.Settle(ctx, *d, r.outcome)
	if r.outcome.Bytes >= 0 { // otherwise another outcome of the request follows
		delete(s.open, r.id)
	}
}

func (s *side) recorded(id string) (policy.Reading, bool) {
	r := s.pass.reader
	if id == clientPart {
		return r.client.Reading, r.schema.client != whole
	}
	i := r.schema.find(id)
	if i >= 0 && r.values[i].State != policy.Unread {
		return r.values[i].Reading, true
	}
	s.unread = id
	if id == s.tier && !r.denied {
		for _, name := range s.tiered {
			s.missed[name] = id
		}
	}
	return policy.Reading{State: policy.Unread}, true
}

// observe records the rules that deny the request.
func (s *side) observe(_ context.Context, o *policy.Observation) {
	names := o.Policy().RuleNames()
	missed := o.Missed()
	s.blind = s.pass.reader.denied && len(missed) > 0
	for _, i := range missed {
		if !s.blind {
			s.missed[names[i]] = strings.TrimSuffix(s.unread, ":")
		}
	}
	d := &o.Decision
	s.missOutcome(o)
	last := -1
	for i := range d.Results {
		index := o.RuleIndex(i)
		if d.Results[i].Allowed || index == last {
			continue
		}
		last = index
		start := len(s.keys)
		s.keys = append(s.keys, o.Key(i)...)
		s.refusals = append(s.refusals, refusal{names[index], d.Results[i].From, d.Results[i].Shadow, text(s.keys[start:])})
	}
}

// missOutcome records the outcome as the missing input of the rules that depend on it, if the outcome is unknown.
func (s *side) missOutcome(o *policy.Observation) {
	if s.pass.reader.id != 0 || !o.Decision.Unsettled() {
		return
	}
	s.blind = s.blind || s.pass.reader.denied
	for i := range o.Decision.Results {
		if rule := o.RuleIndex(i); s.settling[rule] && !s.pass.reader.denied {
			s.missed[o.Policy().RuleNames()[rule]] = "the outcome"
		}
	}
}

// taken identifies a charge.
type taken struct {
	key, plan uint64 // the hash of the key, and the fingerprint of the plan
	cost      int64
	shadow    bool
}

// charged returns the charges of the current request under the key with the given hash.
func (s *side) charged(key uint64) (all []taken) {
	for _, c := range s.taken {
		if c.key == key {
			all = append(all, c)
		}
	}
	return all
}

// Take charges the store of the side at the time of the record.
func (s *side) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	for _, c := range charges {
		s.taken = append(s.taken, taken{maphash.String(s.pass.seed, c.Key), c.Plan.Fingerprint, c.Cost, c.Shadow})
	}
	if s.full {
		if err := s.fill(ctx, charges); err != nil {
			return err
		}
	}
	return s.store.TakeAt(ctx, s.pass.reader.at, charges, receipts)
}

// fill fills the counters of charges that it has not filled before, as of the time of the first request. It fills
// only counters that the change affects. Penalties and counts of distinct values start empty.
func (s *side) fill(ctx context.Context, charges []sluice.Charge) error {
	nth, key := uint64(0), ""
	for _, c := range charges {
		if nth++; c.Key != key {
			nth, key = 0, c.Key
		}
		if c.Plan.Kernel == kernel.Lock || c.Plan.Kernel == kernel.Distinct || !s.pass.changes(ruleOf(key), key) || len(s.filled) >= maxFilled {
			continue
		}
		id := maphash.String(s.pass.seed, key) + nth
		if _, known := s.filled[id+c.Plan.Fingerprint]; known {
			continue
		}
		units := s.units(id, c.Plan.Capacity)
		// The entry without the plan is for units. In another tier, a subject has another plan, to be filled as well.
		s.filled[id], s.filled[id+c.Plan.Fingerprint] = units, units
		c.Cost, c.Shadow, c.Owe, c.Until = units, true, false, 0
		if err := s.store.TakeAt(ctx, s.pass.begin, []sluice.Charge{c}, make([]sluice.Receipt, 1)); err != nil {
			return err
		}
	}
	return nil
}

// units returns the number of units with which a counter starts, at most its capacity. Under the changed policy, it is
// the number of the same counter under the policy in force, because the same requests would have been charged to both.
// If this number is unknown, and under the policy in force, it is the capacity.
func (s *side) units(id uint64, capacity int64) int64 {
	if s.like != nil {
		if used, known := s.like.filled[id]; known {
			return min(used, capacity)
		}
	}
	return capacity
}

// maxFilled bounds the number of filled counters.
const maxFilled = 1 << 20
