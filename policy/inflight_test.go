package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// ends is a request of which the door knows when it ends.
func ends(r *Request) *Request {
	r.Ends = true
	return r
}

// begin decides about a request that has to pass, or not.
func begin(t testing.TB, e *Engine, r *Request, want bool) Decision {
	t.Helper()
	d := e.Decide(t.Context(), r)
	if d.Allowed != want || d.Held() && !want {
		t.Fatalf("%s: allowed %v, held %v: %s", r.Path, d.Allowed, d.Held(), said(d))
	}
	return d
}

// free expects so many places of a rule for everybody to be free.
func free(t testing.TB, e *Engine, rule string, want int64) {
	t.Helper()
	s, err := e.Subject(rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	if results, err := s.Peek(t.Context()); err != nil || results[0].Remaining != want {
		t.Fatalf("%s: %+v, %v, want %d free", rule, results, err, want)
	}
}

const flying = `
rules:
  - {name: day, limit: 100/day}
  - {name: search, match: /search, in_flight: 2}
  - {name: few, match: /search/few, limit: 3/day}`

func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, flying)
		first := begin(t, e, ends(get("/search")), true)
		second := begin(t, e, ends(get("/search")), true)
		if got, want := said(second), "day:98 search:0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		d := begin(t, e, ends(get("/search")), false)
		if got, want := said(d), "day:98 search:refused"; got != want || d.RetryAfter != time.Second {
			t.Errorf("%s, retry after %v, want %s: what is refused uses up nothing", got, d.RetryAfter, want)
		}
		time.Sleep(time.Hour) // they are held
		begin(t, e, ends(get("/search")), false)
		e.Release(t.Context(), first)
		e.Release(t.Context(), first.Clone())
		third := begin(t, e, ends(get("/search")), true)
		begin(t, e, ends(get("/search")), false)
		e.Release(t.Context(), second)
		e.Release(t.Context(), third)
		free(t, e, "search", 2)
		if d := begin(t, e, get("/"), true); d.Held() {
			t.Error("a request without such a rule has a place")
		}
	})
}

// A request that another rule refuses, or that is malformed, has no place.
func TestInFlightRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: all, in_flight: 2}
  - {name: one, match: /one, limit: 1/day}
  - {name: locked, match: /locked, limit: 1/day, penalty: 1h}
  - {name: keyed, match: /keyed, key: [api_key], missing: refuse, limit: 10/day}
  - {name: slow, match: /slow, limit: 1/second burst 10, algorithm: leaky_bucket}`)
		for _, path := range []string{"/one", "/locked"} {
			e.Release(t.Context(), begin(t, e, ends(get(path)), true))
			begin(t, e, ends(get(path)), false)
			begin(t, e, ends(get(path)), false)
			free(t, e, "all", 2)
		}
		if d := begin(t, e, ends(get("/keyed")), false); d.Missing == "" {
			t.Errorf("%+v", d)
		}
		free(t, e, "all", 2)

		begin(t, e, ends(get("/slow")), true)
		waits := begin(t, e, ends(get("/slow")), true)
		free(t, e, "all", 0)
		if waits.Delay == 0 {
			t.Fatalf("%+v", waits)
		}
		e.Refund(t.Context(), waits)
		free(t, e, "all", 1)
	})
}

// A request whose end nobody tells takes no place, and passes if one is free.
func TestInFlightLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, flying)
		for range 5 {
			if d := begin(t, e, get("/search"), true); d.Held() {
				t.Fatal("it has a place")
			}
		}
		first := begin(t, e, ends(get("/search")), true)
		begin(t, e, ends(get("/search")), true)
		d := begin(t, e, get("/search"), false)
		if got, want := said(d), "day:93 search:refused"; got != want || d.RetryAfter != time.Second {
			t.Errorf("%s, retry after %v, want %s", got, d.RetryAfter, want)
		}
		begin(t, e, get("/search/few"), true) // another path
		e.Release(t.Context(), first)
		begin(t, e, get("/search"), true)

		p := engine(t, `
