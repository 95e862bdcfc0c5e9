package policy

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func TestRepeatedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, limit: 2/hour}]")
		ask := func(id string, cost int64) Decision {
			r := get("/")
			r.ID, r.Cost = id, cost
			return e.Decide(t.Context(), r)
		}
		if d := ask("one", 2); !d.Allowed || d.Repeated {
			t.Fatalf("first: %s", said(d))
		}
		if d := ask("one", 2); !d.Allowed || !d.Repeated || d.Results[0].Remaining != 0 || !d.Results[0].Allowed {
			t.Fatalf("again: %s %+v", said(d), d)
		}
		if d := ask("one", 1); d.Allowed || d.Repeated {
			t.Fatalf("another question of this ID: %s", said(d))
		}
		if d := ask("two", 2); d.Allowed {
			t.Fatalf("another ID: %s", said(d))
		}
		time.Sleep(RepeatedWithin)
		if d := ask("one", 2); d.Allowed || d.Repeated {
			t.Fatalf("a minute later: %s", said(d))
		}
	})
}

func TestParallelID(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 100/hour}, {name: b, limit: 50/day, algorithm: fixed_window}]")
	var wg sync.WaitGroup
	var first atomic.Int64
	for range 64 {
		wg.Go(func() {
			r := get("/")
			r.ID = "x"
			d := e.Decide(t.Context(), r)
			if !d.Allowed {
				t.Error(said(d))
			}
			if !d.Repeated {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 || remains(t, e, "a") != 99 || remains(t, e, "b") != 49 {
		t.Errorf("%d were first; %d of a and %d of b are left", first.Load(), remains(t, e, "a"), remains(t, e, "b"))
	}
}

func TestModes(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 5/hour, penalty: 10m}]")
	ask := func(m Mode, cost int64) Decision {
		r := get("/")
		r.Mode, r.Cost = m, cost
		return e.Decide(t.Context(), r)
	}
	if d := ask(Peek, 5); !d.Allowed || remains(t, e, "a") != 5 {
		t.Fatal(said(d))
	}
	if d := ask(Peek, 6); d.Allowed || d.RetryAfter == 0 {
		t.Fatal(said(d))
	}
	if d := ask(Charge, 5); !d.Allowed || remains(t, e, "a") != 0 {
		t.Fatal(said(d))
	}
	if d := ask(GiveBack, 3); !d.Allowed || remains(t, e, "a") != 3 {
		t.Fatal(said(d))
	}
}

func TestSubjectAlone(t *testing.T) {
	e := engine(t, `
rules:
  - {name: a, key: [api_key], limit: 5/hour}
overrides:
  - {rule: a, key: {api_key: vip}, limit: 9/hour}`)
	for key, want := range map[string]int64{"x": 4, "vip": 8, "%/{": 4} {
		s, err := e.Subject("a", map[string]string{"api_key": key})
		if err != nil {
			t.Fatal(err)
		}
		d := e.Decide(t.Context(), &Request{Subject: s})
		if !d.Allowed || d.Results[0].Remaining != want {
			t.Errorf("%s: %+v", key, d)
		}
		if d := e.Decide(t.Context(), get("/", "X-API-Key: "+key)); d.Results[0].Remaining != want-1 {
			t.Errorf("%s: the request counts elsewhere: %+v", key, d)
		}
	}
	plan, _ := sluice.NewPlan(sluice.Limit{Count: 3, Period: time.Hour})
	s := e.Adhoc("a", "x", plan, sluice.Allow)
	if d := e.Decide(t.Context(), &Request{Subject: s, Cost: 3}); !d.Allowed || d.Results[0].Rule != "a" || d.Results[0].From != "caller" {
		t.Errorf("%+v", d)
	}
	if d := e.Decide(t.Context(), &Request{Subject: s}); d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestEach(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 3/hour}]")
	reqs, ds := make([]*Request, 5), make([]Decision, 5)
	for i := range reqs {
		reqs[i] = get("/")
	}
	e.DecideEach(t.Context(), reqs, ds)
	for i := range ds {
		if ds[i].Allowed != (i < 3) {
			t.Errorf("%d: %s", i, said(ds[i]))
		}
	}
}

