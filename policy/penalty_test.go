package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

const loginsWithPenalty = `
tiers: {from: header:X-Plan}
rules:
  - name: login
    match: POST /login
    key: [client_ip]
    limits: [3/minute, 100/day]
    algorithm: sliding_window_log
    tiers: {pro: 5/minute}
    penalty: {first: 10m, factor: 2}
  - {name: all, limit: 50/minute}
overrides:
  - {rule: login, key: {client_ip: 192.0.2.9}, limit: 1/minute}
`

func TestPenalty(t *testing.T) {
	for _, test := range []struct {
		client, plan string
		passed       int
		results      int
	}{{"192.0.2.1", "free", 3, 3}, {"192.0.2.2", "pro", 5, 2}, {"192.0.2.9", "pro", 1, 2}} {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, loginsWithPenalty)
			r := request("POST", "/login", test.client, "X-Plan: "+test.plan)
			if n := admitted(t, e, r, 10); n != test.passed {
				t.Errorf("%v: %d pass, want %d", test, n, test.passed)
			}
			check := func(d Decision, wait time.Duration) {
				t.Helper()
				if d.Allowed || d.RetryAfter != wait || len(d.Results) != test.results {
					t.Errorf("%v: %+v, want a refusal for %v, and what all limits say", test, d, wait)
				}
				for i := range d.Results {
					l := &d.Results[i]
					if locked := l.Rule == "login"; l.Locked != locked || l.Allowed == locked || locked && (l.Remaining != 0 || l.RetryAfter != wait || l.ResetAfter < wait) {
						t.Errorf("%v: %+v", test, l)
					}
				}
			}
			check(e.Decide(t.Context(), r), 10*time.Minute)
			time.Sleep(9 * time.Minute)
			check(e.Decide(t.Context(), r), time.Minute)
			check(e.Explain(t.Context(), r).Decision, time.Minute)
			if d := e.Decide(t.Context(), request("POST", "/login", "192.0.2.77")); !d.Allowed {
				t.Errorf("another client: %+v", d)
			}
			time.Sleep(time.Minute)
			if n := admitted(t, e, r, 10); n != test.passed {
				t.Errorf("%v: afterwards %d pass, want %d", test, n, test.passed)
			}
			check(e.Decide(t.Context(), r), 20*time.Minute)

			s := subject(t, e, "login", map[string]string{"client_ip": test.client})
			peek := func() (locked bool) {
				results, err := s.Peek(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range results {
					if locked = l.Locked; locked && (l.RetryAfter != 20*time.Minute || l.Remaining != 0) {
						t.Errorf("looked at: %+v", l)
					}
				}
				return locked
			}
			if _, err := s.Refund(t.Context(), 100); err != nil || !peek() {
				t.Errorf("a refund has lifted it (%v)", err)
			}
			if err := s.Reset(t.Context()); err != nil || peek() {
				t.Errorf("a reset has not lifted it (%v)", err)
			}
			if n := admitted(t, e, r, 10); n != test.passed {
				t.Errorf("%v: after a reset %d pass, want %d", test, n, test.passed)
			}
			check(e.Decide(t.Context(), r), 10*time.Minute)
		})
	}
}

// TestPenaltyForetold holds what Explain says to what Decide then does, offences too.
func TestPenaltyForetold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, loginsWithPenalty)
		offences, locked := 0, 0
		for i := range 1200 {
			r := request("POST", "/login", fmt.Sprint("192.0.2.", i%3))
			would, is := e.Explain(t.Context(), r).Decision, e.Decide(t.Context(), r)
			if would.Allowed != is.Allowed || would.RetryAfter != is.RetryAfter {
				t.Fatalf("step %d: explained as %+v, decided %+v", i, would, is)
			}
			switch {
			case is.Allowed:
			case is.RetryAfter%(10*time.Minute) == 0:
				offences++
			default:
				locked++
			}
			time.Sleep(time.Duration(i%11) * time.Second)
		}
		if offences < 5 || locked < 50 {
			t.Errorf("%d offences and %d refusals while locked out say little", offences, locked)
		}
	})
}