rules:
  - {name: all, in_flight: 1}
  - {name: guess, limit: 1/day, penalty: 1h}`)
		begin(t, p, ends(get("/")), true)
		d = begin(t, p, get("/"), false)
		if !d.Results[1].Locked { // what exceeds it is noted, whether a place is free or not
			t.Errorf("%+v", d.Results)
		}
	})
}

// Who only asks takes no place, and what is given back frees none.
func TestInFlightModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: all, in_flight: 2}]")
		peek, back := ends(get("/")), ends(get("/"))
		peek.Mode, back.Mode, back.Cost, peek.Cost = Peek, GiveBack, 2, 100
		if d := begin(t, e, peek, true); d.Held() || d.Results[0].Remaining != 2 {
			t.Errorf("a peek: %s", said(d))
		}
		x := e.Explain(t.Context(), ends(get("/")))
		if before, after := x.Decision.Results[0].Remaining, x.After().Results[0].Remaining; before != 2 || after != 1 {
			t.Errorf("explained: %d before, %d after", before, after)
		}
		if d := e.Quota(t.Context(), get("/")); len(d.Results) != 1 || d.Results[0].Remaining != 2 {
			t.Errorf("quota: %s", said(d))
		}
		many := ends(get("/"))
		many.Cost = 5 // which takes one place all the same
		begin(t, e, many, true)
		second := begin(t, e, ends(get("/")), true)
		if d := begin(t, e, back, true); d.Held() || d.Results[0].Cost != 0 {
			t.Errorf("given back: %+v", d)
		}
		begin(t, e, peek, false)
		if x := e.Explain(t.Context(), get("/")); x.Decision.Allowed {
			t.Error("explained as allowed")
		}
		s, err := e.Subject("all", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Refund(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "in flight") {
			t.Errorf("Refund: %v", err)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		free(t, e, "all", 2)
		time.Sleep(sluice.PlaceLasts / 2) // what is held is taken again
		free(t, e, "all", 0)
		e.Release(t.Context(), second)
		free(t, e, "all", 1)
	})
}

// What is asked again has one place.
func TestInFlightRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: all, in_flight: 2}]")
		r := ends(get("/"))
		r.ID = "one"
		first := begin(t, e, r, true)
		again := begin(t, e, r, true)
		if !again.Repeated || again.Held() {
			t.Errorf("again: %+v", again)
		}
		free(t, e, "all", 1)
		e.Release(t.Context(), again)
		free(t, e, "all", 1)
		begin(t, e, ends(get("/")), true)
		if d := begin(t, e, r, true); !d.Repeated {
			t.Errorf("again, without a place to take: %+v", d)
		}
		look := get("/")
		look.ID = "two"
		begin(t, e, look, false)
		e.Release(t.Context(), first)
		begin(t, e, look, true)
		if d := begin(t, e, look, true); !d.Repeated {
			t.Errorf("a look again: %+v", d)
		}
		forget := get("/")
		forget.ID, forget.Mode = "two", GiveBack
		begin(t, e, forget, true)
		if d := begin(t, e, look, true); d.Repeated {
			t.Errorf("a look that was given back: %+v", d)
		}
	})
}

// In a list, too, a request that only looks finds the places taken that those before it have taken.
func TestInFlightEachLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: all, in_flight: 1}, {name: day, limit: 10/day}]")
		reqs := []*Request{get("/"), ends(get("/")), get("/"), get("/")}
		ds := make([]Decision, len(reqs))
		for range 2 {
			e.DecideEach(t.Context(), reqs, ds)
			got := fmt.Sprint(ds[0].Allowed, ds[1].Allowed, ds[2].Allowed, ds[3].Allowed)
			if want := "true true false false"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			e.Release(t.Context(), ds[1])
		}
		free(t, e, "day", 6)
	})
}

func TestInFlightEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, flying)
		reqs := []*Request{ends(get("/search")), ends(get("/")), ends(get("/search")), ends(get("/search")), get("/search")}
		ds := make([]Decision, len(reqs))
		e.DecideEach(t.Context(), reqs, ds)
		for i, want := range []struct{ allowed, held bool }{{true, true}, {true, false}, {true, true}, {false, false}} {
			if ds[i].Allowed != want.allowed || ds[i].Held() != want.held {
				t.Errorf("%d: allowed %v, held %v: %s", i, ds[i].Allowed, ds[i].Held(), said(ds[i]))
			}
		}
		for _, d := range ds {
			e.Release(t.Context(), d)
		}
		free(t, e, "search", 2)
	})
}

// The parts of a request have one place, whoever releases it.
func TestInFlightTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: all, in_flight: 2}
  - {name: search, match: /search, in_flight: 1}
  - {name: few, match: /few, limit: 1/day}`)
		ask := func(want bool, paths ...string) []Decision {
			t.Helper()
			var reqs []*Request
			for _, p := range paths {
				reqs = append(reqs, ends(get(p)))
			}
			ds := make([]Decision, len(reqs))
			if got := e.DecideTogether(t.Context(), reqs, ds); got != want {
				t.Fatalf("%v: %v: %s", paths, got, said(ds[0]))
			}
			return ds
		}
		release := func(ds []Decision) {
			for _, d := range ds {
				e.Release(t.Context(), d)
			}
		}
		ds := ask(true, "/", "/search", "/few")
		free(t, e, "all", 1)
		free(t, e, "search", 0)
		for _, d := range ask(false, "/", "/search") {
			if d.Held() {
				t.Error("what is refused has a place")
			}
		}
		ask(false, "/", "/few")
		free(t, e, "all", 1)
		release(ds)
		free(t, e, "all", 2)
		free(t, e, "search", 1)
		release(ask(true, "/", "/", "/search"))
		free(t, e, "all", 2)

		begin(t, e, ends(get("/search")), true)
		d := make([]Decision, 2)
		if e.DecideTogether(t.Context(), []*Request{get("/"), get("/search")}, d) || d[1].Allowed {
			t.Errorf("parts that only look pass: %s; %s", said(d[0]), said(d[1]))
		}
		free(t, e, "all", 1)
	})
}

