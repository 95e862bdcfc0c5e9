package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// page is the content of /metrics, as Prometheus parses it.
type page map[string]*dto.MetricFamily

func scrape(t *testing.T, g *gateway) page {
	t.Helper()
	resp, err := http.Get(g.Admin + "/metrics")
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

// labels returns the names of the labels of a metric.
func labels(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, l := range m.Label {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// metricsHead is the text of docs/metrics.md above the table of metrics.
const metricsHead = "# Metrics\n\n`/metrics` has these metrics in addition to those of the Go runtime and the process. " +
	"`go test -run MetricsReference ./cmd/e2e -update` writes this page.\n\n" +
	"| label | values |\n|---|---|\n" +
	"| `door` | the integration through which a request came: `gateway`; `check` (the JSON API of `--check`); `auth` (auth requests of proxies, at `--check`); `grpc` (`sluice.v1.Checks` of `--grpc`); " +
	"`rls` (Envoy's rate limit service, at `--grpc`); `resp`; `spoe`; `admin` (checks in the admin API that charge the request, with `\"take\": true`). In Go programs: `http` (`httplimit`) and `grpc_server` (`grpclimit`), unless the program sets another name. " +
	"Names beyond the first sixteen are counted together as `*other` |\n" +
	"| `outcome` | `allow`; `delayed` (allowed after a wait in a queue); `degraded` (allowed by `on_error`, without the shared store); `deny`; " +
	"`would_deny` (allowed only because the rule is in shadow mode or not enforced for the subject); `marked` (allowed by `over: mark`) |\n" +
	"| `by` | `store` (the shared store) or `stand_in` (the fallback) |\n" +
	"| `class` | `critical`, `normal` or `sheddable` |\n" +
	"| `store` | `redis`, also for Valkey |\n" +
	"| `shard` | the number of a master in a cluster, from 0; without a cluster, `0` |\n" +
	"| `rule` | the name of a rule. Rules beyond the first 1000 are counted together as `*other`, and limits that callers send with a request as `*caller` |\n" +
	"| `tier` | the name of a tier. Tiers beyond the first 100, and tiers that are not in the policy, are counted together as `*other` |\n\n" +
	"| metric | type | labels | |\n|---|---|---|---|\n"

// docs/metrics.md describes all metrics. The metrics and labels that alerts and panels select exist, and promtool
// accepts /metrics.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--store", redistest.Shared(t).URL(),
		"--rules", "sqlite:"+filepath.Join(t.TempDir(), "rules.db"), "--policy", testkit.File(t, "policy.yaml", `version: 1
tiers: {subject: api_key}
subjects: [{subject: k-pro, tier: pro}]
rules:
  - {name: api, key: [api_key], limit: 100/minute, tiers: {pro: 1000/minute}}
  - {name: tokens, key: [api_key], limit: 100000/day, cost: {response_header: X-Cost, estimate: 100, max: 10000}}
  - {name: capacity, in_flight: auto}
  - {name: tpm, key: [api_key], limit: 100000/day, cost: {tokens: total, estimate: 100}}
`))
	do(t, request(t, "GET", g.URL+"/api/users", "", "X-API-Key", "k-pro"))
	all := scrape(t, g)

	reference := metricsHead
	all.hasExplained(t, "door", "by", "outcome", "class", "store")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "sluice_") {
			continue
		}
		f, of := all[name], []string{}
		for _, label := range labels(f) {
			of = append(of, "`"+label+"`")
		}
		reference += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(of, ", "), f.GetHelp())
	}
	const file = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(file, []byte(reference), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != reference {
		t.Errorf("%s is out of date: go test -run MetricsReference ./cmd/e2e -update (%v)", file, err)
	}

	_, text := get(t, g.Admin+"/metrics")
	promtool(t, text+"\n", "check", "metrics")
	all.hasSelected(t)
}

// hasExplained checks that docs/metrics.md explains the values of some labels.
func (p page) hasExplained(t *testing.T, names ...string) {
	t.Helper()
	explained := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|$").FindAllStringSubmatch(metricsHead, -1) {
		explained[row[1]] = row[2]
	}
	for _, f := range p {
		for _, m := range f.GetMetric() {
			for _, l := range m.Label {
				if slices.Contains(names, l.GetName()) && !strings.Contains(explained[l.GetName()], "`"+l.GetValue()+"`") {
					t.Errorf("docs/metrics.md does not explain %s=%q", l.GetName(), l.GetValue())
				}
			}
		}
	}
}

// hasSelected checks that the metrics and labels exist that alerts and panels select.
func (p page) hasSelected(t *testing.T) {
	t.Helper()
	alerts, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	d := readDashboard(t)
	selected := string(alerts) + strings.Join(asked(d), "\n")
	for _, v := range at[[]any](d, "templating.list") {
		selected += fmt.Sprintln(at[any](v, "query"))
	}
	seen := 0
	for _, s := range regexp.MustCompile(`(\w*:)?\b(sluice_[a-z_]+|process_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(selected, -1) {
		if s[1] != "" { // a recording rule of the alerts makes this metric
			continue
		}
		f := p[s[2]]
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(s[2], "")
		if f == nil && p[base].GetType() == dto.MetricType_HISTOGRAM {
			f = p[base]
		}
		if seen++; f == nil {
			t.Errorf("the metric %s is missing", s[2])
			continue
		}
		for _, label := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(s[3], -1) {
			if name := label[1]; name != "job" && name != "instance" && !slices.Contains(labels(f), name) {
				t.Errorf("%s has no label %s", s[2], name)
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d selectors were found", seen)
	}
}
