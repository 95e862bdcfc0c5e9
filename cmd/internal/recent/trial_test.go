package recent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func decode(t testing.TB, text string) *policy.Document {
	t.Helper()
	doc, err := policyfile.Decode("test.yaml", []byte("version: 1\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

func engineOf(t testing.TB, doc *policy.Document) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(*doc)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}

// live is an engine that decides the same requests as the recorded one, with its decisions.
type live struct {
	name    string
	doc     *policy.Document
	engine  *policy.Engine
	allowed []bool
}

// The policy in force and twenty changed ones decide an hour of traffic at the same time, all from empty counters.
// The result of a trial equals the decisions of the changed policy, request by request.
func TestTrialIsWhatTheEngineDoes(t *testing.T) {
	t.Parallel()
	sections := testkit.Sections(t, "testdata/changes.txt")
	synctest.Test(t, func(t *testing.T) {
		var all []*live
		for i, s := range sections {
			text := s.Text
			if i > 0 {
				text = changed(t, sections[0].Text, s.Text)
			}
			doc := decode(t, text)
			all = append(all, &live{name: s.Name, doc: doc, engine: engineOf(t, doc)})
		}
		if len(all) != 21 {
			t.Fatalf("%d policies", len(all))
		}
		now := all[0]
		ring := Watch(now.engine, 8<<20)
		r := rand.New(rand.NewPCG(31, 1))
		long := time.Hour - time.Minute
		if testkit.Race {
			long = 3 * time.Minute // too short for every change to have an effect
		}
		for begin := time.Now(); time.Since(begin) < long; {
			time.Sleep(time.Duration(1+r.IntN(600_000)) * time.Microsecond)
			q := traffic(r)
			decisions := make([]policy.Decision, len(all))
			for i, l := range all {
				own := q
				decisions[i] = l.engine.Decide(t.Context(), &own)
				l.allowed = append(l.allowed, decisions[i].Allowed)
			}
			if !decisions[0].Allowed {
				continue // the request has no response
			}
			time.Sleep(time.Duration(1+r.IntN(50_000)) * time.Microsecond)
			o := policy.Outcome{Status: []int{200, 401, 403}[r.IntN(3)], Bytes: r.Int64N(5000), Header: http.Header{"X-Used": {fmt.Sprint(r.IntN(4))}}}
			for i, l := range all {
				l.engine.Settle(t.Context(), decisions[i], o)
			}
		}
		for _, l := range all[1:] {
			if err := l.compare(t, ring, now); err != nil {
				t.Errorf("%s: %v", l.name, err)
			}
		}
	})
}

// compare compares a trial of the change to l with the decisions of l and of the policy in force.
func (l *live) compare(t *testing.T, ring *Ring, now *live) error {
	tried := &trial{ring: ring, chunks: ring.chunks()}
	tried.begin(now.doc, l.doc)
	p, err := tried.newPass()
	if err != nil {
		return err
	}
	var want Change
	records := newMerger(tried.chunks)
	for i := range l.allowed {
		for p.reader = records.next(); p.reader != nil && p.reader.ended; p.reader = records.next() {
			p.step(t.Context())
		}
		if p.reader == nil {
			return fmt.Errorf("the ring keeps %d of %d requests", i, len(l.allowed))
		}
		p.step(t.Context())
		before, after := now.allowed[i], l.allowed[i]
		if was, is := p.sides[emptyBefore].decision.Allowed, p.sides[emptyAfter].decision.Allowed; was != before || is != after {
			return fmt.Errorf("request %d: in the trial, allowed %v before and %v after the change; by the engines %v and %v", i, was, is, before, after)
		}
		switch {
		case before && !after:
			want.Newly++
		case after && !before:
			want.Freed++
		}
	}
	var got Trial
	p.report(&got)
	if tried.leave(p) || len(tried.left) > 0 || got.Differs != 0 || got.Change != want || want == (Change{}) && !testkit.Race || got.Requests != int64(len(l.allowed)) {
		return fmt.Errorf("want %+v of %d requests: %s", want, len(l.allowed), encoded(t, got))
	}
	if got.Most.Newly < want.Newly || got.Most.Freed < want.Freed {
		return fmt.Errorf("the bounds exclude the true numbers: %s", encoded(t, got))
	}
	return nil
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// traffic returns a request of one of a few clients.
func traffic(r *rand.Rand) policy.Request {
	n := r.IntN(r.IntN(30) + 1)
	q := policy.Request{
		Method: "GET", Host: "api.example.com", Path: "/items/" + fmt.Sprint(r.IntN(50)),
		Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), Header: http.Header{}, Door: "gateway",
	}
	if n%3 == 0 {
		q.Header.Set("X-Api-Key", fmt.Sprintf("k-%04d-secret", n))
	}
	if n%5 == 0 {
		q.Header.Set("X-Plan", []string{"pro", "free"}[n%2])
	}
	if n%7 == 0 {
		q.Header.Set("X-Cost", fmt.Sprint(1+r.IntN(4)))
	}
	switch r.IntN(5) {
	case 0:
		q.Method, q.Path = "POST", "/login"
		body := fmt.Sprintf(`{"username":"User%d","password":"p"}`, r.IntN(20))
		q.Header.Set("Content-Type", "application/json")
		q.Body = func(int64) ([]byte, error) { return []byte(body), nil }
	case 1:
		q.Path, q.RawQuery = "/search", "q="+[]string{"a", "B", "b", "c"}[r.IntN(4)]
	case 2:
		q.Path = "/static/logo.png"
	}
	return q
}

// Counters that are older than the records make a trial inexact, and its bounds hold: for a long limit, the ring
// has only the last minutes.
func TestOldCounters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := "rules: [{name: r, key: [client_ip], limit: %s}]"
		now, other := decode(t, fmt.Sprintf(text, "600/day")), decode(t, fmt.Sprintf(text, "600/day burst 400"))
		engine, changed := engineOf(t, now), engineOf(t, other)
		ring := Watch(engine, LeastBytes)
		var truth Change
		r := rand.New(rand.NewPCG(31, 2))
		for begin := time.Now(); time.Since(begin) < 150*time.Minute; {
			time.Sleep(time.Duration(1+r.IntN(2_000_000)) * time.Microsecond)
			first := traffic(r)
			second := first
			before, after := engine.Decide(t.Context(), &first).Allowed, changed.Decide(t.Context(), &second).Allowed
			switch {
			case time.Since(begin) < 90*time.Minute:
			case before && !after:
				truth.Newly++
			case after && !before:
				truth.Freed++
			}
		}
		got, err := ring.Try(t.Context(), now, other)
		if err != nil {
			t.Fatal(err)
		}
		if got.Differs == 0 || got.Change == truth || truth == (Change{}) {
			t.Errorf("the trial is exact: %s", encoded(t, got))
		}
		if got.Most.Newly < truth.Newly || got.Most.Freed < truth.Freed {
			t.Errorf("the truth is %+v: %s", truth, encoded(t, got))
		}
	})
}

