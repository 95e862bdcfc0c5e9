//go:build long

package e2e

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// entry is a request of the access log.
type entry struct{ address, method, target string }

// path is the target as a server reads it, for the rules of the test.
func (e entry) path() string {
	path, _, _ := strings.Cut(e.target, "?")
	return path
}

func readLog(t *testing.T) (entries []entry) {
	t.Helper()
	f, err := os.Open("testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 4 {
			t.Fatalf("not a line of four fields: %q", lines.Text())
		}
		addresses[fields[1]] = true
		entries = append(entries, entry{fields[1], fields[2], fields[3]})
	}
	if len(entries) != 10_000 || len(addresses) != 1753 {
		t.Fatalf("the log has %d requests from %d addresses", len(entries), len(addresses))
	}
	return entries
}

// counting is an upstream that counts what reaches it by the client's address.
type counting struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The gateway has appended the address of the test, which is its peer.
	client, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ", ")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[client]++
}

// replay sends the log through a gateway with that policy, in order and over one
// connection, and returns for each request whether it was refused.
func replay(t *testing.T, entries []entry, policy string) (refused []bool, upstream map[string]int) {
	t.Helper()
	awayFromMidnight(t)
	counts := &counting{seen: map[string]int{}}
	server := httptest.NewServer(counts)
	defer server.Close()
	g := serve(t, "--policy", write(t, "policy.yaml", policy), "--upstream", server.URL)
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i, e := range entries {
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: gateway\r\nX-Forwarded-For: %s\r\n\r\n", e.method, e.target, e.address)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: e.method})
		if err != nil {
			t.Fatalf("request %d, %v: %v", i, e, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("request %d, %v: %s", i, e, resp.Status)
		}
		refused = append(refused, resp.StatusCode == http.StatusTooManyRequests)
	}
	counts.mu.Lock()
	defer counts.mu.Unlock()
	return refused, counts.seen
}

// compare holds what the gateway did to what it should have done, request by request,
// and what the upstream saw to that, address by address.
func compare(t *testing.T, entries []entry, got, want []bool, upstream map[string]int) {
	t.Helper()
	differ, refused := 0, 0
	passed := map[string]int{}
	for i, e := range entries {
		if want[i] {
			refused++
		} else {
			passed[e.address]++
		}
		if got[i] != want[i] {
			differ++
			t.Logf("request %d, %v: refused %v, want %v", i, e, got[i], want[i])
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d requests differ", differ, len(entries))
	}
	if refused < 100 || refused > len(entries)-100 {
		t.Errorf("%d of %d requests are to be refused: that shows nothing", refused, len(entries))
	}
	for address := range passed {
		if upstream[address] != passed[address] {
			t.Errorf("%s: %d requests have reached the upstream, want %d", address, upstream[address], passed[address])
		}
	}
	if len(upstream) != len(passed) {
		t.Errorf("requests of %d addresses have reached the upstream, want %d", len(upstream), len(passed))
	}
}

// A day is long against the test, so that nothing comes back during it: of each address
// the first requests pass, up to what the algorithm lets pass at once.
func TestLongReplayPerAddress(t *testing.T) {
	all := readLog(t)
	for algorithm, test := range map[string]struct{ entries, limit, atOnce int }{
		"token_bucket":           {len(all), 50, 50},
		"gcra":                   {2500, 12, 12},
		"fixed_window":           {2500, 12, 12},
		"sliding_window_counter": {2500, 12, 12},
		"sliding_window_log":     {2500, 12, 12},
		"leaky_bucket":           {2500, 12, 1}, // its queue has a place by default, since 12 a day is slow
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
			got, upstream := replay(t, entries, policy)
			var want []bool
			seen := map[string]int{}
			for _, e := range entries {
				seen[e.address]++
				want = append(want, seen[e.address] > test.atOnce)
			}
			compare(t, entries, got, want, upstream)
			agree(t, entries, got, policy)
		})
	}
}

func TestLongReplayLayers(t *testing.T) {
	t.Parallel()
	// One request has a tab in its path, and is refused before anything is counted.
	entries := slices.DeleteFunc(readLog(t), func(e entry) bool { return strings.Contains(e.target, "%09") })
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
	got, upstream := replay(t, entries, policy)
	want := layers(entries, true)
	compare(t, entries, got, want, upstream)
	agree(t, entries, got, policy)

	// A limiter that charges its layers one after another would be found out.
	leaky, differ := layers(entries, false), 0
	for i := range want {
		if leaky[i] != want[i] {
			differ++
		}
	}
	if differ == 0 {
		t.Error("the log does not tell all-or-nothing from one layer after another")
	}
}

// below reports whether a request is for prefix, with its last slash or without, or for
// something in it.
func below(e entry, prefix string) bool { return strings.HasPrefix(e.path()+"/", prefix) }

// layers counts for the policy of TestReplayLayers. Nothing comes back during the test:
// the bucket of 60 a day gets its first unit after 24 minutes.
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
		{func(e entry) (string, bool) { return e.address, true }, 60, map[string]int{}},
		{under("/blog/"), 900, map[string]int{}},
		{func(e entry) (string, bool) {
			return e.address, below(e, "/images/") && (e.method == "GET" || e.method == "HEAD")
		}, 5, map[string]int{}},
		{func(entry) (string, bool) { return "", true }, 6000, map[string]int{}},
	}
	for _, e := range entries {
		if e.path() == "/robots.txt" && (e.method == "GET" || e.method == "HEAD") {
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
