package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluicehq/sluice/internal/redistest"
)

// page is /metrics, as Prometheus reads it.
type page map[string]*dto.MetricFamily

func scrape(t *testing.T, g *gateway) page {
	t.Helper()
	resp, err := http.Get(g.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	p, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// values returns the samples of a metric that are not zero by the values of its labels, in the order
// of their names; of a histogram, how many it has.
func (p page) values(name string) map[string]float64 {
	all := map[string]float64{}
	for _, m := range p[name].GetMetric() {
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		var labels []string
		for _, l := range m.Label {
			labels = append(labels, l.GetValue())
		}
		v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		if v != 0 {
			all[strings.Join(labels, " ")] = v
		}
	}
	return all
}

func (p page) wants(t *testing.T, name string, want map[string]float64) {
	t.Helper()
	if got := p.values(name); !maps.Equal(got, want) {
		t.Errorf("%s is\n%v, want\n%v", name, got, want)
	}
}

const countedPolicy = `
version: 1
tiers: {from: "header:X-Plan", default: free}
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: strict, match: GET /strict, key: ["header:X-Key"], limit: 10/day, tiers: {pro: 5/day}}
  - {name: trial, match: GET /trial, key: ["header:X-Key"], limits: [2/day, 3/7d], shadow: true}
  - {name: turns, match: GET /turns, key: ["header:X-Key"], limit: 1/hour burst 4, algorithm: leaky_bucket}
  - {name: named, match: GET /named, key: ["header:X-Key"], missing: refuse, limit: 100/day}
  - {name: shut, match: GET /shut, block: true}
  - {name: closed, match: GET /closed, key: ["header:X-Key"], limit: 100/day, on_error: deny}
  - {name: all, limit: 100000/day}
`

// What is counted is what was sent, by rule and outcome and by door and outcome, with and without the
// shared store.
func TestMetricsCount(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		testMetricsCount(t, nil)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		testMetricsCount(t, redistest.Start(t))
	})
}

func testMetricsCount(t *testing.T, server *redistest.Server) {
	args := []string{"--upstream", "sample", "--check", "127.0.0.1:0", "--policy", write(t, "counted.yaml", countedPolicy)}
	if server != nil {
		args = append(args, "--store", server.URL(), "--store-timeout", "5s")
	}
	g := serve(t, args...)
	check := "http://" + g.await("it serves", func(r record) bool { return r.Check != "" }).Check + "/v1/check"
	through := func(n int, path string, header ...string) {
		t.Helper()
		for range n {
			do(t, request(t, "GET", g.url+path, "", header...))
		}
	}
	asked := func(n int, path, key string) {
		t.Helper()
		for range n {
			resp, body := do(t, request(t, "POST", check, fmt.Sprintf(`{"request": {"method": "GET", "path": %q, "headers": {"X-Key": %q}}}`, path, key), "Content-Type", "application/json"))
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
		}
	}
	p := scrape(t, g)
	for _, rule := range []string{"strict", "trial", "turns", "named", "closed", "all"} {
		for _, outcome := range []string{"allow", "deny"} {
			found := slices.ContainsFunc(p["sluice_decisions_total"].GetMetric(), func(m *dto.Metric) bool {
				return strings.Contains(m.String(), `"`+rule+`"`) && strings.Contains(m.String(), `"`+outcome+`"`)
			})
			if !found {
				t.Errorf("before the first request there is no zero for %s of %s", outcome, rule)
			}
		}
	}

	through(4, "/health")
	through(14, "/strict", "X-Key", "alice")               // 10 pass, the last one with 1 and the last with 0 left
	through(7, "/strict", "X-Key", "bob", "X-Plan", "pro") // 5 pass
	through(5, "/trial", "X-Key", "alice")                 // 2 would
	asked(6, "/turns", "alice")                            // one at once, three later, two not
	through(3, "/named")                                   // without what it asks for
	through(2, "/named", "X-Key", "alice")                 //
	through(8, "/shut")                                    //
	asked(3, "/strict", "carol")                           //

	p = scrape(t, g)
	decisions := map[string]float64{
		"allow strict": 10 + 5 + 3, "deny strict": 4 + 2,
		"allow trial": 2, "would_deny trial": 3,
		"allow turns": 1, "delayed turns": 3, "deny turns": 2,
		"allow named": 2,
		"deny shut":   8,
		// All but what is exempt, blocked or malformed, also of what others refuse.
		"allow all": 14 + 7 + 5 + 6 + 2 + 3,
	}
	requests := map[string]float64{
		"gateway allow": 4 + 10 + 5 + 2 + 2, "gateway deny": 4 + 2 + 3 + 8, "gateway would_deny": 3,
		"check allow": 1 + 3, "check delayed": 3, "check deny": 2,
	}
	p.wants(t, "sluice_decisions_total", decisions)
	p.wants(t, "sluice_requests_total", requests)
	p.wants(t, "sluice_decision_duration_seconds", map[string]float64{"gateway": 43, "check": 9})
	p.wants(t, "sluice_requests_exempt_total", map[string]float64{"gateway": 4})
	p.wants(t, "sluice_requests_malformed_total", map[string]float64{"gateway": 3})
	p.wants(t, "sluice_local_decisions_total", map[string]float64{})
	p.wants(t, "sluice_queue_delay_seconds", map[string]float64{"": 3})
	p.wants(t, "sluice_tier_decisions_total", map[string]float64{"pro": 7})
	p.wants(t, "sluice_tier_refused_total", map[string]float64{"pro": 2})
	p.wants(t, "sluice_tier_near_limit_total", map[string]float64{"pro": 1})
	testHeld(t, g)
	if server == nil {
		for name := range p {
			if strings.HasPrefix(name, "sluice_store_") {
				t.Errorf("without a shared store there is %s", name)
			}
		}
		return
	}
	by := p.values("sluice_store_decisions_total")["store"]
	if n := p.values("sluice_store_duration_seconds")["redis"]; n == 0 || n > by {
		t.Errorf("the store has decided %v times, and %v were measured", by, n)
	}
	p.wants(t, "sluice_store_failures_total", map[string]float64{})

	server.Kill()
	before := scrape(t, g)
	through(6, "/strict", "X-Key", "dave")
	through(4, "/closed", "X-Key", "dave")
	p = scrape(t, g)
	more := map[string]float64{"degraded strict": 6, "deny closed": 4, "degraded all": 10}
	want := before.values("sluice_decisions_total")
	for labels, n := range more {
		want[labels] += n
	}
	p.wants(t, "sluice_decisions_total", want)
	p.wants(t, "sluice_local_decisions_total", map[string]float64{"strict": 6, "closed": 4, "all": 10})
	want = before.values("sluice_requests_total")
	want["gateway degraded"] += 6
	want["gateway deny"] += 4
	p.wants(t, "sluice_requests_total", want)
	failures := 0.0
	for reason, n := range p.values("sluice_store_failures_total") {
		failures += n
		if reason == "other" {
			t.Error("nobody knows why the store has failed")
		}
	}
	if failures == 0 || failures > 10 {
		t.Errorf("of ten decisions the store has failed to make %v", failures)
	}
	redistest.Eventually(t, "the circuit is seen to be open", func() bool {
		return scrape(t, g).values("sluice_store_circuit_open")["0"] == 1
	})
}

