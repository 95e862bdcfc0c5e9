package recent

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// trial is a trial under way.
type trial struct {
	ring   *Ring
	chunks []chunk
	since  int64 // time of the first request, in microseconds since the Unix epoch
	judges [2]judge
	left   map[string]replay.NotJudged // rules that neither policy has
	fresh  bool                        // counters were empty before the first record
}

// begin finds what can be judged: by the schema of the chunk that was begun last.
func (t *trial) begin(before, after *policy.Document) {
	newest := slices.MaxFunc(t.chunks, func(a, b chunk) int { return cmp.Compare(a.first, b.first) })
	t.left = map[string]replay.NotJudged{}
	moved := !slices.Equal(before.TrustedProxies, after.TrustedProxies) || before.IPv6Prefix != after.IPv6Prefix
	for i, doc := range []*policy.Document{before, after} {
		j := &t.judges[i]
		*j = judge{t.ring.seed, newest.schema, *doc, moved}
		for _, l := range j.left() {
			t.left[l.Rule] = l
		}
	}
	t.drop()
}

// drop drops the chunks whose records have less than the newest ones, or hide other parts, and those before them.
func (t *trial) drop() {
	newest := t.judges[0].schema
	for _, c := range t.chunks {
		if c.schema != newest && !t.reads(c.schema) {
			t.since = max(t.since, c.last+1)
		}
	}
	t.chunks = slices.DeleteFunc(t.chunks, func(c chunk) bool { return c.last < t.since })
}

// reads reports whether records of a schema have what the rules that are judged go by, as the newest schema has it.
func (t *trial) reads(s *schema) bool {
	newest := t.judges[0].schema
	if s.client != newest.client {
		return false
	}
	for i := range t.judges {
		j := judge{t.judges[i].seed, s, t.judges[i].doc, t.judges[i].moved}
		for k := range j.doc.Rules {
			r := &j.doc.Rules[k]
			if _, left := t.left[r.Name]; left {
				continue
			}
			if need, _ := j.lacks(r); need != "" {
				return false
			}
			for _, part := range partsOf(&j.doc, r) {
				if id := policy.PartID(part); isRecorded(id) && s.parts[s.find(id)].show != newest.parts[newest.find(id)].show {
					return false
				}
			}
		}
	}
	return true
}

// run tries both policies.
func (t *trial) run(ctx context.Context, out *Trial) error {
	p, err := t.pass(ctx)
	for range maxPasses {
		if err != nil || !t.leave(p) {
			break
		}
		p, err = t.pass(ctx)
	}
	if err != nil {
		return err
	}
	t.leave(p)
	p.report(out)
	for _, name := range slices.Sorted(maps.Keys(t.left)) {
		out.NotJudged = append(out.NotJudged, t.left[name])
	}
	return nil
}

// leave leaves out the rules that have asked for what no record has, and reports whether there are any.
func (t *trial) leave(p *pass) (some bool) {
	for i := range p.sides {
		for name, part := range p.sides[i].missed {
			if _, left := t.left[name]; !left {
				some = true
				why := "No rule in force has read " + part + " of some requests that the rule would count."
				if part == unknownOutcome {
					why = "Outcomes came by /v1/settle, and the records do not show the requests that they belong to."
				}
				t.left[name] = replay.NotJudged{Rule: name, Needs: part, Why: why}
			}
		}
	}
	return some
}

// The sides of a pass: real counters lie between the empty ones and the full ones.
const (
	emptyBefore = iota
	emptyAfter
	fullBefore
	fullAfter
)

// pass is one replay by both policies, from empty and from full counters.
type pass struct {
	sides    [4]*side // see emptyBefore and the others
	reader   *reader
	requests int64
	refused  int64 // really
	differs  int64
	blind    int64
	from, to int64
	change   Change
	bounds   [2]Change // see bound
	full     Change    // from full counters, whatever was really decided
	rules    map[place]*RuleTrial
	order    map[string]int   // of the rules
	seed     maphash.Seed     // of keys
	show     map[string]show  // of rules with show_key: the stricter one of both policies
	shower   maphash.Seed     // of values that are shown as a hash
	changed  map[string]scope // see changedRules
	fresh    bool             // see trial
	exact    bool             // counters were as empty as those of the first two sides, which suffice
	subjects map[string]*SubjectTrial
	early    bool // it took too long
	whole    bool // no rule is left out
}

// place is a rule, and where its limits come from.
type place struct{ rule, from string }

// side is one of the policies.
type side struct {
	engine   *policy.Engine
	store    *memory.Store
	taken    []taken          // charges of the request
	full     *pass            // whose changed counters start full; nil: none
	filled   map[uint64]int64 // by key and position among the charges under it: units
	like     *side            // that was filled before, if this one starts with as many units; may be nil
	seed     maphash.Seed     // of keys
	begin    int64
	reader   *reader
	at       int64
	blind    bool  // a rule does not count the request, which was refused before the rule had read a part of it
	denied   int64 // requests
	decision policy.Decision
	missed   map[string]string // rules by what they have asked for and no record has
	refusals []refusal         // of the request, by rules
	keys     []byte
	unread   string                      // the last unread part
	settling []bool                      // rules that go by the outcome
	open     map[uint64]*policy.Decision // that wait for it
	tier     string                      // ID of the part that says the tier
	tiered   []string
}

