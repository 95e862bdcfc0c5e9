//go:build long

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// entry is a request of the access log.
type entry struct{ testkit.Access }

// path returns the target without its query, as the rules of the test match it.
func (e entry) path() string {
	path, _, _ := strings.Cut(e.Target, "?")
	return path
}

func readLog(t *testing.T) (entries []entry) {
	t.Helper()
	addresses := map[string]bool{}
	for _, r := range testkit.AccessLog(t) {
		addresses[r.Address] = true
		entries = append(entries, entry{r})
	}
	if len(entries) != 10_000 || len(addresses) != 1753 {
		t.Fatalf("the log has %d requests from %d addresses", len(entries), len(addresses))
	}
	return entries
}

// replay sends the log through a gateway with a policy, in order and over one connection, and returns for each request
// whether it was denied.
func replay(t *testing.T, entries []entry, policy string) (refused []bool) {
	t.Helper()
	awayFromMidnight(t)
	var reached atomic.Int64
	upstream := upstreamOf(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	g := serve(t, "--policy", testkit.File(t, "policy.yaml", policy), "--upstream", upstream)
	conn := dial(t, g, "")
	in := bufio.NewReader(conn)
	for i, e := range entries {
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: gateway\r\nX-Forwarded-For: %s\r\n\r\n", e.Method, e.Target, e.Address)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: e.Method})
		if err != nil {
			t.Fatalf("request %d, %v: %v", i, e, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		before := reached.Load()
		switch resp.StatusCode {
		case http.StatusOK:
			reached.Add(-1)
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("request %d, %v: %s", i, e, resp.Status)
		}
		if reached.Load() != 0 {
			t.Fatalf("request %d, %v: %s, and %d have reached the upstream", i, e, resp.Status, before)
		}
		refused = append(refused, resp.StatusCode == http.StatusTooManyRequests)
	}
	return refused
}

// compare compares the gateway's decisions with the right ones, request by request.
func compare(t *testing.T, entries []entry, got, want []bool) {
	t.Helper()
	differ, refused := 0, 0
	for i, e := range entries {
		if want[i] {
			refused++
		}
		if got[i] != want[i] {
			differ++
			t.Logf("request %d, %v: denied %v, want %v", i, e, got[i], want[i])
		}
	}
	if differ > 0 || refused < 100 || refused > len(entries)-100 {
		t.Errorf("%d of %d requests differ, and %d should be denied", differ, len(entries), refused)
	}
}

// A day is much longer than the test, so that no units come back: the first requests of each address pass, as many as
// the algorithm allows at once.
func TestLongReplayPerAddress(t *testing.T) {
	all := readLog(t)
	for algorithm, test := range map[string]struct{ entries, limit, atOnce int }{
		"token_bucket":           {len(all), 50, 50},
		"gcra":                   {2500, 12, 12},
		"fixed_window":           {2500, 12, 12},
		"sliding_window_counter": {2500, 12, 12},
		"sliding_window_log":     {2500, 12, 12},
		"leaky_bucket":           {2500, 12, 1}, // its queue has one position by default, because 12 a day is slow
	} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			entries := all[:test.entries]
			policy := `
version: 1
trusted_proxies: [127.0.0.0/8]
rules:
  - name: per-address
    key: [client_ip]
    limit: ` + fmt.Sprint(test.limit) + `/day
    algorithm: ` + algorithm + "\n"
			got := replay(t, entries, policy)
			var want []bool
			seen := map[string]int{}
			for _, e := range entries {
				seen[e.Address]++
				want = append(want, seen[e.Address] > test.atOnce)
			}
			compare(t, entries, got, want)
			agree(t, entries, got, policy)
		})
	}
}

