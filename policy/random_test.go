package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
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

// periodNames are the limits of random documents, and what the names of several end in.
var periodNames = map[string]string{
	"3/second": "1s", "5/7s": "7s", "9/minute": "1m", "20/hour": "1h", "40/day": "1d", "60/month": "month", "50/month from 30": "month",
	"4/second burst 3": "1s", "6/minute burst 10": "1m", "30/hour burst 4": "1h",
}

var (
	windows = []string{"3/second", "5/7s", "9/minute", "20/hour", "40/day"}
	bursts  = append([]string{"4/second burst 3", "6/minute burst 10", "30/hour burst 4"}, windows...)
	months  = append([]string{"60/month", "50/month from 30"}, windows...)
)

type dice struct{ *rand.Rand }

// one in n
func (r dice) one(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r dice, of ...T) T { return of[r.IntN(len(of))] }

// some returns from least to most of what there is, in any order.
func some[T any](r dice, least, most int, of ...T) []T {
	of = slices.Clone(of)
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:least+r.IntN(most-least+1)]
}

// randomLimits are some that a rule of the algorithm can have.
func randomLimits(r dice, algorithm string) []string {
	most := pick(r, 1, 1, 3)
	switch algorithm {
	case "":
		return some(r, 1, most, append(months[:2:2], bursts...)...)
	case "fixed_window":
		return some(r, 1, most, months...)
	case "token_bucket", "gcra":
		return some(r, 1, most, bursts...)
	case "leaky_bucket":
		return some(r, 1, 1, bursts...)
	}
	return some(r, 1, most, windows...)
}

var (
	clients    = []string{"192.0.2.1", "192.0.2.2", "198.51.100.7", "2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1"}
	clientSets = []string{"office", "192.0.2.0/24", "198.51.100.7", "2001:db8::/48", "192.0.2.2"}
)

func randomRule(r dice, i int) Rule {
	out := Rule{Name: fmt.Sprint("r", i)}
	if r.one(3) {
		out.Match = some(r, 1, 2, "/a", "POST /a", "/b/{id}", "/{rest...}")
	}
	if r.one(4) {
		out.Clients = some(r, 1, 2, clientSets...)
	}
	if r.one(4) {
		out.NotClients = some(r, 1, 2, clientSets...)
	}
	if r.one(6) {
		out.Headers = map[string]string{"X-User": pick(r, "alice", "*")}
	}
	if r.one(6) {
		out.Attributes = map[string]string{"plan": pick(r, "trial", "*")}
	}
	if r.one(8) {
		out.Exempt, out.Clients = true, some(r, 1, 1, clientSets...)
		return out
	}
	if r.one(8) {
		out.Block, out.Shadow, out.Clients = true, r.one(2), some(r, 1, 1, clientSets...)
		return out
	}
	out.Key = some(r, 0, 2, "header:X-User", "attr:user", "body:name", "const:x", "method")
	if r.one(2) {
		out.Key = slices.Insert(out.Key, r.IntN(len(out.Key)+1), "client_ip")
	}
	out.Together = some(r, 0, len(out.Key), out.Key...)
	out.Missing = pick(r, "", "share", "skip", "refuse")
	out.Shadow = r.one(6)
	out.Algorithm = pick(r, "", "token_bucket", "gcra", "leaky_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact")
	if out.Limits = randomLimits(r, out.Algorithm); len(out.Limits) == 1 && r.one(2) {
		out.Limit, out.Limits = out.Limits[0], nil
	}
	if r.one(3) {
		out.Tiers = map[string]Limits{"pro": randomLimits(r, out.Algorithm), "free": randomLimits(r, out.Algorithm)}
	}
	if out.Algorithm == "leaky_bucket" {
		return out
	}
	if r.one(2) {
		out.Count = Count{Status: some(r, 0, 2, Status("401"), "4xx", "101", "2xx"), UnlessHeader: pick(r, "", "X-Uncount")}
	}
	switch r.IntN(5) {
	case 0:
		out.Cost = Cost{Default: 1 + r.Int64N(3)}
	case 1:
		out.Cost = Cost{Header: "X-Price", Default: 1 + r.Int64N(2), Max: 6}
	case 2:
		out.Cost = Cost{ResponseHeader: "X-Cost", Estimate: r.Int64N(4), Max: 7}
	case 3:
		out.Cost = Cost{ResponseBytes: 10, Estimate: r.Int64N(4)}
	}
	return out
}

