package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/internal/testkit"
)

// Metrics, the log, the admin API, sluice top, sluice check and the console show the denials of an overload and their
// classes.
func TestOverloadSeen(t *testing.T) {
	t.Parallel()
	hold, arrived := make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	g := serve(t, "--log-refusals", "--upstream", upstreamOf(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hold
	})), "--policy", testkit.File(t, "policy.yaml", `version: 1
rules:
  - {name: capacity, in_flight: {auto: true, least: 1, most: 1}}
  - {name: exports, match: GET /export, class: sheddable}
`))
	var under sync.WaitGroup
	under.Go(func() { do(t, request(t, "GET", g.URL+"/", "")) })
	<-arrived
	for path, n := range map[string]int{"/": 2, "/export": 3} {
		for range n {
			resp, _ := do(t, request(t, "GET", g.URL+path, "", "X-Request-Id", "overload-"+strings.TrimPrefix(path, "/")))
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
			}
		}
	}
	for name, want := range map[string]float64{
		`sluice_load_refusals_total{class="normal",outcome="deny",rule="capacity"}`:    2,
		`sluice_load_refusals_total{class="sheddable",outcome="deny",rule="capacity"}`: 3,
		`sluice_requests_overloaded_total{class="sheddable",door="gateway"}`:           3,
		`sluice_decisions_total{outcome="deny",rule="capacity"}`:                       5,
		`sluice_requests_total{door="gateway",outcome="deny"}`:                         5,
		`sluice_load_limit{rule="capacity"}`:                                           1,
		`sluice_load_in_flight{rule="capacity"}`:                                       1,
	} {
		if got := g.Metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	var load *control.LoadStats
	testkit.Await(t, "the admin API reports the numbers", func() bool {
		var stats control.RuleStats
		_, text := get(t, g.Admin+"/v1/rules/capacity/stats")
		if err := json.Unmarshal([]byte(text), &stats); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		load = stats.Load
		return load != nil && load.Denied["normal"] == 2 && load.Denied["sheddable"] == 3
	})
	if load.Limit != 1 || load.InFlight != 1 || load.Overloaded == nil {
		t.Errorf("%+v", load)
	}
	for what, want := range map[string]string{
		"/v1/alerts":                      `"shedding:capacity"`,
		"/v1/refusals?id=overload-export": `"class":"sheddable"`,
		"/":                               `data-load="capacity"`,
		"/rules/capacity":                 "sheds normal, sheddable since",
	} {
		if _, text := get(t, g.Admin+what); !strings.Contains(strings.ReplaceAll(text, ": ", ":"), strings.ReplaceAll(want, ": ", ":")) {
			t.Errorf("%s lacks %s: %.2000s", what, want, text)
		}
	}
	for _, command := range [][]string{{"top", "--once", "--admin-url", g.Admin}, {"check", "--admin-url", g.Admin, g.URL + "/export"}} {
		out, _ := exec.CommandContext(t.Context(), testkit.Binary(t), command...).CombinedOutput()
		want := map[string]string{"top": "normal, sheddable since ", "check": "denied: the upstream is overloaded for class sheddable"}[command[0]]
		if !strings.Contains(string(out), want) {
			t.Errorf("%v lacks %q:\n%s", command, want, out)
		}
	}
	release()
	under.Wait()
}