// testHeld has a request wait for a turn that is an hour away, and leave.
func testHeld(t *testing.T, g *gateway) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	r := request(t, "GET", g.url+"/turns", "", "X-Key", "held").WithContext(ctx)
	do(t, r) // its turn is now
	go func() {
		defer close(left)
		if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Errorf("%s before its turn", resp.Status)
		}
	}()
	redistest.Eventually(t, "it is held", func() bool { return metric(t, g, "sluice_queue_waiting") == 1 })
	leave()
	<-left
	redistest.Eventually(t, "it is not held any more", func() bool { return metric(t, g, "sluice_queue_waiting") == 0 })
}

// Which policy is in force is told, the same by all who have the same one, and what became of others.
func TestMetricsOfReloads(t *testing.T) {
	t.Parallel()
	path := write(t, "policy.yaml", limited(100))
	a, b := serve(t, "--policy", path, "--upstream", "sample"), serve(t, "--policy", write(t, "other.yaml", limited(200)), "--upstream", "sample")
	fingerprint := func(g *gateway) string {
		t.Helper()
		all := scrape(t, g).values("sluice_policy_info")
		if len(all) != 1 {
			t.Errorf("%d policies are in force: %v", len(all), all)
		}
		return slices.Collect(maps.Keys(all))[0]
	}
	first := fingerprint(a)
	if first == "" || first == fingerprint(b) {
		t.Errorf("two policies have the fingerprints %q and %q", first, fingerprint(b))
	}
	since := metric(t, a, "sluice_policy_last_reload_success_timestamp_seconds")

	overwrite(t, path, "version: 1\nrules: [{name: broken, limit: many}]\n")
	redistest.Eventually(t, "it is refused", func() bool { return metric(t, a, "sluice_policy_refused") == 1 })
	p := scrape(t, a)
	p.wants(t, "sluice_policy_reloads_total", map[string]float64{"success": 1, "refused": 1})
	if fingerprint(a) != first || metric(t, a, "sluice_policy_last_reload_success_timestamp_seconds") != since {
		t.Error("what is refused is in force")
	}

	overwrite(t, path, limited(200))
	redistest.Eventually(t, "all is well", func() bool { return metric(t, a, "sluice_policy_refused") == 0 })
	scrape(t, a).wants(t, "sluice_policy_reloads_total", map[string]float64{"success": 2, "refused": 1})
	if fingerprint(a) != fingerprint(b) || metric(t, a, "sluice_policy_last_reload_success_timestamp_seconds") <= since {
		t.Errorf("with one policy the fingerprints are %q and %q", fingerprint(a), fingerprint(b))
	}
}