func TestTogether(t *testing.T) {
	e := engine(t, "rules: [{name: a, match: [/a], limit: 3/hour}, {name: b, match: [/b], limit: 2/hour}]")
	a, b := get("/a"), get("/b")
	ds := make([]Decision, 3)
	ask := func(reqs ...*Request) bool { return e.DecideTogether(context.Background(), reqs, ds[:len(reqs)]) }
	if !ask(a, b, a) || remains(t, e, "a") != 1 || remains(t, e, "b") != 1 {
		t.Fatal(remains(t, e, "a"), remains(t, e, "b"))
	}
	if ask(a, b, a) || remains(t, e, "a") != 1 || remains(t, e, "b") != 1 {
		t.Fatal(remains(t, e, "a"), remains(t, e, "b"))
	}
	if !ds[0].Allowed || !ds[1].Allowed || ds[2].Allowed {
		t.Fatal(said(ds[0]), said(ds[1]), said(ds[2]))
	}
}

func TestSettleRequest(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 10/day, count: {status: [401]}}]")
	r := get("/")
	r.ID = "x"
	e.Decide(t.Context(), r)
	for range 2 {
		if err := e.SettleRequest(t.Context(), r, status(200)); err != nil {
			t.Fatal(err)
		}
		if n := remains(t, e, "a"); n != 10 {
			t.Fatal(n)
		}
	}
}

// A question that is repeated is no offence, and waits for its own turn.
func TestRepeatedIsNoOffence(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 1/hour, penalty: 1h}]")
	r := get("/")
	r.ID = "x"
	for range 5 {
		if d := e.Decide(t.Context(), r); !d.Allowed || d.Results[0].Locked {
			t.Fatalf("%+v", d)
		}
	}
	if d := e.Decide(t.Context(), get("/")); d.Allowed || !d.Results[0].Locked {
		t.Fatalf("an offence is none: %+v", d)
	}
	if d := e.Decide(t.Context(), r); !d.Allowed || !d.Repeated {
		t.Fatalf("what passed before the penalty: %+v", d)
	}
}

func TestRepeatedTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: q, limit: 1/second burst 10, algorithm: leaky_bucket}]")
		for range 3 {
			e.Decide(t.Context(), get("/"))
		}
		r := get("/")
		r.ID = "x"
		first := e.Decide(t.Context(), r)
		time.Sleep(time.Second)
		again := e.Decide(t.Context(), r)
		if first.Delay != 3*time.Second || again.Delay != 2*time.Second || !again.Repeated {
			t.Errorf("the turn is in %v, and a second later in %v", first.Delay, again.Delay)
		}
		e.Refund(t.Context(), again)
		if d := e.Decide(t.Context(), get("/")); d.Delay != 3*time.Second {
			t.Errorf("the repeated question has given up the turn of the first: another one waits for %v", d.Delay)
		}
		e.Refund(t.Context(), first)
		if d := e.Decide(t.Context(), get("/")); d.Delay != 2*time.Second {
			t.Errorf("the first has left, and another one waits for %v", d.Delay)
		}
	})
}

