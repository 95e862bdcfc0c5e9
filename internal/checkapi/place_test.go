package checkapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
)

const flightRules = `
version: 1
rules:
  - {name: all, in_flight: 3}
  - {name: user, key: ["attr:user"], missing: skip, in_flight: 2}
`

// Whoever asks for a place has one until it says that the request has ended, at whatever instance, and
// whoever does not only looks.
func TestPlaces(t *testing.T) {
	redis := redistest.Start(t)
	var both [2]*server
	for i := range both {
		store, err := stores.Open(t.Context(), redis.URL(), stores.Config{Required: true, Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		both[i] = start(t, testRules, func(c *checkapi.Config) { c.Engine = policy.NewEngine(sluice.Store(store), compile(t, flightRules)) })
	}
	here, there := both[0], both[1]
	const alice = `{"request": {"path": "/", "attributes": {"user": "alice"}}`
	first := here.ask("/v1/check", alice+`, "place": true}`)
	second := there.do("POST", "/v1/check", `{"checks": [`+alice+`, "place": true}]}`).want(200).answers()[0]
	if !first.Allowed || !second.Allowed || first.Place == "" || second.Place == "" || first.Place == second.Place {
		t.Fatalf("%+v\n%+v", first, second)
	}
	if a := here.ask("/v1/check", alice+`, "place": true}`); a.Allowed || a.Place != "" || a.Status != 429 || a.RetryAfter != 1 || a.remaining("all") != 1 {
		t.Errorf("a third: %+v", a)
	}
	if a := here.ask("/v1/check", alice+`}`); a.Allowed {
		t.Errorf("a look: %+v", a)
	}
	if a := here.ask("/v1/check", `{"rule": "all"}`); !a.Allowed || a.Place != "" || a.remaining("all") != 1 {
		t.Errorf("a look at another rule: %+v", a)
	}
	here.do("POST", "/v1/hold", `{"place": "`+second.Place+`"}`).want(200).says(`{"held":true}`)
	for range 2 {
		there.do("POST", "/v1/release", `{"place": "`+first.Place+`"}`).want(200).says(`{"released":true}`)
	}
	if a := here.ask("/v1/check", alice+`}`); !a.Allowed || a.remaining("all") != 2 || a.remaining("user") != 1 {
		t.Errorf("when one has ended: %+v", a)
	}
	here.do("POST", "/v1/release", `{"place": "`+second.Place+`"}`).want(200)
	if a := here.ask("/v1/check", `{"rule": "all"}`); a.remaining("all") != 3 {
		t.Errorf("when both have: %+v", a)
	}
	for _, wrong := range []string{`"x"`, `""`, `true`, `"` + first.Place[:len(first.Place)-4] + `"`, `"` + first.Place + first.Place + `"`} {
		if a := here.do("POST", "/v1/release", `{"place": `+wrong+`}`); a.status != 400 {
			t.Errorf("%s: %d", wrong, a.status)
		}
	}
	here.do("POST", "/v1/hold", `{}`).want(400).says("as the answer to the check has it")
	here.do("POST", "/v1/peek", `{"rule": "all", "place": true}`).want(400)
	redis.Kill()
	here.do("POST", "/v1/hold", `{"place": "`+second.Place+`"}`).want(503)
}

// A caller that does not wait for its turn in a queue says so by the place that it was given, and a later check
// gets the turn, once.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rules = `
version: 1
rules:
  - {name: queue, limit: 1/hour burst 9, algorithm: leaky_bucket}
  - {name: flight, match: [/flight], in_flight: 1}
`
		s := start(t, testRules, func(c *checkapi.Config) { c.Engine = policy.NewEngine(memory.New(), compile(t, rules)) })
		ask := func(about string, hours int) string {
			t.Helper()
			a := s.ask("/v1/check", about)
			if !a.Allowed || a.Delay != float64(hours*3600) || (a.Place == "") != (hours == 0) {
				t.Errorf("%s: %+v, want a turn in %d hours", about, a, hours)
			}
			return a.Place
		}
		const queue, flight = `{"rule": "queue"}`, `{"request": {"path": "/flight"}, "place": true}`
		ask(queue, 0)
		left, both := ask(queue, 1), ask(flight, 2)
		ask(queue, 3)
		s.do("POST", "/v1/refund", queue).want(200)
		ask(queue, 4)
		s.do("POST", "/v1/hold", `{"place": "`+left+`"}`).want(200).says(`{"held":true}`)
		s.do("POST", "/v1/hold", `{"place": "`+both+`"}`).want(200).says(`{"held":true}`)
		for range 2 {
			s.do("POST", "/v1/release", `{"place": "`+left+`"}`).want(200).says(`{"released":true}`)
		}
		ask(queue, 1)
		s.do("POST", "/v1/release", `{"place": "`+left+`"}`).want(200)
		ask(queue, 5)
		s.do("POST", "/v1/release", `{"place": "`+both+`"}`).want(200)
		ask(flight, 2) // and it is in flight
		s.do("POST", "/v1/release", `{"place": "`+left+`-"}`).want(400)
	})
}

// What nobody holds is free after a while, and what is held is not.
func TestPlacesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := policy.NewEngine(memory.New(), compile(t, flightRules))
		d := e.Decide(t.Context(), &policy.Request{Ends: true})
		place := e.Place(d)
		left := func() int64 { return e.Decide(t.Context(), &policy.Request{}).Results[0].Remaining }
		for range 10 {
			time.Sleep(sluice.PlaceLasts * 2 / 3)
			if held, err := e.HoldPlace(t.Context(), place); err != nil || !held || left() != 2 {
				t.Fatalf("held %v, %v, %d left", held, err, left())
			}
		}
		time.Sleep(sluice.PlaceLasts)
		if left() != 3 {
			t.Errorf("%d are left when nobody holds it", left())
		}
		for range 3 {
			e.Decide(t.Context(), &policy.Request{Ends: true})
		}
		if held, err := e.HoldPlace(t.Context(), place); err != nil || held {
			t.Errorf("held %v, %v, when others have taken it", held, err)
		}
		e.Swap(compile(t, "version: 1\nrules: [{name: all, limit: 1/day}]"))
		if held, err := e.HoldPlace(t.Context(), place); err != nil || !held {
			t.Errorf("held %v, %v, of a rule that counts something else now", held, err)
		}
	})
}