// changed returns a text in which the lines that begin with "+" replace the preceding text after "-".
func changed(t testing.TB, base, change string) string {
	t.Helper()
	for _, one := range strings.Split("\n"+strings.TrimSpace(change), "\n-")[1:] {
		was, is, _ := strings.Cut(one, "\n")
		was = strings.TrimSpace(was)
		if !strings.Contains(base, was) {
			t.Fatalf("the policy has no %q", was)
		}
		var lines []string
		for line := range strings.Lines(is) {
			lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "+"), " "))
		}
		base = strings.Replace(base, was, strings.TrimSpace(strings.Join(lines, "\n")), 1)
	}
	return base
}

// Values that a rule hides are in no record, and reports show them in the form that the rule sets.
func TestHiddenKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ show, want string }{{"short", "sk_l…er"}, {"hash", "#"}, {"whole", "sk_live_whatever"}} {
		text := "rules: [{name: r, key: [api_key], limit: %s/day, show_key: " + c.show + "}]"
		doc := decode(t, fmt.Sprintf(text, "9"))
		engine := engineOf(t, doc)
		ring := Watch(engine, LeastBytes)
		for range 3 {
			engine.Decide(t.Context(), &policy.Request{Path: "/a", Header: http.Header{"X-Api-Key": {"sk_live_whatever"}}})
		}
		for _, k := range ring.chunks() {
			if hidden := !strings.Contains(string(k.data), "whatever"); hidden != (c.show != "whole") {
				t.Errorf("%s: the ring has %q", c.show, k.data)
			}
		}
		got, err := ring.Try(t.Context(), doc, decode(t, fmt.Sprintf(text, "1")))
		if err != nil || len(got.Subjects) != 1 || !strings.HasPrefix(got.Subjects[0].Subject, c.want) || got.Newly != 2 {
			t.Errorf("%s: %v, %s", c.show, err, encoded(t, got))
		}
	}
}

