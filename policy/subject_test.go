package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
)

const subjects = `
tiers: {from: "header:X-Plan"}
rules:
  - {name: open, match: /open, exempt: true}
  - {name: user, key: ["header:X-User", client_ip, "const:v1"], limit: 10/day, tiers: {pro: 20/hour, free: 10/day burst 3}, together: [client_ip]}
  - {name: all, limit: 100/day}
  - {name: watched, key: [client_ip], limit: 1/day, shadow: true}
overrides:
  - {rule: user, key: {"header:X-User": vip}, limit: 50/minute, until: 2000-01-01T01:00:00Z}
`

func subject(t *testing.T, e *Engine, rule string, key map[string]string) *Subject {
	t.Helper()
	s, err := e.Subject(rule, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// left returns what remains in each count, as "from:remaining".
func left(t *testing.T, s *Subject) string {
	t.Helper()
	results, err := s.Peek(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range results {
		all = append(all, fmt.Sprintf("%s:%d", r.From, r.Remaining))
	}
	return strings.Join(all, " ")
}

// What administration calls a subject is what requests are counted for.
func TestSubjectIsWhoIsCounted(t *testing.T) {
	for _, tt := range []struct {
		rule string
		key  map[string]string
		r    *Request
	}{
		{"user", map[string]string{"header:X-User": "a/b", "client_ip": "192.0.2.1"}, get("/", "X-User: a/b")},
		{"user", map[string]string{"header:X-User": " a ", "client_ip": "192.0.2.1/32", "const:v1": "v1"}, get("/", "X-User: a")},
		{"user", map[string]string{"header:X-User": "", "client_ip": "192.0.2.1"}, get("/")},
		{"user", map[string]string{"header:X-User": "a", "client_ip": "2001:db8::7"}, request("GET", "/", "2001:db8::9", "X-User: a")},
		{"user", map[string]string{"header:X-User": strings.Repeat("x", 500), "client_ip": "192.0.2.1"}, get("/", "X-User: "+strings.Repeat("x", 500))},
		{"all", nil, get("/")},
	} {
		e, stored := recorded(t, subjects)
		e.Decide(t.Context(), tt.r)
		var want string
		for _, c := range stored.charges {
			if strings.Contains(c.Key, tt.rule) {
				want = c.Key
			}
		}
		s := subject(t, e, tt.rule, tt.key)
		stored.charges = nil
		if before := left(t, s); stored.charges[0].Key != want || stored.charges[0].Cost != 0 || left(t, s) != before {
			t.Errorf("%v is counted under %s, want %s", tt.key, stored.charges[0].Key, want)
		}
		if !strings.HasSuffix(want, s.Key()) || strings.HasPrefix(s.Key(), "{") {
			t.Errorf("its key is %s", s.Key())
		}
	}
}

func TestSubjectErrors(t *testing.T) {
	e := engine(t, subjects)
	for _, tt := range []struct {
		rule string
		key  map[string]string
		want string
	}{
		{"usr", nil, `there is no rule "usr": did you mean "user"?`},
		{"open", nil, `rule "open" is exempt`},
		{"user", nil, `rule "user": which header:X-User? Its key is "header:X-User", "client_ip" or "const:v1"`},
		{"user", map[string]string{"header:X-Usr": "a", "client_ip": "192.0.2.1"}, `"header:X-Usr" is not a part of its key: did you mean "header:X-User"?`},
		{"user", map[string]string{"header:X-User": "a", "client_ip": "home"}, `client_ip: "home" is not an address`},
		{"all", map[string]string{"client_ip": "192.0.2.1"}, `"client_ip" is not a part of its key`},
	} {
		if _, err := e.Subject(tt.rule, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v: %v, want %s", tt.rule, tt.key, err, tt.want)
		}
	}
	s := subject(t, e, "watched", map[string]string{"client_ip": "192.0.2.1"})
	for want, err := range map[string]error{
		"refuses nobody":    s.Block(time.Now().Add(time.Hour)),
		"has passed":        subject(t, e, "all", nil).Block(time.Now()),
		"must be at least ": errors.Join(second(s.Refund(t.Context(), 0))),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSubjectCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01
		e := engine(t, subjects)
		s := subject(t, e, "user", map[string]string{"header:X-User": "bob", "client_ip": "192.0.2.1"})
		for _, plan := range []string{"", "X-Plan: pro", "X-Plan: pro", "X-Plan: free"} {
			e.Decide(t.Context(), get("/", "X-User: bob", plan))
		}
		// The tier free counts as the rule does.
		if got, want := left(t, s), "rule:8 tier:pro:18"; got != want {
			t.Errorf("left: %s, want %s", got, want)
		}
		if after, err := s.Refund(t.Context(), 1); err != nil || len(after) != 2 || after[0].Remaining != 9 || after[1].Remaining != 19 || after[0].Rule != "user" {
			t.Errorf("after a refund: %+v, %v", after, err)
		}
		if err := s.Reset(t.Context()); err != nil || left(t, s) != "rule:10 tier:pro:20" {
			t.Errorf("after a reset: %s, %v", left(t, s), err)
		}
		if got := e.Decide(t.Context(), get("/")).Results[1].Remaining; got != 95 {
			t.Errorf("of all requests %d are left, want 95: another rule was touched", got)
		}

		vip := map[string]string{"header:X-User": "vip", "client_ip": "192.0.2.1"}
		e.Decide(t.Context(), get("/", "X-User: vip"))
		s = subject(t, e, "user", vip)
		if got := left(t, s); got != "override:49" {
			t.Errorf("with an override %s is left", got)
		}
		time.Sleep(time.Hour)
		e.Decide(t.Context(), get("/", "X-User: vip"))
		if got := left(t, subject(t, e, "user", vip)); got != "rule:9 tier:pro:20" {
			t.Errorf("when it has ended %s is left", got)
		}
		if err := s.Reset(t.Context()); err != nil || left(t, subject(t, e, "user", vip)) != "rule:10 tier:pro:20" {
			t.Errorf("a reset while there was an override leaves %s: %v", left(t, subject(t, e, "user", vip)), err)
		}
	})
}

func TestSubjectWithoutStore(t *testing.T) {
	away := brokenStore{errors.New("connection refused")}
	store := failover.New(failover.Bulkhead(away, 0), failover.Config{Logger: slog.New(slog.DiscardHandler)})
	defer store.Close()
	for want, store := range map[error]sluice.Store{away.err: away, ErrStoreAway: store} {
		s := subject(t, NewEngine(store, parse(t, subjects)), "all", nil)
		if _, err := s.Peek(t.Context()); !errors.Is(err, want) {
			t.Errorf("Peek: %v, want %v", err, want)
		}
		if err := s.Reset(t.Context()); !errors.Is(err, want) {
			t.Errorf("Reset: %v, want %v", err, want)
		}
	}
}

func TestBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := &recorder{Store: memory.New()}
		e := NewEngine(stored, parse(t, subjects))
		s := subject(t, e, "user", map[string]string{"header:X-User": "bob", "client_ip": "192.0.2.1"})
		if _, yes := s.Blocked(); yes {
			t.Error("it is blocked before")
		}
		end := time.Now().Add(time.Minute)
		if err := s.Block(end); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		stored.charges = nil
		d := e.Decide(t.Context(), get("/", "X-User: bob"))
		if d.Allowed || d.Blocked != "user" || d.Now != 0 || d.RetryAfter != 40*time.Second || d.Unavailable || len(d.Results) != 1 || d.Results[0].From != "block" ||
			d.Results[0].Allowed || d.Results[0].RetryAfter != 40*time.Second || d.Results[0].Plan != nil || stored.charges != nil {
			t.Errorf("%+v, charged %v", d, stored.charges)
		}
		x := e.Explain(t.Context(), get("/", "X-User: bob"))
		if x.Decision.Blocked != "user" || !x.Rules[1].Applies || x.Rules[1].Why != "the subject is blocked until 2000-01-01T00:01:00Z" || stored.charges != nil {
			t.Errorf("explained as %+v", x)
		}
		for _, r := range []*Request{get("/", "X-User: alice"), get("/open", "X-User: bob"), request("GET", "/", "192.0.2.2", "X-User: bob")} {
			if !e.Decide(t.Context(), r).Allowed {
				t.Errorf("%s of %v is refused", r.Path, r.Header)
			}
		}
		e.Swap(parse(t, subjects))
		if until, yes := s.Blocked(); !yes || !until.Equal(end) || e.Decide(t.Context(), get("/", "X-User: bob")).Allowed {
			t.Errorf("after a swap: blocked %v until %v", yes, until)
		}
		e.Swap(parse(t, `rules: [{name: user, key: ["header:X-User", client_ip, "const:v1"], limit: 1/day, shadow: true}]`))
		if !e.Decide(t.Context(), get("/", "X-User: bob")).Allowed {
			t.Error("a shadow refuses because of a block")
		}
		e.Swap(parse(t, subjects))
		other := subject(t, e, "all", nil)
		if err := other.Block(end.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if all := e.Blocks(); len(all) != 2 || all[0].Key != "all/" || all[1].Key != s.Key() || !all[1].Until.Equal(end) {
			t.Errorf("blocks: %v", all)
		}
		time.Sleep(40 * time.Second)
		if all := e.Blocks(); len(all) != 1 {
			t.Errorf("blocks after the end of one: %v", all)
		}
		other.Unblock()
		if d := e.Decide(t.Context(), get("/", "X-User: bob")); !d.Allowed || len(e.Blocks()) != 0 {
			t.Errorf("without blocks: %+v", d)
		}
	})
}

