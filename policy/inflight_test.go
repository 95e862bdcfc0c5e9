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

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

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

// Whoever leaves while the store is asked leaves no place behind.
func TestInFlightLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			t.Errorf("%d places are free, want 2", n)
		}
	})
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
		if n := remains(t, e, "all"); n != 6 {
			t.Errorf("%d places are free, want 6", n)
		}
	})
}

// Names that are no place release nothing.
func TestPlacesThatAreNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: all, in_flight: 2}, {name: one, match: /one, in_flight: 1}]")
		place := e.Place(pass(t, e, ends(get("/one"))))
		if n := e.holder.Held(); n != 0 {
			t.Errorf("%d places are held here", n)
		}
		for _, wrong := range []string{"", "*", "AAAA", place + place, place[:len(place)-2]} {
			if err := e.ReleasePlace(t.Context(), wrong); !errors.Is(err, ErrNoPlace) {
				t.Errorf("%q: %v", wrong, err)
			}
		}
		if _, err := NewEngine(broken(errors.New("away")), e.Policy()).HoldPlace(t.Context(), place); err == nil {
			t.Error("held although the store is away")
		}
	})
}