// refusal is that of a rule, which as a shadow has refused nothing.
type refusal struct {
	rule, from string
	shadow     bool
	key        string
}

func (t *trial) newPass() (*pass, error) {
	p := &pass{rules: map[place]*RuleTrial{}, subjects: map[string]*SubjectTrial{}, order: map[string]int{}, seed: maphash.MakeSeed(), whole: len(t.left) == 0, fresh: t.fresh}
	without := map[string]bool{}
	for name := range t.left {
		without[name] = true
	}
	docs := [2]policy.Document{t.judges[0].judged(without), t.judges[1].judged(without)}
	p.changed = changedRules(&docs[0], &docs[1])
	p.show, p.shower = t.showKeys(), t.ring.seed
	p.exact = t.fresh && p.whole || len(p.changed) == 0
	for i := range p.sides {
		doc := &docs[i%2]
		compiled, err := policy.Compile(*doc)
		if err != nil {
			return nil, err
		}
		p.sides[i] = newSide(compiled, doc, p.seed, max(t.since, t.oldest()))
		for _, r := range doc.Rules {
			if _, known := p.order[r.Name]; !known {
				p.order[r.Name] = len(p.order)
			}
		}
	}
	p.sides[fullBefore].full, p.sides[fullAfter].full = p, p
	p.sides[fullAfter].like = p.sides[fullBefore]
	return p, nil
}

// showKeys returns the stricter show_key that the two policies have for a rule, by name.
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

// pass replays the records by both policies.
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
			runtime.Gosched() // live requests come first
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.early = time.Since(began) > maxTime
		}
	}
	return p, nil
}

func newSide(compiled *policy.Policy, doc *policy.Document, seed maphash.Seed, begin int64) *side {
	s := &side{seed: seed, store: memory.NewSize(storeBytes), begin: begin, filled: map[uint64]int64{}, missed: map[string]string{}, open: map[uint64]*policy.Decision{}}
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

// step puts the present record to both policies: a request, or the outcome of one.
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
		s.settle(ctx, p.reader)
	}
}

// unknownOutcome is missing if an outcome came apart from its request.
const unknownOutcome = "the outcomes of /v1/settle"

// missSettled notes the rules that count by outcome.
func (s *side) missSettled() {
	for i, name := range s.engine.Policy().RuleNames() {
		if s.settling[i] {
			s.missed[name] = unknownOutcome
		}
	}
}

// decide puts the present request to both policies.
func (p *pass) decide(ctx context.Context) {
	r := p.reader
	if p.from == 0 {
		p.from = r.at
	}
	p.to = r.at
	var passes [4]bool
	for i, s := range p.sides {
		if i < fullBefore || !p.exact {
			passes[i] = s.decide(ctx, r)
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
		p.of(&p.sides[0].refusals[i]).Before++
	}
	for i := range p.sides[1].refusals {
		p.of(&p.sides[1].refusals[i]).After++
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

// bound counts what the change does to the request as it was decided, from empty counters and from full ones. A denial
// counts if a changed rule denies, or if the two policies differ: otherwise the change is not its cause.
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

// denies reports whether a rule with changed limits denies the request on a side.
func (p *pass) denies(s *side) bool {
	return slices.ContainsFunc(s.refusals, func(f refusal) bool { return !f.shadow && p.changes(f.rule, f.key) })
}

// changes reports whether the change affects the limits of a rule for the request, which has a key.
func (p *pass) changes(rule, key string) bool {
	if p.changed[rule] != someChanged {
		return p.changed[rule] == allChanged
	}
	id := maphash.String(p.seed, key)
	before, after := p.sides[emptyBefore].charged(id), p.sides[emptyAfter].charged(id)
	return !slices.Equal(before, after) || len(before) == 0
}

// note counts a request that only one side refuses for the rules and subjects that refuse it.
func (p *pass) note(s *side, count func(*Change)) {
	for i := range s.refusals {
		f := &s.refusals[i]
		if f.shadow {
			continue
		}
		count(&p.of(f).Change)
		if c := p.subject(s, f); c != nil {
			count(c)
		}
	}
}

func (p *pass) of(f *refusal) *RuleTrial {
	at := place{f.rule, f.from}
	if p.rules[at] == nil {
		p.rules[at] = &RuleTrial{Rule: f.rule, From: f.from}
	}
	return p.rules[at]
}

// maxSubjects bounds the subjects that are told apart.
const maxSubjects = 50_000

// subject returns what changes for the subject of a refusal, or nil if there are too many.
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

// shown returns a subject of a rule as people see it.
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
			values[i] = "#" + fmt.Sprintf("%012x", maphash.String(p.shower, v)>>16)
		}
	}
	return strings.Join(values, between)
}