// A record may contain a text both hidden and in the open, such as a key that is also the path. Values may have any
// bytes.
func TestTextsOfRecords(t *testing.T) {
	t.Parallel()
	const text = "rules: [{name: key, key: [api_key], limit: %[1]s/day, show_key: hash}, {name: path, match: /v, limit: 9/day}, {name: user, key: [attr:user], limit: %[1]s/day, show_key: whole}]"
	for _, c := range []struct {
		paths []string
		want  map[string]int // denied requests by rule
	}{
		{[]string{"/v", "/v", "/v", "/v"}, map[string]int{"path": 3}}, // the path comes first
		{[]string{"/w", "/v", "/w", "/v"}, map[string]int{"key": 2, "path": 1}},
	} {
		doc := decode(t, fmt.Sprintf(text, "9"))
		engine := engineOf(t, doc)
		ring := Watch(engine, LeastBytes)
		for i, path := range c.paths {
			engine.Decide(t.Context(), &policy.Request{
				Path: path, Header: http.Header{"X-Api-Key": {"/v"}}, Attributes: map[string]string{"user": fmt.Sprint("a\x00", i)},
			})
		}
		got, err := ring.Try(t.Context(), doc, decode(t, strings.Replace(fmt.Sprintf(text, "2"), "9/day", "1/day", 1)))
		if err != nil {
			t.Fatal(err)
		}
		denied := map[string]int{}
		for _, r := range got.Rules {
			denied[r.Rule] = int(r.Newly)
		}
		if !maps.Equal(denied, c.want) {
			t.Errorf("%v: %v, want %v", c.paths, denied, c.want)
		}
	}
}

// A subject is shown in the form of the stricter policy, also if it is a part of every record.
func TestHiddenPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ now, then, want string }{
		{"hash", "hash", "#"}, {"whole", "hash", "#"}, {"hash", "whole", "#"}, {"short", "whole", "/res…23"}, {"whole", "whole", "/reset/SECRET123"},
	} {
		text := "rules: [{name: r, key: [path], limit: %s/day, show_key: %s}]"
		now := decode(t, fmt.Sprintf(text, "9", c.now))
		engine := engineOf(t, now)
		ring := Watch(engine, LeastBytes)
		for range 3 {
			engine.Decide(t.Context(), &policy.Request{Path: "/reset/SECRET123"})
		}
		got, err := ring.Try(t.Context(), now, decode(t, fmt.Sprintf(text, "1", c.then)))
		if err != nil || len(got.Subjects) != 1 || !strings.HasPrefix(got.Subjects[0].Subject, c.want) {
			t.Errorf("%+v: %v, %s", c, err, encoded(t, got))
		}
	}
}