// Parts that look for a place first charge what they would without that: the time of a tenant, a
// penalty and the ID once.
func TestInFlightTogetherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rest = `
  - {name: shared, share: {of: 10/second, by: ["header:Tenant"]}}
  - {name: strict, limit: 10/day, penalty: {first: 1m}}`
		plain := engine(t, "\nrules:"+rest)
		looks := engine(t, "\nrules:\n  - {name: all, in_flight: 1}"+rest)
		for n := range 20 {
			ask := func(e *Engine) string {
				one, other := get("/", "Tenant: a"), get("/", "Tenant: b")
				one.ID = fmt.Sprint(n / 2)
				ds := make([]Decision, 2)
				allowed := e.DecideTogether(t.Context(), []*Request{one, other}, ds)
				text := fmt.Sprint(allowed)
				for _, d := range ds {
					text += fmt.Sprint(" ", d.Repeated)
					for _, r := range d.Results {
						if r.Rule != "all" {
							text += fmt.Sprint(" ", r.Rule, r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter)
						}
					}
				}
				return text
			}
			if got, want := ask(looks), ask(plain); got != want {
				t.Errorf("question %d: %s\nwant %s", n, got, want)
			}
		}
	})
}

// A shadow counts and refuses nothing, and a policy that only watches holds places as well.
func TestInFlightShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: all, in_flight: 1, shadow: true}]")
		first := begin(t, e, ends(get("/")), true)
		second := begin(t, e, ends(get("/")), true)
		if !first.Held() || second.Held() || second.Results[0].Allowed {
			t.Errorf("%v, %v, %s", first.Held(), second.Held(), said(second))
		}
		if d := begin(t, e, get("/"), true); d.Held() {
			t.Error("who looks has a place")
		}
		e.Release(t.Context(), first)
		free(t, e, "all", 1)
	})
}