// shown returns what people see of a value if that is a token, and otherwise the value.
func (r *reader) shown(text string) string {
	out := text
	for k := range r.values {
		out = r.values[k].shownFor(text, out)
	}
	return r.client.shownFor(text, out)
}

// between stands between the values of a subject.
const between = " · "

// shownFor returns what people see of a value in a subject if it is that of v, or else the other text.
func (v *value) shownFor(text, other string) string {
	switch {
	case v.State != policy.Present || text != v.Value:
		return other
	case v.shown != "":
		return v.shown
	case v.hidden:
		return "#" + text[:min(len(text), 12)]
	}
	return other
}

func (s *side) decide(ctx context.Context, r *reader) (allowed bool) {
	q := &r.request
	q.Time = time.UnixMicro(r.at)
	q.Recorded = func(id string) (policy.Reading, bool) { return s.recorded(r, id) }
	s.reader, s.at, s.refusals, s.keys, s.unread = r, r.at, s.refusals[:0], s.keys[:0], ""
	s.taken = s.taken[:0]
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

// maxOpen bounds the requests that wait for their outcome.
const maxOpen = 1 << 16

// settle settles the request of an outcome, if the policy has let it pass.
func (s *side) settle(ctx context.Context, r *reader) {
	d := s.open[r.id]
	if d == nil {
		return
	}
	s.at = r.at
	s.engine.Settle(ctx, *d, r.outcome)
	if r.outcome.Bytes >= 0 { // else there is another one
		delete(s.open, r.id)
	}
}

func (s *side) recorded(r *reader, id string) (policy.Reading, bool) {
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

// observe notes which rules refuse a request.
func (s *side) observe(_ context.Context, o *policy.Observation) {
	names := o.Policy().RuleNames()
	missed := o.Missed()
	s.blind = s.reader.denied && len(missed) > 0
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

// missOutcome notes the rules that go by an outcome that is not known.
func (s *side) missOutcome(o *policy.Observation) {
	if s.reader.id != 0 || !o.Decision.Unsettled() {
		return
	}
	s.blind = s.blind || s.reader.denied
	for i := range o.Decision.Results {
		if rule := o.RuleIndex(i); s.settling[rule] && !s.reader.denied {
			s.missed[o.Policy().RuleNames()[rule]] = "the outcome"
		}
	}
}

// taken is a charge, by what limits it.
type taken struct {
	key, plan uint64 // hash, fingerprint
	cost      int64
	shadow    bool
}

// charged returns the charges of the request under a key with a hash.
func (s *side) charged(key uint64) (all []taken) {
	for _, c := range s.taken {
		if c.key == key {
			all = append(all, c)
		}
	}
	return all
}

// Take takes at the time of the request.
func (s *side) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	for _, c := range charges {
		s.taken = append(s.taken, taken{maphash.String(s.seed, c.Key), c.Plan.Fingerprint, c.Cost, c.Shadow})
	}
	if s.full != nil {
		if err := s.fill(ctx, charges); err != nil {
			return err
		}
	}
	return s.store.TakeAt(ctx, s.at, charges, receipts)
}

// fill fills the counters of charges that come for the first time, as of the first request. Penalties stay lifted, and
// different values uncounted.
func (s *side) fill(ctx context.Context, charges []sluice.Charge) error {
	nth, key := uint64(0), ""
	for _, c := range charges {
		if nth++; c.Key != key {
			nth, key = 0, c.Key
		}
		if c.Plan.Kernel == kernel.Lock || c.Plan.Kernel == kernel.Distinct || !s.full.changes(ruleOf(key), key) || len(s.filled) >= maxFilled {
			continue
		}
		id := maphash.String(s.seed, key) + nth
		if _, known := s.filled[id+c.Plan.Fingerprint]; known {
			continue
		}
		units := s.units(key, nth, c.Plan.Capacity)
		s.filled[id], s.filled[id+c.Plan.Fingerprint] = units, units // the plan is another one in another tier
		c.Cost, c.Shadow, c.Owe, c.Until = units, true, false, 0
		if err := s.store.TakeAt(ctx, s.begin, []sluice.Charge{c}, make([]sluice.Receipt, 1)); err != nil {
			return err
		}
	}
	return nil
}

// units returns with how many units a counter starts: all of its capacity, or as many as the policy in force has used
// up, since the same requests have filled both.
func (s *side) units(key string, nth uint64, capacity int64) int64 {
	if s.like != nil {
		if used, known := s.like.filled[maphash.String(s.like.seed, key)+nth]; known {
			return min(used, capacity)
		}
	}
	return capacity
}

// maxFilled bounds the counters that are filled.
const maxFilled = 1 << 20
