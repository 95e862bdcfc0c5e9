package telemetry_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// A change of the policy that takes a few seconds to be everywhere is no difference; one that stays is.
func TestFleetPolicyDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		rule := policy.Rule{Name: "a", Limit: "1/day"}
		a, b := join(t, "a", board, rule), join(t, "b", board, rule)
		differs := func(d time.Duration) (any bool) {
			for until := time.Now().Add(d); time.Now().Before(until); {
				time.Sleep(time.Second)
				synctest.Wait()
				for _, m := range []*member{a, b} {
					for _, i := range m.fleet.View().Instances {
						any = any || i.Differs
					}
				}
			}
			return any
		}
		if differs(time.Minute) {
			t.Error("the same policy differs")
		}
		rule.Limit = "2/day"
		a.engine.Swap(compile(t, rule))
		if differs(10 * time.Second) {
			t.Error("a change that is on its way is said to be another policy")
		}
		b.engine.Swap(compile(t, rule))
		if differs(time.Minute) {
			t.Error("a change that has come is said to be another policy")
		}
		rule.Limit = "3/day"
		a.engine.Swap(compile(t, rule))
		if differs(20 * time.Second); !differs(20 * time.Second) {
			t.Error("another policy is not said to be one")
		}
	})
}

// What an instance knows of subjects and customers is known to all: the tier, the limit, the spelling, and what a
// block refused.
func TestFleetSubjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		p, err := policy.Compile(policy.Document{
			Tiers:    policy.Tiers{Subject: "api_key", Default: "free"},
			Subjects: []policy.TierSubject{{Subject: "k-1", Tier: "pro"}},
			Rules: []policy.Rule{
				{Name: "per-address", Key: []string{"client_ip"}, Limit: "100/day"},
				{Name: "login", Match: []string{"POST /login"}, Key: []string{"body:username"}, Limit: "5/minute"},
				{Name: "api", Match: []string{"/api"}, Key: []string{"api_key"}, Missing: "skip", Limit: "1000/day", Tiers: map[string]policy.Limits{"pro": {"2000/day"}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := func(name string) *member {
			return joinBy(t, board, policy.NewEngine(memory.New(), p), telemetry.Config{Instance: name, Subjects: true}, nil)
		}
		a, b := begin("a"), begin("b")
		ask := func(m *member, n int, address, key, name string) {
			for range n {
				q := policy.Request{Path: "/api", Peer: netip.MustParseAddr(address), Header: http.Header{}}
				if key != "" {
					q.Header["X-Api-Key"] = []string{key}
				}
				if name != "" {
					q.Method, q.Path = "POST", "/login"
					q.Header["Content-Type"] = []string{"application/json"}
					q.Body = func(int64) ([]byte, error) { return fmt.Appendf(nil, `{"username":%q}`, name), nil }
				}
				m.engine.Decide(t.Context(), &q)
			}
		}
		ask(a, 150, "192.0.2.1", "k-1", "")
		ask(b, 130, "192.0.2.1", "k-1", "")
		ask(a, 20, "192.0.2.2", "", "Mary")
		ask(b, 20, "192.0.2.3", "", "Mary")
		attacker, err := a.engine.Subject("per-address", map[string]string{"client_ip": "192.0.2.9"})
		if err != nil {
			t.Fatal(err)
		}
		ask(a, 160, "192.0.2.9", "", "")
		if err := attacker.Block(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		ask(a, 500, "192.0.2.9", "", "")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		defer a.stop()
		defer b.stop()
		for _, m := range []*member{a, b} {
			v := m.fleet.View()
			if len(v.Instances) != 2 {
				t.Fatalf("there are %d instances", len(v.Instances))
			}
			const hour = telemetry.Hour
			address := &v.Rule("per-address").Refusals[hour]
			if s := address.Items[0]; s.Shown != "192.0.2.9" || s.Count != 560 || s.Blocked != 500 {
				t.Errorf("the attacker is %+v", s)
			} else if found, known := m.fleet.Find(s.ID); !known || found != s.Key {
				t.Errorf("found %q, not %q", found, s.Key)
			}
			if top, n := v.Rule("per-address").Unblocked(hour); n != 2 || top.Total != 140 || top.Items[0].Shown != "192.0.2.1" || top.Items[1].Count != 60 {
				t.Errorf("without the block %d were refused, %+v", n, top)
			}
			if s := v.Rule("login").Refusals[hour].Items[0]; s.Key != "login/maru" || s.Sent != "login/Mary" || s.Shown != "Mary" || s.Count != 30 || s.Limit.Count != 5 || s.Limit.Period != time.Minute {
				t.Errorf("Mary is %+v", s)
			}
			var told []string
			for _, tier := range v.Tiers {
				for _, s := range tier.Refusals[hour].Items {
					told = append(told, fmt.Sprintf("%s %s %d", tier.Name, s.Key, s.Count))
				}
				if tier.Name == "pro" && (tier.Traffic[hour].Items[0].Count != 280 || tier.Refused[hour] != 1 || tier.Refusals[hour].Items[0].Limit.Count != 100) {
					t.Errorf("pro is %+v", tier.Traffic[hour])
				}
			}
			if got, want := strings.Join(told, ", "), " per-address/192.0.2.9 60,  login/maru 30, pro api/k-1 80"; got != want {
				t.Errorf("customers are %q, want %q", got, want)
			}
		}
	})
}