// What is decided by on_error has no place.
func TestInFlightWithoutStore(t *testing.T) {
	e := NewEngine(brokenStore{errors.New("away")}, parse(t, "rules: [{name: all, in_flight: 1}]"))
	for range 3 {
		if d := begin(t, e, ends(get("/")), true); d.Held() {
			t.Error("it has a place")
		}
	}
	if n := e.holder.Held(); n != 0 {
		t.Errorf("%d places are held", n)
	}
	closed := NewEngine(brokenStore{errors.New("away")}, parse(t, "rules: [{name: all, in_flight: 1, on_error: deny}]"))
	for _, r := range []*Request{get("/"), ends(get("/"))} {
		if d := begin(t, closed, r, false); !d.Unavailable {
			t.Errorf("%+v", d)
		}
	}
}

// deaf is a store whose answers nobody hears whose context has ended.
type deaf struct{ sluice.Store }

func (d deaf) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := d.Store.Take(ctx, charges, receipts); err != nil {
		return err
	}
	return ctx.Err()
}

// Whoever leaves while the store is asked leaves no place behind.
func TestInFlightLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(deaf{memory.New()}, parse(t, "rules: [{name: all, in_flight: 2}]"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 5 {
			if d := e.Decide(ctx, ends(get("/"))); d.Held() || !d.Degraded {
				t.Fatalf("%+v", d)
			}
		}
		time.Sleep(time.Second)
		free(t, e, "all", 2)
	})
}

// A tier and an override have another number of places. Who is under way keeps their places when the
// number changes, by whatever.
func TestInFlightOfTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const written = `
tiers: {from: header:X-Plan}
rules:
  - {name: all, key: [header:X-User], in_flight: 2, tiers: {pro: 4, small: 1}}`
		e := engine(t, written)
		user := func(tier string) *Request { return ends(get("/", "X-User: ann", "X-Plan: "+tier)) }
		took := func(tier, want string) Decision {
			t.Helper()
			d := begin(t, e, user(tier), true)
			if got := said(d); got != want {
				t.Errorf("%s: %s, want %s", tier, got, want)
			}
			if r := d.Results[0]; r.From == "rule" != (tier == "") {
				t.Errorf("%s: from %s", tier, r.From)
			}
			return d
		}
		first := took("", "all:1")
		second := took("pro", "all:2")
		begin(t, e, user(""), false) // of 2, 2 are taken
		third := took("pro", "all:1")
		begin(t, e, user("small"), false)
		time.Sleep(time.Minute) // places of more than a tier has are held all the same
		begin(t, e, user(""), false)
		fourth := took("pro", "all:0")
		begin(t, e, user("pro"), false)
		e.Release(t.Context(), first)
		e.Release(t.Context(), second)
		begin(t, e, user(""), false)

		// An override comes, takes the place of the tier, and ends.
		use := func(text string) {
			p := parse(t, text)
			if all := p.Restarts(e.Policy()); len(all) != 0 {
				t.Errorf("begins anew: %+v", all)
			}
			e.Swap(p)
		}
		use(written + `
overrides: [{rule: all, key: {"header:X-User": ann}, in_flight: 3}]`)
		d := begin(t, e, user("pro"), true)
		if r := d.Results[0]; r.From != "override" || r.Remaining != 0 || r.Plan.Capacity != 3 {
			t.Errorf("an override: %+v", r)
		}
		begin(t, e, user("pro"), false)
		use(written)
		e.Release(t.Context(), d)
		e.Release(t.Context(), third)
		begin(t, e, user("small"), false)
		e.Release(t.Context(), fourth)
		took("small", "all:0")
	})
}

// A rule that is changed between a limit and in_flight counts anew, and says so.
func TestInFlightRestarts(t *testing.T) {
	was, is := parse(t, "rules: [{name: a, limit: 10/second}]"), parse(t, "rules: [{name: a, in_flight: 10}]")
	if all := is.Restarts(was); len(all) != 1 || all[0] != (Restart{"a", "rule", "10/second burst 10 (token_bucket)", "10 in flight"}) {
		t.Errorf("%+v", all)
	}
	if all := parse(t, "rules: [{name: a, in_flight: 5}]").Restarts(is); len(all) != 0 {
		t.Errorf("another number: %+v", all)
	}
	if names := is.InFlight(); len(names) != 1 || names[0] != "a" || was.InFlight() != nil {
		t.Errorf("rules in flight: %v", names)
	}
}

