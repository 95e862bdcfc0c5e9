package promlimit_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/promlimit"
	"github.com/sluicehq/sluice/telemetry"
)

func compiled(t *testing.T, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(policy.Document{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// page has the scraped metrics, as Prometheus parses them.
type page map[string]*dto.MetricFamily

func scrape(t *testing.T, registry *prometheus.Registry) page {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	read, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// series returns the number of series that Prometheus would keep.
func (p page) series() (n int) {
	for _, f := range p {
		for _, m := range f.Metric {
			if h := m.Histogram; h != nil {
				n += len(h.Bucket) + 2
			} else {
				n++
			}
		}
	}
	return n
}

// value returns the sum of a metric over the series with the given labels, such as "rule=login,outcome=deny".
func (p page) value(name, labels string) (sum float64) {
	for _, m := range p[name].GetMetric() {
		fits := true
		for want := range strings.SplitSeq(labels, ",") {
			found := want == ""
			for _, l := range m.Label {
				found = found || l.GetName()+"="+l.GetValue() == want
			}
			fits = fits && found
		}
		if fits {
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// However many rules there are, and whatever the requests contain, the number of series is bounded, and no series
// contains text from a request.
func TestBounded(t *testing.T) {
	t.Parallel()
	const rules, asked = 2_000, 5_000
	var all []policy.Rule
	for i := range rules {
		all = append(all, policy.Rule{Name: fmt.Sprint("rule-", i), Match: []string{fmt.Sprintf("/r%d/", i)}, Key: []string{"header:X-Key", "host"},
			Limits: []string{"2/day", "50/hour"}, Shadow: i%3 == 0})
	}
	engine := policy.NewEngine(memory.New(), compiled(t, all...))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.New(telemetry.Watch(engine, telemetry.Config{Subjects: true})))
	before := scrape(t, registry)
	if n := len(before["sluice_decisions_total"].GetMetric()); n < 2*telemetry.MaxRules || before.value("sluice_decisions_total", "") != 0 {
		t.Errorf("before the first request there are %d series of decisions, want zeros of allow and deny for %d rules", n, telemetry.MaxRules)
	}

	doors := []string{"gateway", "auth", "check", "grpc", "rls", "resp", "spoe", "http", "grpc_server"}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range asked {
		secret := fmt.Sprintf("secret-%d", random.Uint64())
		engine.Decide(t.Context(), &policy.Request{
			Path: fmt.Sprintf("/r%d/%s", random.IntN(rules), secret), Host: secret + ".example.com",
			Peer: netip.AddrFrom4([4]byte(fmt.Appendf(nil, "%04d", i%10_000))),
			Door: doors[i%len(doors)], Header: http.Header{"X-Key": {secret}, "User-Agent": {secret}},
		})
	}
	for range 10 { // eight of these are denied
		engine.Decide(t.Context(), &policy.Request{Path: "/r1/", Host: "example.com", Door: "gateway", Header: http.Header{"X-Key": {"again"}}})
	}
	after := scrape(t, registry)
	const buckets = 40 // of a histogram, at most
	if most := (telemetry.MaxRules+2)*7 + len(doors)*(8+buckets); after.series() > most {
		t.Errorf("%d series, want at most %d", after.series(), most)
	}
	for name, f := range after {
		if strings.Contains(f.String(), "secret") {
			t.Errorf("%s contains text from a request", name)
		}
	}
	const made = asked + 10
	if n := after.value("sluice_requests_total", ""); n != made {
		t.Errorf("%v requests, want %d", n, made)
	}
	if n := after.value("sluice_decision_duration_seconds", ""); n != made {
		t.Errorf("%v durations, want %d", n, made)
	}
	if n := after.value("sluice_decisions_total", ""); n != made {
		t.Errorf("%v decisions of rules, want %d, one for each request", n, made)
	}
	if allow, deny := after.value("sluice_requests_total", "outcome=allow"), after.value("sluice_decisions_total", "rule=rule-1,outcome=deny"); deny != 8 || allow == 0 {
		t.Errorf("%v of ten requests are denied, want 8, and others allowed", deny)
	}
}

// The series of a rule appear with the rule, and are removed with it.
func TestRulesCome(t *testing.T) {
	t.Parallel()
	engine := policy.NewEngine(memory.New(), compiled(t, policy.Rule{Name: "old", Limit: "1/day"}))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.New(telemetry.Watch(engine, telemetry.Config{})))
	ask := func() { engine.Decide(t.Context(), &policy.Request{Path: "/", Door: "http"}) }
	ask()
	ask()
	p := scrape(t, registry)
	if p.value("sluice_decisions_total", "rule=old,outcome=allow") != 1 || p.value("sluice_decisions_total", "rule=old,outcome=deny") != 1 {
		t.Errorf("%v", p["sluice_decisions_total"])
	}
	engine.Swap(compiled(t, policy.Rule{Name: "new", Limit: "6/day"}))
	for range 6 {
		ask()
	}
	p = scrape(t, registry)
	if text := p["sluice_decisions_total"].String(); strings.Contains(text, "old") || p.value("sluice_decisions_total", "rule=new,outcome=allow") != 6 {
		t.Error(text)
	}
	// Two of the six requests leave less than a fifth of the limit, which is 1.2: they leave 1 and 0.
	if n := p.value("sluice_near_limit_total", "rule=new"); n != 2 {
		t.Errorf("%v of six are near the limit", n)
	}
	if n := p.value("sluice_requests_total", "door=http"); n != 8 {
		t.Errorf("%v requests, want 8", n)
	}
}
