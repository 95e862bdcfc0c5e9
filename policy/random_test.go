package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// held is a request that has passed.
type held struct {
	decision Decision
	charges  []oracleCharge
	pending  []*owed
	id       string
}

// random is a policy under random requests.
type random struct {
	dice
	*testing.T
	seed   uint64
	step   int
	engine *Engine
	doc    *Document // the source of the policy
	oracle *oracle
	reused Decision
	held   []held
	seen   map[string]oracleCharge
	tally  map[string]int
}

func (t *random) fatalf(format string, args ...any) {
	t.Helper()
	text, _ := json.Marshal(t.oracle.doc)
	t.Fatalf("seed %d, step %d, at %v: %s\n%s", t.seed, t.step, time.Now().UTC(), fmt.Sprintf(format, args...), text)
}

// asked is a request, and the decision and charges of the oracle.
type asked struct {
	q       *query
	want    Decision
	pending []*owed
	charges []oracleCharge
}

// askMany decides about requests one after the other, in one call. If turns were given up, it decides about one request
// only, because it is not defined which request of a list gets such a turn.
func (t *random) askMany() {
	all, reqs := make([]asked, 1+t.IntN(6)), []*Request(nil)
	for _, turns := range t.oracle.left {
		if len(turns) > 0 {
			all = all[:1]
		}
	}
	for i := range all {
		a := &all[i]
		if a.q = randomQuery(t.dice); i > 0 && t.one(3) {
			a.q = all[t.IntN(i)].q
		}
		reqs = append(reqs, a.q.request(t.dice))
		a.want, a.pending, a.charges = t.oracle.decide(a.q)
	}
	ds := make([]Decision, len(reqs))
	t.engine.DecideEach(context.Background(), reqs, ds)
	for i := range all {
		t.check(&all[i], ds[i])
	}
	t.tally["in one call"]++
}

// ask decides about a request by the engine and by the oracle.
func (t *random) ask() {
	q := randomQuery(t.dice)
	if r := q.request(t.dice); q.mode == Charge {
		t.explain(q, r)
	} else {
		a := asked{q: q}
		a.want, a.pending, a.charges = t.oracle.decide(q)
		t.engine.DecideInto(context.Background(), r, &t.reused)
		t.check(&a, t.reused.Clone())
	}
}

// explain explains a request, and then decides about it.
func (t *random) explain(q *query, r *Request) {
	explained := t.engine.Explain(context.Background(), r).Decision
	want, pending, charges := t.oracle.decide(q)
	t.engine.DecideInto(context.Background(), r, &t.reused)
	got := t.reused.Clone()
	if explained.Blocked != "" && t.refusedUnread(&got) {
		explained.Blocked = got.Blocked // Explain evaluates all rules at once
	}
	if explained.Allowed != got.Allowed || explained.Exempt != got.Exempt || explained.Blocked != got.Blocked || explained.Missing != got.Missing {
		t.fatalf("Explain of %+v returned\n%+v, and Decide\n%+v", q, explained, got)
	}
	t.check(&asked{q, want, pending, charges}, got)
}

// check compares a decision with the decision of the oracle.
func (t *random) check(a *asked, got Decision) {
	q, want, pending, charges := a.q, a.want, a.pending, a.charges
	if q.mode != Charge || want.Repeated {
		t.checkFree(a, &got)
		return
	}
	if got.Unsettled() != (len(pending) > 0) {
		t.fatalf("%+v waits for its outcome: %v, and %d charges do:\n%+v, want\n%+v", q, got.Unsettled(), len(pending), plain(got), plain(want))
	}
	if !reflect.DeepEqual(plain(got), plain(want)) {
		t.fatalf("%+v:\n%+v, want\n%+v", q, plain(got), plain(want))
	}
	for _, c := range charges {
		t.seen[c.charge.Key+c.charge.Plan.Limit.String()] = c
	}
	t.count(got, pending)
	if got.Allowed {
		t.held = append(t.held, held{got, charges, pending, q.id})
	}
	if got.Delay > 0 && t.one(3) {
		t.end(len(t.held) - 1)
	}
}

