package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/internal/testkit"
)

// Metrics, the admin API, sluice top and the console report the requests to each upstream by how they ended, whatever
// the clients send.
func TestUpstreamHealth(t *testing.T) {
	t.Parallel()
	hold, arrived := make(chan struct{}), make(chan struct{}, 8)
	release := sync.OnceFunc(func() { close(hold) })
	gone := httptest.NewServer(nil)
	gone.Close()
	other := upstreamOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	main := upstreamOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/dies":
			panic(http.ErrAbortHandler)
		case "/held":
			arrived <- struct{}{}
			<-hold
		case "/late":
			<-r.Context().Done() // until --upstream-timeout
		case "/slow-body":
			_ = http.NewResponseController(w).Flush()
			<-hold
		}
	}))
	t.Cleanup(release) // before the cleanup of main, which waits for the handlers
	g := serve(t, "--policy", testkit.File(t, "policy.yaml", wide), "--upstream-timeout", "10s",
		"--upstream", main, "--upstream", "other.test="+other, "--upstream", "also.test="+other, "--upstream", "gone.test="+gone.URL)
	send := func(n int, path, host string, status int) {
		t.Helper()
		for i := range n {
			r := request(t, "POST", g.URL+path, strings.Repeat("x", i*10_000)) // small ones and large ones
			if host != "" {
				r.Host = host
			}
			if resp, _ := do(t, r); resp.StatusCode != status {
				t.Errorf("%s %s: %d, want %d", path, host, resp.StatusCode, status)
			}
		}
	}
	var late sync.WaitGroup
	for range 2 {
		late.Go(func() { send(1, "/late", "", 504) })
	}
	send(5, "/", "", 200)
	send(4, "/missing", "", 404)
	send(3, "/broken", "", 503)
	send(3, "/dies", "", 502)
	send(2, "/", "other.test", 204)
	send(1, "/", "also.test", 204)
	send(2, "/", "gone.test", 502)
	for i := range 20 {
		send(1, "/", fmt.Sprintf("client-%d.test", i), 200) // these hosts must not become labels
	}
	late.Wait()
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() { do(t, request(t, "GET", g.URL+"/held", "")) })
		<-arrived
	}
	resp, err := http.Get(g.URL + "/slow-body")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	for name, want := range map[string]float64{
		`sluice_upstream_duration_seconds_count{status="2xx",upstream="` + main + `"}`:  26,
		`sluice_upstream_duration_seconds_count{status="3xx",upstream="` + main + `"}`:  0,
		`sluice_upstream_duration_seconds_count{status="4xx",upstream="` + main + `"}`:  4,
		`sluice_upstream_duration_seconds_count{status="5xx",upstream="` + main + `"}`:  3,
		`sluice_upstream_errors_total{kind="closed",upstream="` + main + `"}`:           3,
		`sluice_upstream_errors_total{kind="timeout",upstream="` + main + `"}`:          2,
		`sluice_upstream_errors_total{kind="connect",upstream="` + main + `"}`:          0,
		`sluice_upstream_in_flight{upstream="` + main + `"}`:                            3,
		`sluice_upstream_duration_seconds_count{status="2xx",upstream="` + other + `"}`: 3,
		`sluice_upstream_errors_total{kind="connect",upstream="` + gone.URL + `"}`:      2,
		`sluice_upstream_in_flight{upstream="` + gone.URL + `"}`:                        0,
	} {
		if got := g.Metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := g.Metric(`sluice_upstream_duration_seconds_count{status="2xx",upstream="client-1.test"}`); !math.IsNaN(got) {
		t.Error("a host from a client's request is a label")
	}
	if n := len(scrape(t, g)["sluice_upstream_in_flight"].Metric); n != 3 {
		t.Errorf("%d upstreams, want 3", n)
	}

	var stats control.Stats
	testkit.Await(t, "the admin API reports the numbers", func() bool {
		_, text := get(t, g.Admin+"/v1/stats")
		if err := json.Unmarshal([]byte(text), &stats); err != nil {
			t.Fatal(err)
		}
		return len(stats.Upstreams) == 3 && stats.Upstreams[0].Hour.Took.Count+stats.Upstreams[1].Hour.Took.Count+stats.Upstreams[2].Hour.Took.Count == 38
	})
	for _, u := range stats.Upstreams {
		if u.Upstream != main {
			continue
		}
		if s, e := u.Hour.Statuses, u.Hour.Errors; s["2xx"] != 26 || s["4xx"] != 4 || s["5xx"] != 3 || e["closed"] != 3 || e["timeout"] != 2 || u.InFlight != 3 || u.Hour.InFlight < 3 || u.Hour.Took.P99 < 10 {
			t.Errorf("%+v", u)
		}
	}
	out, err := exec.CommandContext(t.Context(), testkit.Binary(t), "top", "--once", "--admin-url", g.Admin).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"UPSTREAM", main, "closed 3, timeout 2", "connect 2"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if _, page := get(t, g.Admin+"/"); !strings.Contains(page, `data-upstream="`+main+`"`) {
		t.Error("the console does not have the upstream")
	}
	release()
	asking.Wait()
	testkit.Await(t, "no request is under way", func() bool {
		return g.Metric(`sluice_upstream_in_flight{upstream="`+main+`"}`) == 0
	})
}

// While an upstream fails, an alert is active. A decision service without a gateway reports no upstreams.
func TestUpstreamFails(t *testing.T) {
	t.Parallel()
	g := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	began := time.Now()
	for range 30 {
		do(t, request(t, "GET", g.URL+"/", ""))
	}
	var list control.AlertList
	testkit.Await(t, "the alert is active", func() bool {
		_, text := get(t, g.Admin+"/v1/alerts")
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Alerts) > 0
	})
	a := list.Alerts[0]
	if !strings.HasPrefix(a.Alert, "upstream-failing:http://127.0.0.1:") || a.Since == nil || a.Since.Before(began.Add(-15*time.Second)) || !strings.Contains(a.Text, "fails 100 % of its requests") {
		t.Errorf("%+v", a)
	}

	service := serve(t, "--policy", testkit.File(t, "policy.yaml", wide), "--check", "127.0.0.1:0")
	var stats control.Stats
	_, text := get(t, service.Admin+"/v1/stats")
	if err := json.Unmarshal([]byte(text), &stats); err != nil || len(stats.Upstreams) != 0 {
		t.Errorf("a decision service reports the upstreams %+v, %v", stats.Upstreams, err)
	}
	if _, found := scrape(t, service)["sluice_upstream_in_flight"]; found {
		t.Error("a decision service has metrics of upstreams")
	}
}
