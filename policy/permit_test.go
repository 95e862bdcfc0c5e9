package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// If the parts of a request look for a permit first, they still charge the same: a tenant's time, a penalty and the ID
// once.
func TestInFlightTogetherLooks(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
				t.Errorf("request %d: %s\nwant %s", n, got, want)
			}
		}
	})
}

// A client that leaves during the call of the store leaves no permit behind.
func TestInFlightLeaves(t *testing.T) {
	virtual(t, func(t *testing.T) {
		e := NewEngine(&testStore{Store: memory.New(), deaf: true}, parse(t, "rules: [{name: all, in_flight: 2}]"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 5 {
			if d := e.Decide(ctx, ends(get("/"))); d.Held() || !d.Degraded {
				t.Fatalf("%+v", d)
			}
		}
		time.Sleep(time.Second)
		if n := remains(t, e, "all"); n != 2 {
			t.Errorf("%d permits are free, want 2", n)
		}
	})
}

// A text that Place has not returned releases nothing.
func TestPlacesThatAreNone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: all, in_flight: 2}, {name: one, match: /one, in_flight: 1}]")
		place := e.Place(pass(t, e, ends(get("/one"))))
		if n := e.holder.Held(); n != 0 {
			t.Errorf("this engine still holds %d permits", n)
		}
		for _, wrong := range []string{"", "*", "AAAA", place + place, place[:len(place)-2]} {
			if err := e.ReleasePlace(t.Context(), wrong); !errors.Is(err, ErrNoPlace) {
				t.Errorf("%q: %v", wrong, err)
			}
		}
		if _, err := NewEngine(broken(errors.New("unavailable")), e.Policy()).HoldPlace(t.Context(), place); err == nil {
			t.Error("HoldPlace has succeeded although the store is unavailable")
		}
	})
}

// Random histories agree with a count of the requests under way.
func TestInFlightHistories(t *testing.T) {
	virtual(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: all, in_flight: 6}
  - {name: user, key: [header:X-User], in_flight: 3}
  - {name: post, match: POST /, key: [header:X-User], in_flight: 2}
  - {name: watched, match: POST /, in_flight: 1, shadow: true}`)
		type flight struct {
			d    Decision
			keys []string
		}
		var flights []flight
		left := map[string]int64{}
		for user := range 3 {
			left["all"], left[fmt.Sprint("user ", user)], left[fmt.Sprint("post ", user)] = 6, 3, 2
		}
		r, refused := dice{rand.New(rand.NewPCG(seed.Of(t), 0))}, 0
		for range 5000 {
			if len(flights) > 0 && r.one(2) {
				i := r.IntN(len(flights))
				for range 1 + r.IntN(2) {
					e.Release(t.Context(), flights[i].d)
				}
				for _, k := range flights[i].keys {
					left[k]++
				}
				flights = slices.Delete(flights, i, i+1)
				continue
			}
			user, method := fmt.Sprint(r.IntN(3)), pick(r, "GET", "POST")
			keys := []string{"all", "user " + user}
			if method == "POST" {
				keys = append(keys, "post "+user)
			}
			fits := !slices.ContainsFunc(keys, func(k string) bool { return left[k] == 0 })
			req := request(method, "/", "192.0.2.1", "X-User: "+user)
			req.Ends = r.IntN(3) > 0
			d := e.Decide(t.Context(), req)
			if d.Allowed != fits {
				t.Fatalf("%s by %s: %s, left %v", method, user, summary(d), left)
			}
			if !fits {
				refused++
			} else if req.Ends {
				flights = append(flights, flight{d, keys})
			}
			for i, k := range keys {
				if fits && req.Ends {
					left[k]--
				}
				if fits && d.Results[i].Remaining != left[k] {
					t.Fatalf("%s by %s: %s, want %d of %s", method, user, summary(d), left[k], k)
				}
			}
			time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
		}
		for _, f := range flights {
			e.Release(t.Context(), f.d)
		}
		if n := remains(t, e, "all"); n != 6 || refused < 100 {
			t.Errorf("%d permits are free in the end, and %d requests were denied", n, refused)
		}
	})
}

// The explanation of a part of a request shows that in_flight counts the whole request.
func TestExplainPart(t *testing.T) {
	t.Parallel()
	e := engine(t, "rules: [{name: uploads, in_flight: 1}, {name: all, limit: 5/day}]")
	r := get("/")
	r.Part = true
	x := e.Explain(t.Context(), r)
	if x.Rules[0].Applies || x.Rules[0].Why != "counts the request that this is a part of" || len(x.Decision.Results) != 1 {
		t.Errorf("%+v", x)
	}
}
