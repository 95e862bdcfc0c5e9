package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// A policy that is a shadow as a whole refuses nothing, whatever comes into force, until the time that it names.
func TestShadowWhole(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"ShadowAll", "2000-01-01T01:00:00Z", ShadowAlways} {
		synctest.Test(t, func(t *testing.T) {
			doc := Document{Shadow: how, Rules: []Rule{
				{Name: "open", Match: []string{"/open"}, Exempt: true},
				{Name: "closed", Match: []string{"/closed"}, Block: true},
				{Name: "key", Key: []string{"header:X-Key"}, Limit: "1/day", Missing: "refuse", Penalty: Penalty{First: "1h"}},
				{Name: "slow", Key: []string{"client_ip"}, Limit: "1/hour burst 1", Algorithm: "leaky_bucket"},
			}, Overrides: []Override{{Rule: "key", Key: map[string]string{"header:X-Key": "bad"}, Block: true}}}
			if how == "ShadowAll" {
				doc.Shadow = ""
			}
			p := compile(t, doc)
			e := NewEngine(memory.New(), p)
			if how == "ShadowAll" {
				e.ShadowAll()
			}
			refused := 0
			e.Observe(func(_ context.Context, o *Observation) {
				for _, r := range o.Decision.Results {
					if r.Shadow != e.Policy().WatchOnly() {
						t.Errorf("%s: %+v", how, r)
					}
					if !r.Allowed {
						refused++
					}
				}
			})
			brought := e.Adhoc("throttle", "bob", p.rules[2].own.limits[0].plan, 0)
			list := []*Request{
				get("/open"), get("/closed", "X-Key: a"), get("/", "X-Key: a"), get("/", "X-Key: a"),
				get("/", "X-Key: bad"), get("/"), {Subject: brought}, {Subject: brought},
			}
			watches := func(when string) {
				ds := make([]Decision, len(list))
				e.DecideEach(t.Context(), list, ds)
				for i, r := range list {
					would := e.Explain(t.Context(), r).Decision
					for _, d := range []Decision{e.Decide(t.Context(), r), ds[i], would} {
						if !d.Allowed || d.Delay > 0 || d.RetryAfter > 0 || d.Blocked != "" || d.Exempt != (r.Path == "/open") {
							t.Errorf("%s, %s, %s: %+v", how, when, r.Path, d)
						}
					}
				}
				if !e.Policy().WatchOnly() {
					t.Errorf("%s, %s: it does not only watch", how, when)
				}
			}
			watches("at first")
			if refused < 10 {
				t.Errorf("premise: %d results would refuse", refused)
			}
			ok(t, e.SwapOverrides([]Override{{Rule: "key", Key: map[string]string{"header:X-Key": "a"}, Block: true}}))
			watches("after other overrides")
			e.Swap(p)
			watches("after a swap")
			s := subjectOf(t, e, "key", map[string]string{"header:X-Key": "a"})
			if err := s.Block(time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "the whole policy only watches") {
				t.Errorf("to block: %v", err)
			}
			many := make([]*Request, maxTogether+1)
			for i := range many {
				many[i] = request("GET", "/", fmt.Sprintf("10.0.%d.%d", i/256, i%256), "X-Key: many")
			}
			if ds := make([]Decision, len(many)); !e.DecideTogether(t.Context(), many, ds) {
				t.Errorf("%s: more parts than are taken together: %+v", how, ds[0])
			}
			if how == "ShadowAll" {
				if p.WatchOnly() || e.Policy().Shadowed() != e.Policy() || p.rules[2].shadow {
					t.Error("the policy itself has become a shadow")
				}
				e.Swap(parse(t, `rules: [{name: key, key: [client_ip], limit: 1/day}]`))
				list = []*Request{{Subject: s}}
				watches("of a subject whose rule has changed")
				return
			}
			if at, says := e.Policy().ShadowUntil(); !says || how != ShadowAlways && !at.Equal(time.Now().Add(time.Hour)) {
				t.Errorf("%s: until %v", how, at)
			}
			time.Sleep(time.Hour)
			if d := e.Decide(t.Context(), get("/closed", "X-Key: a")); d.Allowed != (how == ShadowAlways) || e.Policy().WatchOnly() != d.Allowed {
				t.Errorf("%s: after an hour %+v", how, d)
			}
		})
	}
}