// A block is known before a body is read.
func TestBlockUnread(t *testing.T) {
	e := engine(t, `
rules:
  - {name: name, key: [body:user], limit: 9/day}
  - {name: each, key: [client_ip], limit: 9/day}`)
	if err := subject(t, e, "each", map[string]string{"client_ip": "192.0.2.1"}).Block(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	r := get("/")
	r.Body = func(int64) ([]byte, error) { t.Error("the body is read"); return nil, nil }
	if d := e.Decide(t.Context(), r); d.Allowed {
		t.Errorf("%+v", d)
	}
}

// A malformed request of a blocked subject is refused for the block, and charged to nobody.
func TestBlockMalformed(t *testing.T) {
	stored := &recorder{Store: memory.New()}
	e := NewEngine(stored, parse(t, `
rules:
  - {name: each, key: [client_ip], limit: 9/day}
  - {name: needs, key: ["header:X-Key"], missing: refuse, limit: 9/day}`))
	if err := subject(t, e, "each", map[string]string{"client_ip": "192.0.2.1"}).Block(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, d := range []Decision{e.Decide(t.Context(), get("/")), e.Explain(t.Context(), get("/")).Decision} {
		if d.Allowed || d.Missing != "" || len(d.Results) != 1 || d.Results[0].From != "block" || stored.charges != nil {
			t.Errorf("%+v, charged %v", d, stored.charges)
		}
	}
}

func TestBlocksAreBounded(t *testing.T) {
	e := engine(t, "rules: [{name: each, key: [\"header:X-User\"], limit: 9/day}]")
	full := make(map[string]int64)
	for i := range maxBlocks - 1 {
		full[fmt.Sprintf("each/%d", i)] = time.Now().Add(time.Hour).UnixMicro()
	}
	e.blocks.Store(&full)
	for i, want := range []bool{true, false} {
		err := subject(t, e, "each", map[string]string{"header:X-User": fmt.Sprint("new", i)}).Block(time.Now().Add(time.Hour))
		if (err == nil) != want || len(e.Blocks()) != maxBlocks {
			t.Errorf("%d blocks: %v", len(e.Blocks()), err)
		}
	}
}

// manyOverrides returns overrides of a rule "each" for as many subjects.
func manyOverrides(n int, limit string) []Override {
	all := make([]Override, n)
	for i := range all {
		all[i] = Override{Rule: "each", Key: map[string]string{"header:X-User": fmt.Sprintf("user-%06d@example.com", i)}, Limit: limit}
	}
	return all
}

const eachUser = `rules: [{name: each, key: ["header:X-User"], limit: 9/day}, {name: all, limit: 1000000/day}]`

// A hundred thousand overrides are swapped at once, while decisions are made, and the policy
// stays what it is.
func TestSwapOverrides(t *testing.T) {
	e := engine(t, eachUser)
	rules := &e.Policy().rules[0]
	old, fresh := manyOverrides(100_000, "50/day"), manyOverrides(100_000, "70/day")
	if err := e.SwapOverrides(old); err != nil {
		t.Fatal(err)
	}
	r := get("/", "X-User: user-099999@example.com")
	if d := e.Decide(t.Context(), r); d.Results[0].Plan.Limit.Count != 50 || d.Results[0].From != "override" {
		t.Errorf("%+v", d.Results[0])
	}
	done := make(chan error)
	go func() { done <- e.SwapOverrides(fresh) }()
	seen := map[int64]int{}
	for swapped := false; !swapped; {
		select {
		case err := <-done:
			if swapped = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		seen[e.Decide(t.Context(), r).Results[0].Plan.Limit.Count]++
	}
	if got := e.Decide(t.Context(), r).Results[0].Plan.Limit.Count; got != 70 || len(seen) > 2 || seen[9] > 0 {
		t.Errorf("the limit is %d at last, and was %v meanwhile", got, seen)
	}
	if rules != &e.Policy().rules[0] {
		t.Error("the rules were compiled again")
	}

	bad := append(slices.Clone(old), Override{Rule: "each", Key: map[string]string{"header:X-User": "x"}, Limit: "1/year"}, Override{Rule: "none"})
	var problems Errors
	if err := e.SwapOverrides(bad); !errors.As(err, &problems) || len(problems) != 3 || problems[0].Path != "overrides[100000].limit" {
		t.Errorf("%v", err)
	}
	if got := e.Decide(t.Context(), r).Results[0].Plan.Limit.Count; got != 70 {
		t.Errorf("a bad list has replaced a good one: the limit is %d", got)
	}
	if err := e.SwapOverrides(nil); err != nil || e.Decide(t.Context(), r).Results[0].From != "rule" {
		t.Errorf("without overrides: %v", err)
	}
}

// BenchmarkSwapOverrides swaps a hundred thousand overrides, and tells what one takes.
func BenchmarkSwapOverrides(b *testing.B) {
	const n = 100_000
	e, list := engine(b, eachUser), manyOverrides(n, "50/day")
	b.ReportAllocs()
	for b.Loop() {
		if err := e.SwapOverrides(list); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/override")
}

// BenchmarkOverridden decides for one of many who have an override, and with many blocks.
func BenchmarkOverridden(b *testing.B) {
	for _, n := range []int{0, 1, 100_000} {
		for _, blocks := range []int{0, maxBlocks} {
			b.Run(fmt.Sprintf("overrides=%d/blocks=%d", n, blocks), func(b *testing.B) {
				e := engine(b, eachUser)
				if err := e.SwapOverrides(manyOverrides(n, "100000000/second")); err != nil {
					b.Fatal(err)
				}
				blocked := make(map[string]int64)
				for i := range blocks {
					blocked[fmt.Sprint("each/", i)] = time.Now().Add(time.Hour).UnixMicro()
				}
				e.blocks.Store(&blocked)
				r, d := get("/", "X-User: user-000000@example.com"), Decision{}
				for b.Loop() {
					e.DecideInto(b.Context(), r, &d)
				}
			})
		}
	}
}