// Rules that cannot be judged are listed, and do not change the result.
func TestNotJudged(t *testing.T) {
	t.Parallel()
	base := `
rules:
  - {name: own, key: [client_ip, api_key], limit: 2/day, show_key: hash}
  - {name: body, match: [POST /login], key: ["body:name"], limit: 100/day, ambiguous: charge}
`
	now := decode(t, base)
	engine := engineOf(t, now)
	ring := Watch(engine, LeastBytes)
	for range 4 {
		engine.Decide(t.Context(), &policy.Request{Path: "/a", Peer: netip.MustParseAddr("192.0.2.1"), Body: func(int64) ([]byte, error) { return []byte(`{"name":"a"}`), nil }})
	}
	for rule, needs := range map[string]string{
		`{name: x, in_flight: 5, key: [client_ip]}`:                               "in_flight",
		`{name: x, key: ["header:X-Tenant"], limit: 1/day}`:                       "header:X-Tenant",
		`{name: x, headers: {X-Debug: "1"}, limit: 1/day}`:                        "header:X-Debug",
		`{name: x, attributes: {user: "*"}, limit: 1/day}`:                        "attr:user",
		`{name: x, clients: [192.0.2.0/24], limit: 1/day}`:                        "client_ip",
		`{name: x, key: [client_ip], limit: 1/day, enforce: "50%"}`:               "client_ip",
		`{name: x, key: [client_ip], limit: 1/day, count: {status: [401]}}`:       "the outcome",
		`{name: x, key: [client_ip], limit: 1/day, cost: {tokens: total}}`:        "cost",
		`{name: x, limit: 1/day, cost: {header: X-Cost, max: 5}}`:                 "header:X-Cost",
		`{name: x, key: ["body:name"], limit: 1/day}`:                             "body:name",
		`{name: x, body: {name: "a*"}, key: ["body:name"], limit: 1/day}`:         "body:name",
		`{name: x, key: [client_ip, "cookie:session"], limit: 1/day}`:             "cookie:session",
		`{name: x, key: [client_ip], distinct: {of: "query:name", limit: 1/day}}`: "query:name",
	} {
		got, err := ring.Try(t.Context(), now, decode(t, base+"  - "+rule+"\n"))
		if err != nil || len(got.NotJudged) != 1 || got.NotJudged[0].Rule != "x" || got.NotJudged[0].Needs != needs {
			t.Errorf("%s: %v, %s", rule, err, encoded(t, got))
		} else if got.Newly != 0 || got.Freed != 0 || got.Before != 2 || got.After != 2 {
			t.Errorf("%s: the rule changes the result: %s", rule, encoded(t, got))
		}
	}
}

// If a new policy reads more parts of requests, earlier requests are useless for the rules that read these parts, and
// only for them.
func TestOlderRecords(t *testing.T) {
	t.Parallel()
	text := "rules:\n  - {name: a, key: [client_ip], limit: %s/day}\n"
	tenant := "  - {name: b, key: [\"header:X-Tenant\"], limit: %s/day}\n"
	first, second := decode(t, fmt.Sprintf(text, "9")), decode(t, fmt.Sprintf(text+tenant, "9", "9"))
	engine := engineOf(t, first)
	ring := Watch(engine, LeastBytes)
	ask := func(n int) {
		for range n {
			engine.Decide(t.Context(), &policy.Request{Path: "/a", Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Tenant": {"t"}}})
			time.Sleep(time.Microsecond)
		}
	}
	ask(4)
	p, err := policy.Compile(*second)
	if err != nil {
		t.Fatal(err)
	}
	engine.Swap(p)
	ask(3)
	for _, c := range []struct {
		would           *policy.Document
		requests, newly int64
	}{
		{decode(t, fmt.Sprintf(text+tenant, "9", "1")), 3, 2},
		{decode(t, fmt.Sprintf(text+tenant, "2", "9")), 3, 1},
	} {
		if got, err := ring.Try(t.Context(), second, c.would); err != nil || got.Requests != c.requests || got.Newly != c.newly || len(got.NotJudged) > 0 {
			t.Errorf("%v, %s", err, encoded(t, got))
		}
	}
	if got, err := ring.Try(t.Context(), first, decode(t, fmt.Sprintf(text, "2"))); err != nil || got.Requests != 7 || got.Newly != 5 {
		t.Errorf("%v, %s", err, encoded(t, got))
	}
}

// wall is a board of instances in this process.
type wall struct {
	mu    sync.Mutex
	parts map[string]map[string][]byte
}

func (w *wall) Post(_ context.Context, part, instance string, post []byte, _ time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parts[part] == nil {
		w.parts[part] = map[string][]byte{}
	}
	w.parts[part][instance] = post
	return nil
}

func (w *wall) Posted(_ context.Context, part string) (map[string][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.parts[part]), nil
}

// A trial covers the requests that all instances have recorded. An instance that has stopped is left out, and one that
// was killed is reported as missing.
func TestFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := "lists: {all: [192.0.2.0/24]}\nrules: [{name: r, clients: [all], key: [client_ip], limit: %s/day}]"
		doc := decode(t, fmt.Sprintf(text, "9"))
		board := &wall{parts: map[string]map[string][]byte{}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var fleet []*Fleet
		for i := range 3 {
			engine := engineOf(t, doc)
			f := NewFleet(Watch(engine, LeastBytes), board, func() *policy.Document { return doc }, slog.New(slog.DiscardHandler))
			fleet = append(fleet, f)
			go f.Run(ctx)
			for range 3 + i {
				engine.Decide(t.Context(), &policy.Request{Path: "/a", Peer: netip.MustParseAddr("192.0.2.1")})
			}
		}
		time.Sleep(time.Second)
		got, err := fleet[1].Try(t.Context(), decode(t, fmt.Sprintf(text, "2")))
		if err != nil || got.Instances != 3 || got.Requests != 12 || got.Newly != 6 || len(got.Subjects) != 1 || got.Subjects[0].Newly != 6 || len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "Each instance") {
			t.Errorf("%v, %s", err, encoded(t, got))
		}
		cancel()
		synctest.Wait()
		got, err = fleet[0].Try(t.Context(), decode(t, fmt.Sprintf(text, "2")))
		if err != nil || got.Instances != 1 || got.Requests != 3 || len(got.Notes) > 0 {
			t.Errorf("stopped instances: %v, %s", err, encoded(t, got))
		}
		if err := board.Post(t.Context(), herePart, "killed", nil, postsFor); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err = fleet[0].Try(t.Context(), decode(t, fmt.Sprintf(text, "2")))
		if took := time.Since(began); err != nil || len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "1 instance has not answered") || took > 5*time.Second {
			t.Errorf("a killed instance: %v, %v, %s", took, err, encoded(t, got))
		}
	})
}

