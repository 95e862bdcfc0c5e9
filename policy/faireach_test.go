package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/policy"
)

// Lists of requests share as single ones do, whatever their order: of a flood in the same list, those who
// ask for less than their part have all that they ask for, and in all there is not more than the limit.
func TestShareOfLists(t *testing.T) {
	for _, every := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
		for _, order := range []string{"any", "flood first", "flood last"} {
			t.Run(fmt.Sprint(every, " ", order), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed.Of(t), 0))
				synctest.Test(t, func(t *testing.T) { testShareOfLists(t, r, every, order) })
			})
		}
	}
}

func testShareOfLists(t *testing.T, r *rand.Rand, every time.Duration, order string) {
	const rate, settled, seconds = 400, 2, 8
	e := newFleet(t, 1, "400/second")[0]
	crowd := []*caller{
		{name: "flood", rate: 4000}, {name: "a", rate: 30}, {name: "b", rate: 75}, {name: "c", tier: "pro", rate: 190},
	}
	for _, c := range crowd {
		c.asked, c.passed = make([]float64, seconds), make([]float64, seconds)
	}
	start, sum := time.Now(), 0.0
	for at := time.Duration(0); at < seconds*time.Second; at += every {
		time.Sleep(time.Until(start.Add(at)))
		var who []*caller
		for _, c := range crowd {
			for ; c.next <= at; c.next += c.every() {
				who = append(who, c)
			}
		}
		r.Shuffle(len(who), func(i, j int) { who[i], who[j] = who[j], who[i] })
		slices.SortStableFunc(who, func(a, b *caller) int {
			switch {
			case order == "any" || (a.name == "flood") == (b.name == "flood"):
				return 0
			case (a.name == "flood") == (order == "flood first"):
				return -1
			}
			return 1
		})
		var reqs []*policy.Request
		for _, c := range who {
			reqs = append(reqs, &policy.Request{Header: http.Header{"X-Tenant": {c.name}, "X-Plan": {c.tier}}})
		}
		decisions := make([]policy.Decision, len(reqs))
		e.DecideEach(t.Context(), reqs, decisions)
		for i, c := range who {
			c.asked[at/time.Second]++
			if decisions[i].Allowed {
				c.passed[at/time.Second]++
				sum++
			}
		}
		if most := rate * (1 + (at + every).Seconds()); sum > most {
			t.Fatalf("%v passed in %v", sum, at)
		}
	}
	used := 0.0
	for _, c := range crowd {
		got := c.got(settled, seconds)
		used += got
		if c.name != "flood" && got < 0.95*mean(c.asked[settled:])-1 {
			t.Errorf("%s got %v a second of %v: %v", c.name, got, mean(c.asked[settled:]), c.passed)
		}
	}
	if used < 0.97*rate {
		t.Errorf("%v a second passed: flood %v", used, crowd[0].passed)
	}
}