// Random histories agree with a count of who is under way.
func TestInFlightHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: all, in_flight: 6}
  - {name: user, key: [header:X-User], in_flight: 3}
  - {name: post, match: POST /, key: [header:X-User], in_flight: 2}
  - {name: watched, match: POST /, in_flight: 1, shadow: true}`)
		most := map[string]int{"all": 6, "user": 3, "post": 2}
		type flight struct {
			d    Decision
			keys []string
		}
		var flights []flight
		taken := map[string]int{}
		random := rand.New(rand.NewPCG(seed.Of(t), 0))
		refused := 0
		for range 5000 {
			if len(flights) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(flights))
				f := flights[i]
				for range 1 + random.IntN(2) {
					e.Release(t.Context(), f.d)
				}
				for _, k := range f.keys {
					taken[k]--
				}
				flights = append(flights[:i], flights[i+1:]...)
				continue
			}
			user, method := string('a'+rune(random.IntN(3))), []string{"GET", "POST"}[random.IntN(2)]
			keys := []string{"all", "user " + user}
			if method == "POST" {
				keys = append(keys, "post "+user)
			}
			fits := true
			for _, k := range keys {
				rule, _, _ := strings.Cut(k, " ")
				fits = fits && taken[k] < most[rule]
			}
			r := request(method, "/", "192.0.2.1", "X-User: "+user)
			r.Ends = random.IntN(3) > 0
			d := e.Decide(t.Context(), r)
			if d.Allowed != fits {
				t.Fatalf("%s by %s: %s, taken %v", method, user, said(d), taken)
			}
			if !fits {
				refused++
			}
			if fits && r.Ends {
				for _, k := range keys {
					taken[k]++
				}
				flights = append(flights, flight{d, keys})
			}
			if fits {
				for i, k := range keys {
					rule, _, _ := strings.Cut(k, " ")
					if left := int64(most[rule] - taken[k]); d.Results[i].Remaining != left {
						t.Fatalf("%s by %s: %s, want %d of %s", method, user, said(d), left, k)
					}
				}
			}
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
		}
		if refused < 100 {
			t.Errorf("only %d were refused", refused)
		}
		for _, f := range flights {
			e.Release(t.Context(), f.d)
		}
		free(t, e, "all", 6)
	})
}

// A place that was handed over is held by whoever has its name, and of several of which one was lost
// the others are.
func TestInFlightHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: all, in_flight: 2}
  - {name: one, match: /one, in_flight: 1}`)
		place := e.Place(begin(t, e, ends(get("/one")), true))
		if n := e.holder.Held(); n != 0 || place == "" {
			t.Fatalf("%q, and %d places are held here", place, n)
		}
		if e.Place(begin(t, e, get("/"), true)) != "" {
			t.Error("a request without a place has a name for it")
		}
		time.Sleep(sluice.PlaceLasts + time.Second)
		begin(t, e, ends(get("/one")), true) // takes the only one
		if held, err := e.HoldPlace(t.Context(), place); err != nil || held {
			t.Errorf("held %v, %v", held, err)
		}
		free(t, e, "all", 0) // this one is held again
		if err := e.ReleasePlace(t.Context(), place); err != nil {
			t.Error(err)
		}
		free(t, e, "all", 1)
		free(t, e, "one", 0) // which is that of the other

		for _, wrong := range []string{"", "*", "AAAA", place + place, place[:len(place)-2]} {
			if err := e.ReleasePlace(t.Context(), wrong); !errors.Is(err, ErrNoPlace) {
				t.Errorf("%q: %v", wrong, err)
			}
		}
		away := NewEngine(brokenStore{errors.New("away")}, e.Policy())
		if _, err := away.HoldPlace(t.Context(), place); err == nil {
			t.Error("held although the store is away")
		}
	})
}