// TestPenaltyUnread has a request whose body is not read, since another rule refuses it, exceed that
// rule for the first time: the penalty begins all the same.
func TestPenaltyUnread(t *testing.T) {
	e := engine(t, `rules:
  - {name: address, key: [client_ip], limit: 2/hour, penalty: 1d}
  - {name: account, match: POST /login, key: [body:username], limit: 100/hour}
`)
	reads := 0
	ask := func() Decision {
		r := withBody(request("POST", "/login", "192.0.2.1"), `{"username": "alice"}`)
		body := r.Body
		r.Body = func(limit int64) ([]byte, error) { reads++; return body(limit) }
		return e.Decide(t.Context(), r)
	}
	for i := range 6 {
		d := ask()
		if passes := i < 2; d.Allowed != passes || !passes && d.RetryAfter.Round(time.Second) != 24*time.Hour {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	if reads != 3 {
		t.Errorf("%d bodies were read, want those that passed and that of the offence", reads)
	}
	if d := e.Decide(t.Context(), get("/")); d.Allowed || !d.Results[0].Locked {
		t.Errorf("%+v, want that it is locked out", d)
	}
}

// TestPenaltyMalformed holds that what is refused for what it lacks offends as it counts.
func TestPenaltyMalformed(t *testing.T) {
	e := engine(t, `rules:
  - {name: address, key: [client_ip], limit: 2/hour, penalty: 1d}
  - {name: key, key: [api_key], missing: refuse, limit: 100/hour}
`)
	for i := range 4 {
		d := e.Decide(t.Context(), get("/"))
		if i < 2 && d.Missing == "" || i >= 2 && (d.Missing != "" || !d.Results[0].Locked) {
			t.Errorf("request %d: %+v", i, d)
		}
	}
}

// TestPenaltyOfQueue has the client of a request leave that waits in a queue with a penalty.
func TestPenaltyOfQueue(t *testing.T) {
	e := engine(t, `rules: [{name: queue, limit: 1/hour burst 2, algorithm: leaky_bucket, penalty: 1d}]`)
	pass(t, e, "/")
	d := pass(t, e, "/")
	if d.Delay < 59*time.Minute {
		t.Fatalf("premise: %+v", d)
	}
	e.Refund(t.Context(), d)
	if again := pass(t, e, "/"); again.Delay < 59*time.Minute {
		t.Errorf("after it has left: %+v", again)
	}
	for range 2 {
		if d := e.Decide(t.Context(), get("/")); d.Allowed || d.Delay != 0 || d.RetryAfter < 23*time.Hour {
			t.Errorf("%+v, want a penalty", d)
		}
	}
}

func TestPenaltyShadow(t *testing.T) {
	e := engine(t, `rules:
  - {name: watched, key: [client_ip], limit: 2/hour, penalty: 1d, shadow: true}
  - {name: all, limit: 100/hour}
`)
	for i := range 5 {
		d := e.Decide(t.Context(), get("/"))
		if !d.Allowed || d.RetryAfter != 0 || d.Results[0].Locked != (i >= 2) || d.Results[0].Allowed != (i < 2) || d.Results[1].Remaining != 99-int64(i) {
			t.Errorf("request %d: %+v", i, d)
		}
	}
}

// TestPenaltySettled holds that what does not count in the end lifts no penalty, and that what is
// settled is no offence.
func TestPenaltySettled(t *testing.T) {
	e := engine(t, `rules: [{name: failed, limit: 3/hour, algorithm: sliding_window_log, count: {status: [401]}, penalty: 10m}]`)
	for range 5 {
		e.Settle(t.Context(), pass(t, e, "/"), status(200))
	}
	first := pass(t, e, "/")
	for range 2 {
		e.Settle(t.Context(), pass(t, e, "/"), status(401))
	}
	if d := e.Decide(t.Context(), get("/")); d.Allowed || !d.Results[0].Locked {
		t.Errorf("with one under way: %+v, want an offence", d)
	}
	e.Settle(t.Context(), first, status(200))
	if d := e.Decide(t.Context(), get("/")); d.Allowed || !d.Results[0].Locked || d.RetryAfter < 9*time.Minute {
		t.Errorf("after it did not count: %+v, want that it lasts", d)
	}

	e = engine(t, `rules: [{name: dear, limit: 10/hour, cost: {response_header: X-Cost, max: 100}, penalty: 10m}]`)
	e.Settle(t.Context(), pass(t, e, "/"), header(200, "X-Cost", "50"))
	if s := subject(t, e, "dear", nil); left(t, s) != "rule:0" {
		t.Errorf("what costs more than there is leaves %s", left(t, s))
	} else if results, _ := s.Peek(t.Context()); results[0].Locked {
		t.Errorf("it is an offence: %+v", results)
	}
}

// TestPenaltyWithoutStore has the store fail: on_error decides as for any rule.
func TestPenaltyWithoutStore(t *testing.T) {
	for on, allowed := range map[string]bool{"allow": true, "deny": false} {
		e := NewEngine(brokenStore{err: errors.New("away")}, parse(t, "rules: [{name: a, limit: 1/hour, penalty: 10m, on_error: "+on+"}]"))
		if d := e.Decide(t.Context(), get("/")); d.Allowed != allowed || len(d.Results) != 1 || d.Results[0].Locked || d.Unavailable == allowed {
			t.Errorf("%s: %+v", on, d)
		}
	}
	// A lock that cannot be read is decided by on_error alone.
	e := NewEngine(closedLock{memory.New()}, parse(t, "rules: [{name: a, limit: 5/hour, penalty: 10m, on_error: deny}]"))
	if d := e.Decide(t.Context(), get("/")); d.Allowed || !d.Unavailable || d.RetryAfter != time.Second || d.Results[0].Allowed {
		t.Errorf("a lock that cannot be read: %+v", d)
	}
	if err := subject(t, e, "a", nil).Reset(t.Context()); !errors.Is(err, ErrStoreAway) {
		t.Errorf("a reset of it: %v", err)
	}
}

func TestPenaltyProblems(t *testing.T) {
	for text, want := range map[string]string{
		"penalty: 10":                                  `rules[0].penalty: the period "10" is written 10s`,
		"penalty: 0s":                                  `rules[0].penalty: the period is 0s`,
		"penalty: 20000d":                              `rules[0].penalty: a penalty is`,
		"penalty: {factor: 2}":                         "rules[0].penalty: the penalty has no first",
		"penalty: {first: x, factor: 2}":               "rules[0].penalty.first: the period \"x\"",
		"penalty: {first: 1m, most: 1h}":               "rules[0].penalty: without a factor",
		"penalty: {first: 1m, factor: 2, most: 1s}":    "rules[0].penalty: the longest penalty",
		"penalty: {first: 1m, factor: 2, forget: 2x}":  "rules[0].penalty.forget:",
		"penalty: {first: 1m, factor: -2}":             "rules[0].penalty: the factor",
		"penalty: 1m, exempt: true, limit: null":       "",
		"penalty: 1m, count: {status: [401]}":          "",
		"penalty: {first: 1m, factor: 3, most: 2d}":    "",
		"penalty: 1m, algorithm: leaky_bucket":         "",
		"penalty: {first: 1m, factor: 2, forget: day}": "",
	} {
		doc := Document{Rules: []Rule{{Name: "a", Limit: "5/minute"}}}
		r := &doc.Rules[0]
		if strings.Contains(text, "exempt") {
			r.Exempt, r.Limit, want = true, "", "rules[0].penalty: an exempt rule counts nothing and has no penalty"
		}
		p, err := Parse("test.yaml", []byte("version: 1\nrules: [{name: a, limit: 5/minute, "+strings.TrimSuffix(text, ", exempt: true, limit: null")+"}]\n"))
		if r.Exempt {
			r.Penalty = Penalty{First: "1m"}
			_, err = Compile(doc)
		}
		var problems Errors
		switch {
		case want == "" && (err != nil || p.rules[0].lock == nil):
			t.Errorf("%s: %v", text, err)
		case want != "" && (!errors.As(err, &problems) || !strings.HasPrefix(problems[0].Path+": "+problems[0].Message, want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestPenaltyWarning(t *testing.T) {
	for text, warned := range map[string]bool{
		"limit: 2/minute, count: {status: [401]}, penalty: 10m":                   true,
		"limits: [100/hour, 1/second], count: {status: [401]}, penalty: 10m":      true,
		"limit: 3/minute, count: {status: [401]}, penalty: 10m":                   false,
		"limit: 2/minute, penalty: 10m":                                           false,
		"limit: 2/minute, count: {status: [401]}":                                 false,
		"limit: 1/minute burst 20, count: {status: [401]}, penalty: {first: 10m}": false,
	} {
		if warnings := fmt.Sprint(parse(t, "rules: [{name: a, "+text+"}]").Warnings()); strings.Contains(warnings, "locked out") != warned {
			t.Errorf("%s: %s", text, warnings)
		}
	}
}

func TestPenaltyJSON(t *testing.T) {
	for p, want := range map[Penalty]string{
		{First: "10m"}: `"10m"`,
		{First: "1m", Factor: 2, Most: "1h", Forget: "1d"}: `{"first":"1m","factor":2,"most":"1h","forget":"1d"}`,
	} {
		text, err := json.Marshal(p)
		if err != nil || string(text) != want {
			t.Errorf("%+v: %s, %v", p, text, err)
		}
		var back Penalty
		if err := json.Unmarshal(text, &back); err != nil || back != p {
			t.Errorf("%s: %+v, %v", text, back, err)
		}
	}
	if err := json.Unmarshal([]byte("7"), new(Penalty)); err == nil {
		t.Error("a number is a penalty")
	}
}

// closedLock is a store that cannot read locks.
type closedLock struct{ sluice.Store }

func (s closedLock) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := s.Store.Take(ctx, charges, receipts)
	for i := range charges {
		if charges[i].Plan.Kernel == sluice.Lock {
			receipts[i] = sluice.Receipt{Now: receipts[i].Now, Origin: sluice.ByOnError}
		}
	}
	return err
}