func randomDocument(r dice) *Document {
	d := &Document{
		TrustedProxies: []string{"10.0.0.1"},
		Lists:          map[string]List{"office": {Networks: some(r, 1, 2, "198.51.100.0/24", "2001:db8::/64", "192.0.2.1")}},
		Tiers:          Tiers{From: "header:X-Plan", Default: pick(r, "", "free")},
	}
	for i := range 1 + r.IntN(5) {
		d.Rules = append(d.Rules, randomRule(r, i))
	}
	seen := make(map[string]bool)
	for range r.IntN(10) {
		rule := &d.Rules[r.IntN(len(d.Rules))]
		o := Override{Rule: rule.Name, Key: make(map[string]string)}
		for _, part := range rule.Key {
			if values := map[string][]string{
				"client_ip":     {"192.0.2.1", "192.0.2.0/24", "192.0.2.0/28", "2001:db8::/48", "2001:db8::"},
				"header:X-User": {"alice", "bob", "*"}, "attr:user": {"7"}, "body:name": {"alice"}, "method": {"GET", "*"},
			}[part]; values != nil && !r.one(4) {
				o.Key[part] = pick(r, values...)
			}
		}
		same := fmt.Sprint(o)
		if len(o.Key) == 0 || seen[same] {
			continue
		}
		seen[same] = true
		if r.one(4) {
			o.Until = time.Now().Add(time.Duration(r.IntN(48)) * time.Hour).Format(time.RFC3339)
		}
		if o.Limits = randomLimits(r, rule.Algorithm); len(o.Limits) == 1 {
			o.Limit, o.Limits = o.Limits[0], nil
		}
		d.Overrides = append(d.Overrides, o)
	}
	return d
}

func randomQuery(r dice) *query {
	q := &query{
		method: pick(r, "GET", "POST"), path: pick(r, "/a", "/b/1", "/c"), client: netip.MustParseAddr(pick(r, clients...)),
		headers: make(map[string]string), attributes: make(map[string]string), at: time.Now(),
	}
	q.headers["X-User"], q.headers["X-Plan"] = pick(r, "", "alice", "alice", "bob"), pick(r, "", "", "pro", "other")
	q.headers["X-Price"] = pick(r, "", "", "2", "5", "9", "0", "x")
	q.attributes["user"], q.attributes["plan"] = pick(r, "", "7", "8"), pick(r, "", "trial", "paid")
	if q.method == "POST" {
		q.name = pick(r, "", "alice", "bob")
	}
	if r.one(10) {
		q.cost = r.Int64N(4)
	}
	if r.one(10) {
		q.at = q.at.Add(time.Duration(r.IntN(7200)) * time.Second) // blocks that are over may be forgotten
	}
	return q
}

// request returns what a door makes of the query.
func (q *query) request(r dice) *Request {
	out := &Request{Method: q.method, Host: "example.com", Path: q.path, Peer: q.client, Header: http.Header{}, Attributes: q.attributes, Cost: q.cost, Time: q.at}
	for name, v := range q.headers {
		if v != "" {
			out.Header.Set(name, v)
		}
	}
	if r.one(3) {
		out.Peer = netip.MustParseAddr("10.0.0.1")
		out.Header.Set("X-Forwarded-For", "203.0.113.9, "+q.client.String())
	}
	if q.method == "POST" {
		out.Header.Set("Content-Type", "application/json")
		body := []byte("{}")
		if q.name != "" {
			body = []byte(`{"name": "` + q.name + `"}`)
		}
		out.Body = func(int64) ([]byte, error) { return body, nil }
	}
	return out
}