// Long texts that are not kept whole stay distinct.
func TestLongValues(t *testing.T) {
	t.Parallel()
	base := "rules:\n  - {name: now, key: [client_ip, \"header:X-Tenant\"], limit: 100/day, show_key: whole}\n"
	now := decode(t, base)
	for _, rule := range []string{`{name: x, key: [path], limit: 2/day}`, `{name: x, key: ["header:X-Tenant"], limit: 2/day, show_key: whole}`} {
		engine := engineOf(t, now)
		ring := Watch(engine, LeastBytes)
		for i := range 9 {
			long := strings.Repeat("x", 1100) + fmt.Sprint(i%3)
			engine.Decide(t.Context(), &policy.Request{Path: "/" + long, Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Tenant": {long}}})
		}
		if got, err := ring.Try(t.Context(), now, decode(t, base+"  - "+rule+"\n")); err != nil || got.Newly != 3 {
			t.Errorf("%s: %v, %s", rule, err, encoded(t, got))
		}
	}
}

// A rule is not judged if it depends on the clients' addresses or on outcomes, and the address of a client or the
// request of an outcome is unknown.
func TestUnknownClientsAndOutcomes(t *testing.T) {
	t.Parallel()
	rules := "rules:\n  - {name: r, key: [client_ip], limit: 9/day}\n  - {name: all, limit: 9/day}\n  - {name: failed, limit: 9/day, count: {status: [401]}}\n"
	now := decode(t, rules)
	engine := engineOf(t, now)
	ring := Watch(engine, LeastBytes)
	d := engine.Decide(t.Context(), &policy.Request{Path: "/a", Peer: netip.MustParseAddr("192.0.2.1")})
	for _, c := range []struct {
		then  string
		needs string
		apart bool
	}{
		{"trusted_proxies: [192.0.2.0/24]\n" + rules, "client_ip", false},
		{strings.Replace(rules, "limit: 9/day, count", "limit: 5/day, count", 1), unknownOutcome, true},
	} {
		if c.apart {
			copied := d
			copied.Track(0)
			engine.Settle(t.Context(), copied, policy.Outcome{Status: 401})
		}
		got, err := ring.Try(t.Context(), now, decode(t, c.then))
		if err != nil || len(got.NotJudged) != 1 || got.NotJudged[0].Needs != c.needs {
			t.Errorf("%q: %v, %s", c.then, err, encoded(t, got))
		}
	}
}