func TestLongReplayLayers(t *testing.T) {
	t.Parallel()
	// One request has a tab in its path, and is rejected before any limit counts it.
	entries := slices.DeleteFunc(readLog(t), func(e entry) bool { return strings.Contains(e.Target, "%09") })
	policy := `
version: 1
trusted_proxies: [127.0.0.0/8]
rules:
  - name: robots
    match: [GET /robots.txt]
    exempt: true
  - name: per-address
    key: [client_ip]
    limit: 60/day
    algorithm: token_bucket
  - name: blog
    match: ["/blog/{rest...}"]
    limit: 900/day
    algorithm: sliding_window_counter
  - name: images
    match: ["GET /images/{rest...}"]
    key: [client_ip]
    limit: 5/day
    algorithm: sliding_window_log
  - name: watched
    match: ["/presentations/{rest...}"]
    limit: 10/day
    shadow: true
  - name: global
    limit: 6000/day
    algorithm: fixed_window
`
	got := replay(t, entries, policy)
	want := layers(entries, true)
	compare(t, entries, got, want)
	agree(t, entries, got, policy)

	// The log would reveal a limiter that charges its layers one after another.
	leaky, differ := layers(entries, false), 0
	for i := range want {
		if leaky[i] != want[i] {
			differ++
		}
	}
	if differ == 0 {
		t.Error("the log does not distinguish all-or-nothing from layer by layer")
	}
}

// below reports whether a request is for prefix, with or without its last slash, or for a path below it.
func below(e entry, prefix string) bool { return strings.HasPrefix(e.path()+"/", prefix) }

// layers counts for the policy of TestLongReplayLayers. No units come back during the test: the bucket of 60 a day gets
// its first unit after 24 minutes.
func layers(entries []entry, allOrNothing bool) (refused []bool) {
	type layer struct {
		of     func(entry) (key string, applies bool)
		limit  int
		counts map[string]int
	}
	under := func(prefix string) func(entry) (string, bool) {
		return func(e entry) (string, bool) { return "", below(e, prefix) }
	}
	all := []layer{
		{func(e entry) (string, bool) { return e.Address, true }, 60, map[string]int{}},
		{under("/blog/"), 900, map[string]int{}},
		{func(e entry) (string, bool) {
			return e.Address, below(e, "/images/") && (e.Method == "GET" || e.Method == "HEAD")
		}, 5, map[string]int{}},
		{func(entry) (string, bool) { return "", true }, 6000, map[string]int{}},
	}
	for _, e := range entries {
		if e.path() == "/robots.txt" && (e.Method == "GET" || e.Method == "HEAD") {
			refused = append(refused, false)
			continue
		}
		full := false
		for _, l := range all {
			if key, applies := l.of(e); applies && l.counts[key] >= l.limit {
				full = true
			}
		}
		for _, l := range all {
			key, applies := l.of(e)
			if applies && (!full || !allOrNothing && l.counts[key] < l.limit) {
				l.counts[key]++
			}
		}
		refused = append(refused, full)
	}
	return refused
}

// agree compares the decisions of "sluice replay" with those of the gateway, request by request: the log has the
// gateway's statuses, so the replay must deny all requests with status 429, and no others.
func agree(t *testing.T, entries []entry, refused []bool, policy string) {
	t.Helper()
	var log strings.Builder
	statuses := map[string]int{}
	now := time.Now().UTC().Format("02/Jan/2006:15:04:05 -0700") // the limits are per day
	for i, e := range entries {
		status := 200
		if refused[i] {
			status = 429
		}
		statuses[fmt.Sprintf("%dxx", status/100)]++
		fmt.Fprintf(&log, "127.0.0.1 - - [%s] \"%s %s HTTP/1.1\" %d 1 \"-\" \"-\" \"%s\"\n", now, e.Method, e.Target, status, e.Address)
	}
	c := exec.Command(testkit.Binary(t), "replay", "--policy", testkit.File(t, "policy.yaml", policy), "--output", "json", "--format",
		`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for"`,
		testkit.File(t, "access.log", log.String()))
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var report struct {
		Requests, Unreadable int
		Statuses             []struct {
			Class             string
			Requests, Refused int
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	if report.Requests != len(entries) || report.Unreadable != 0 || len(report.Statuses) != 2 {
		t.Fatalf("of %d requests the replay has %+v", len(entries), report)
	}
	for _, s := range report.Statuses {
		want := 0
		if s.Class == "4xx" {
			want = s.Requests
		}
		if s.Requests != statuses[s.Class] || s.Refused != want {
			t.Errorf("of %d requests that the gateway has answered with %s, the replay denies %d of %d", statuses[s.Class], s.Class, s.Refused, s.Requests)
		}
	}
}