// What is settled by a request is what its decision would have settled.
func TestSettleRequestByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: window, match: [/a], limit: 10/hour, algorithm: fixed_window, count: {status: [401]}}
  - {name: bucket, match: [/a], limit: 10/hour, cost: {response_header: X-Cost, estimate: 4, max: 9}}
  - {name: log, match: [/a], limit: 10/hour, algorithm: sliding_window_log, count: {status: [401]}}
  - {name: plain, match: [/b], limit: 10/hour}`)
		r := get("/a")
		r.Time = time.Now()
		e.Decide(t.Context(), r)
		if err := e.SettleRequest(t.Context(), r, header(200, "X-Cost", "7")); err != nil {
			t.Fatal(err)
		}
		if w, b, l := remains(t, e, "window"), remains(t, e, "bucket"), remains(t, e, "log"); w != 10 || b != 3 || l != 10 {
			t.Errorf("%d, %d and %d are left, want 10, 3 and 10", w, b, l)
		}
		reset(t, e, "bucket")
		e.Decide(t.Context(), r)
		time.Sleep(61 * time.Minute)
		e.Decide(t.Context(), r)
		if err := e.SettleRequest(t.Context(), r, header(200, "X-Cost", "1")); err != nil {
			t.Fatal(err)
		}
		if w, b, l := remains(t, e, "window"), remains(t, e, "bucket"), remains(t, e, "log"); w != 9 || b != 6 || l != 9 {
			t.Errorf("an hour later %d, %d and %d are left, want 9, 6 and 9: what is forgotten was given back", w, b, l)
		}
		if err := e.SettleRequest(t.Context(), get("/b"), status(200)); err != ErrNothingToSettle {
			t.Errorf("of a rule that waits for no outcome: %v", err)
		}
		if err := e.SettleRequest(t.Context(), get("/a"), Outcome{Status: 200, Bytes: -1}); err != nil {
			t.Errorf("of which one rule is known: %v", err)
		}
	})
	e := engine(t, "rules: [{name: a, key: [api_key], missing: refuse, limit: 10/hour, count: {status: [401]}}]")
	if err := e.SettleRequest(t.Context(), get("/"), status(200)); err == nil {
		t.Error("a request that cannot have passed is settled")
	}
}

// The keys of callers' limits meet neither each other nor those of rules and questions.
func FuzzAdhocKeys(f *testing.F) {
	f.Add("a", "b", "a/b", "")
	f.Add("", "", "!", "/")
	f.Add("{x}", "y", "{x", "}y")
	plan, err := sluice.NewPlan(sluice.Limit{Count: 3, Period: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	e := NewEngine(memory.New(), nil)
	f.Fuzz(func(t *testing.T, name, key, otherName, otherKey string) {
		one, other := e.Adhoc(name, key, plan, sluice.Allow).Key(), e.Adhoc(otherName, otherKey, plan, sluice.Allow).Key()
		if (one == other) != (name == otherName && key == otherKey) {
			t.Errorf("%q %q has %q, and %q %q has %q", name, key, one, otherName, otherKey, other)
		}
		if one[0] != '/' || strings.Count(one, "/") != 2 || strings.ContainsAny(one, "{}!") {
			t.Errorf("%q could be the key of something else", one)
		}
		var k keyText
		if once := onceCharge(&k, []byte(key), one).Key; !strings.HasPrefix(once, "{"+one+"}!/") {
			t.Errorf("the question is in another slot: %q", once)
		}
	})
}

// What is given back was not taken, and its ID lets nobody pass.
func TestGivenBackID(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 2/hour}, {name: b, limit: 9/day, algorithm: fixed_window, penalty: 1m}]")
	ask := func(m Mode) Decision {
		r := get("/")
		r.ID, r.Mode, r.Cost = "x", m, 2
		return e.Decide(t.Context(), r)
	}
	for round, want := range []struct {
		mode     Mode
		repeated bool
		left     int64
	}{{Charge, false, 0}, {Charge, true, 0}, {GiveBack, false, 2}, {GiveBack, true, 2}, {Charge, false, 0}, {Charge, true, 0}} {
		if d := ask(want.mode); !d.Allowed || d.Repeated != want.repeated || remains(t, e, "a") != want.left {
			t.Errorf("%d: %s, repeated %v, %d left", round, said(d), d.Repeated, remains(t, e, "a"))
		}
	}
}

func TestIDThatLeftTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, limit: 1/second burst 3, algorithm: leaky_bucket, penalty: 1m}]")
		ask := func(id string) Decision {
			r := get("/")
			r.ID = id
			return e.Decide(t.Context(), r)
		}
		ask("first")
		left := ask("x")
		e.Refund(t.Context(), left)
		if d := ask("x"); d.Repeated || d.Delay != left.Delay || d.Delay == 0 {
			t.Fatalf("who has left the queue is let through without a place: %s %+v", said(d), d)
		}
		if d := ask("x"); !d.Repeated || d.Delay != left.Delay {
			t.Fatalf("asked again: %s %+v", said(d), d)
		}
	})
}
