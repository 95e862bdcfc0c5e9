package e2e

import (
	"net/http"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/redisstore"
)

// A refusal that an instance remembers is no reason to refuse whom an override or a tier lets
// pass, from the first request on; and what another instance resets is noticed.
func TestRememberedRefusals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	instance := func() *policy.Engine {
		store, err := redisstore.Open(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		p, err := policy.Compile(policy.Document{
			Tiers: policy.Tiers{Subject: "api_key"},
			Rules: []policy.Rule{{Name: "a", Key: []string{"api_key"}, Limit: "1/10d", Tiers: map[string]policy.Limits{"pro": {"1/10d burst 3"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return policy.NewEngine(store, p)
	}
	asked, other := instance(), instance()
	decide := func(key string) policy.Decision {
		return asked.Decide(t.Context(), &policy.Request{Header: http.Header{"X-Api-Key": {key}}})
	}
	of := func(key string, o policy.Override) []policy.Override {
		o.Rule, o.Key = "a", map[string]string{"api_key": key}
		return []policy.Override{o}
	}
	for what, change := range map[string]func(key string) error{
		"a larger burst":   func(key string) error { return asked.SwapOverrides(of(key, policy.Override{Limit: "1/10d burst 2"})) },
		"another limit":    func(key string) error { return asked.SwapOverrides(of(key, policy.Override{Limit: "5/hour"})) },
		"an exemption":     func(key string) error { return asked.SwapOverrides(of(key, policy.Override{Exempt: true})) },
		"a tier":           func(key string) error { return asked.SwapSubjects([]policy.TierSubject{{Subject: key, Tier: "pro"}}) },
		"a reset by us":    func(key string) error { return reset(t, asked, key) },
		"a reset by other": func(key string) error { return reset(t, other, key) },
	} {
		if !decide(what).Allowed || decide(what).Allowed {
			t.Fatalf("%s: one request has to pass, and one to be refused", what)
		}
		redistest.Eventually(t, "the refusal is remembered", func() bool { return decide(what).Results[0].Origin == sluice.ByDenyCache })
		if err := change(what); err != nil {
			t.Fatal(err)
		}
		if what == "a reset by other" { // for the second that is documented, or less
			redistest.Eventually(t, "the reset is noticed", func() bool { return decide(what).Allowed })
		} else if d := decide(what); !d.Allowed {
			t.Errorf("%s: %+v", what, d)
		}
	}
}

// reset forgets what was counted for a key.
func reset(t *testing.T, e *policy.Engine, key string) error {
	t.Helper()
	s, err := e.Subject("a", map[string]string{"api_key": key})
	if err != nil {
		return err
	}
	return s.Reset(t.Context())
}