// checkFree compares a decision that has taken nothing.
func (t *random) checkFree(a *asked, got *Decision) {
	want := &a.want
	if got.Allowed != want.Allowed || got.Repeated != want.Repeated || got.Exempt != want.Exempt || got.Blocked != want.Blocked || got.Missing != want.Missing {
		t.fatalf("%+v:\n%+v, want\n%+v", a.q, got, want)
	}
	if got.Unsettled() || got.Queued() {
		t.fatalf("%+v has taken something: %+v", a.q, got)
	}
	for _, r := range got.Results {
		if want.Allowed && !r.Allowed && !r.Shadow {
			t.fatalf("%+v passes, and a rule denies: %+v", a.q, got)
		}
	}
	for _, c := range a.charges {
		t.seen[c.charge.Key+c.charge.Plan.Limit.String()] = c
	}
	t.tally[[]string{"charged again", "peeked", "given back"}[a.q.mode]]++
	if want.Repeated {
		t.tally["repeated"]++
	}
}

// plain returns a decision without the fields that only the engine knows.
func plain(d Decision) Decision {
	d = d.Clone()
	d.queued, d.unsettled = nil, nil
	if len(d.Results) == 0 {
		d.Results = nil
	}
	for i := range d.Results {
		d.Results[i].Plan, d.Results[i].at, d.Results[i].Owed = nil, 0, 0 // only peeks have Owed
	}
	return d
}

func (t *random) count(d Decision, pending []*owed) {
	for what, is := range map[string]bool{
		"passed": d.Allowed, "exempt": d.Exempt, "blocked": d.Blocked != "", "malformed": d.Missing != "",
		"queued": d.Delay > 0, "limited": !d.Allowed && d.RetryAfter > 0, "unsettled": len(pending) > 0,
	} {
		if is {
			t.tally[what]++
		}
	}
	for _, r := range d.Results {
		t.tally["from "+r.From]++
		if i := t.engine.Policy().byName[r.Rule]; t.engine.Policy().rules[i].isPartial() && !r.Allowed {
			t.tally[map[bool]string{true: "let pass outside of a share", false: "refused in a share"}[r.Shadow]]++
		}
		if r.Name != "" && !r.Allowed {
			t.tally["refused by one of several"]++
		}
	}
}

// end settles a request, perhaps in two steps, or has its client leave a queue.
func (t *random) end(i int) {
	h := t.held[i]
	if t.held = slices.Delete(t.held, i, i+1); h.decision.Delay > 0 && t.one(2) && h.decision.Delay > time.Since(time.UnixMicro(h.decision.Now)) {
		t.tally["left"]++
		t.engine.Refund(context.Background(), h.decision)
		t.oracle.leave(&h)
		return
	}
	for range 1 + t.IntN(2) {
		out := randomOutcome(t.dice)
		t.engine.Settle(context.Background(), h.decision, out)
		t.oracle.settle(h.pending, &out)
	}
}

// refusedUnread reports whether some of the rules deny a request before its body is read for others.
func (t *random) refusedUnread(d *Decision) bool {
	reads := make(map[string]bool)
	for i := range t.oracle.doc.Rules {
		if r := &t.oracle.doc.Rules[i]; readsBody(r) {
			reads[r.Name] = true
		}
	}
	return !d.Allowed && len(reads) > 0 && !slices.ContainsFunc(d.Results, func(r Result) bool { return reads[r.Rule] })
}

// block blocks or unblocks a subject.
func (t *random) block(c *oracleCharge, q map[string]string) {
	s, err := t.engine.Subject(c.rule.Name, q)
	if err != nil {
		t.fatalf("%v", err)
	}
	if t.one(3) {
		s.Unblock()
		delete(t.oracle.blocks, c.charge.Key)
		return
	}
	until := time.Now().Add(time.Duration(1+t.IntN(7200)) * time.Second)
	if err := s.Block(until); err != nil {
		t.fatalf("%v", err)
	}
	t.oracle.blocks[c.charge.Key] = until
}

// compare compares the remaining units of all subjects so far.
func (t *random) compare() {
	for _, key := range sortedKeys(t.seen) {
		c := t.seen[key]
		subject, err := t.engine.Subject(c.rule.Name, c.subject())
		if err != nil {
			t.fatalf("%v", err)
		}
		results, err := subject.Peek(context.Background())
		if err != nil {
			t.fatalf("%v", err)
		}
		for _, r := range results {
			c.charge.Plan = r.Plan
			want := t.oracle.peek(c)
			if c.charge.Cost = 1; c.rule.Algorithm == "leaky_bucket" {
				if w := t.oracle.vacant(c.charge); w != nil {
					w.setDelay(&want, c.charge)
				}
			}
			if want != r.Decision {
				t.fatalf("%s under %v:\n%+v, want\n%+v", c.charge.Key, r.Plan.Limit, r.Decision, want)
			}
		}
		if t.one(20) && !c.charge.Shadow {
			t.block(&c, c.subject())
		}
	}
}