func randomOutcome(r dice) Outcome {
	o := Outcome{Status: pick(r, 0, 101, 200, 200, 204, 401, 401, 404, 500), Bytes: r.Int64N(120), Header: http.Header{}}
	if r.one(3) {
		o.Bytes = pick(r, int64(-1), 0)
	}
	if r.one(2) {
		o.Header.Set("X-Cost", pick(r, "0", "1", "5", "9", "x", "-1"))
	}
	if r.one(3) {
		o.Header.Set("X-Uncount", pick(r, "0", "1"))
	}
	if r.one(5) {
		o.Verdict = pick(r, Counts, CountsNot)
	}
	if r.one(8) {
		o.Cost = pick(r, int64(-1), 3, 12)
	}
	return o
}

// held is a request that has passed.
type held struct {
	decision Decision
	charges  []oracleCharge
	pending  []*owed
}

// random is a policy under random requests.
type random struct {
	dice
	*testing.T
	seed   uint64
	step   int
	engine *Engine
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

// ask decides about a request by the policy and by its documentation.
func (t *random) ask() {
	q := randomQuery(t.dice)
	r := q.request(t.dice)
	told := t.engine.Explain(context.Background(), r).Decision
	want, pending, charges := t.oracle.decide(q)
	t.engine.DecideInto(context.Background(), r, &t.reused)
	got := t.reused.Clone()
	if told.Allowed != got.Allowed || told.Exempt != got.Exempt || told.Blocked != got.Blocked || told.Missing != got.Missing {
		t.fatalf("Explain of %+v says\n%+v, and Decide\n%+v", q, told, got)
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
		t.held = append(t.held, held{got, charges, pending})
	}
	if got.Delay > 0 && t.one(3) {
		t.end(len(t.held) - 1)
	}
}

// plain returns what a decision says, without what only the engine knows.
func plain(d Decision) Decision {
	d = d.Clone()
	d.taken, d.unsettled = nil, nil
	if len(d.Results) == 0 {
		d.Results = nil
	}
	for i := range d.Results {
		d.Results[i].Plan = nil
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
		t.oracle.leave(&h.decision, h.charges, h.pending)
		return
	}
	for range 1 + t.IntN(2) {
		out := randomOutcome(t.dice)
		t.engine.Settle(context.Background(), h.decision, out)
		t.oracle.settle(h.pending, &out)
	}
}

// block blocks a subject, or lifts that.
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

// compare compares all that is left.
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
			if want := t.oracle.peek(c); want != r.Decision {
				t.fatalf("of %s by %v there is\n%+v, want\n%+v", c.charge.Key, r.Plan.Limit, r.Decision, want)
			}
		}
		if t.one(20) && !c.rule.Shadow {
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

// pass lets time go by: mostly little, at times days.
func (t *random) pass() {
	most := pick(t.dice, time.Second, time.Second, 10*time.Second, time.Minute, time.Hour, 40*24*time.Hour)
	if t.one(4) {
		most = 0
	}
	time.Sleep(time.Duration(t.Int64N(int64(most)/1000+1)) * time.Microsecond)
}

// reload loads the same policy anew: what is counted, or waits for its outcome, stays.
func (t *random) reload() {
	p, err := Compile(*t.oracle.doc)
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

// Random policies decide as their documentation says, also about what is known of a request only
// afterwards. SLUICE_RANDOM_POLICIES says how many, and SLUICE_RANDOM_SEED where they begin.
func TestRandomPolicies(t *testing.T) {
	seed, n := uint64(time.Now().UnixNano()), 60
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
	for _, what := range []string{"passed", "exempt", "blocked", "malformed", "queued", "limited", "unsettled", "left", "from rule",
		"from tier:pro", "from override", "from block", "refused by one of several"} {
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
	o := &oracle{t: t, doc: doc, plans: make(map[string]*sluice.Plan), blocks: make(map[string]time.Time)}
	run := &random{dice: r, T: t, seed: seed, engine: NewEngine(memory.New(), p), oracle: o, seen: make(map[string]oracleCharge), tally: tally}
	run.run(120)
}