// subject returns the values of the key.
func (c *oracleCharge) subject() map[string]string {
	all := make(map[string]string)
	for i, part := range c.rule.Key {
		all[part] = c.values[i]
	}
	return all
}

// pass advances the time, mostly by little and sometimes by days.
func (t *random) pass() {
	most := pick(t.dice, time.Second, time.Second, 10*time.Second, time.Minute, time.Hour, 40*24*time.Hour)
	if t.one(4) {
		most = 0
	}
	time.Sleep(time.Duration(t.Int64N(int64(most)/1000+1)) * time.Microsecond)
}

// reload swaps the policy for the same one, compiled again. Counts stay, and so do charges that wait for their
// outcomes.
func (t *random) reload() {
	p, err := Compile(*t.doc)
	if err != nil {
		t.fatalf("%v", err)
	}
	t.engine.Swap(p)
}

func (t *random) run(steps int) {
	for t.step = range steps {
		if len(t.held) > 0 && t.one(3) {
			t.end(t.IntN(len(t.held)))
			t.compare()
		} else if t.one(4) {
			t.askMany()
			t.compare()
		} else {
			t.ask()
		}
		if t.one(3) {
			t.pass()
		}
		if t.one(20) {
			t.reload()
		}
	}
	t.compare()
}

// Random policies decide as documented, also about costs that are known only afterwards. SLUICE_RANDOM_POLICIES sets
// the number of policies, and SLUICE_RANDOM_SEED the seed of the first one. "make draws" runs more policies, with new
// seeds each time.
func TestRandomPolicies(t *testing.T) {
	t.Parallel()
	seed, n := uint64(1000), 20
	if s, err := strconv.ParseUint(os.Getenv("SLUICE_RANDOM_SEED"), 10, 64); err == nil {
		seed = s
	}
	if s, err := strconv.Atoi(os.Getenv("SLUICE_RANDOM_POLICIES")); err == nil {
		n = s
	}
	tally := make(map[string]int)
	for i := range n {
		synctest.Test(t, func(t *testing.T) { randomPolicy(t, seed+uint64(i), tally) })
	}
	for _, what := range []string{"passed", "exempt", "blocked", "malformed", "queued", "limited", "unsettled", "left", "from rule", "in one call", "peeked", "given back", "repeated",
		"from tier:pro", "from override", "from block", "refused by one of several", "only watched", "pardoned", "let pass outside of a share", "refused in a share"} {
		if tally[what] == 0 {
			t.Errorf("premise, seed %d: no request %s", seed, what)
		}
	}
	t.Logf("from seed %d: %v", seed, tally)
}

func randomPolicy(t *testing.T, seed uint64, tally map[string]int) {
	r := dice{rand.New(rand.NewPCG(seed, 1))}
	time.Sleep(time.Duration(r.Int64N(int64(1000 * 24 * time.Hour))).Truncate(time.Microsecond))
	doc := randomDocument(r)
	p, err := Compile(*doc)
	for ; err != nil; p, err = Compile(*doc) {
		tally["not compiled"]++
		doc = randomDocument(r)
	}
	e := NewEngine(memory.New(), p)
	documented := *doc
	if r.one(6) {
		tally["only watched"]++
		e.ShadowAll()
		documented.Rules = slices.Clone(doc.Rules)
		for i := range documented.Rules {
			documented.Rules[i].Shadow, documented.Rules[i].Enforce = true, ""
		}
	}
	e.Observe(func(_ context.Context, o *Observation) {
		for i, r := range o.Decision.Results {
			if o.Policy().rules[o.RuleIndex(i)].name != r.Rule {
				t.Errorf("seed %d: rule %s has the index %d", seed, r.Rule, o.RuleIndex(i))
			}
		}
		if o.Pardoned() != "" {
			tally["pardoned"]++
		}
	})
	o := &oracle{t: t, doc: &documented, plans: make(map[string]*sluice.Plan), blocks: make(map[string]time.Time), passed: make(map[string]time.Time), left: make(map[string][]*wait), turns: make(map[string][]*wait)}
	run := &random{dice: r, T: t, seed: seed, engine: e, doc: doc, oracle: o, seen: make(map[string]oracleCharge), tally: tally}
	run.run(120)
}
