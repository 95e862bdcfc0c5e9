package replay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

type store struct{ *memory.Store }

func (s store) Evicted() int64 { return s.Losses().Evicted }

func newStore(maxBytes int64) Store { return store{memory.NewSize(maxBytes)} }

func decode(t *testing.T, text string) policy.Document {
	t.Helper()
	doc, err := policyfile.Decode("policy.yaml", []byte("version: 1\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// replayed returns the report and, by the number of the request, whether the request was denied.
func replayed(t *testing.T, c Config) (*Report, []bool) {
	t.Helper()
	c.Compile, c.NewStore = policy.Compile, newStore
	if c.Feed.Format == nil {
		c.Feed.Format = format(t, "combined", accesslog.Options{})
	}
	refused := make([]bool, 1_000_000)
	c.decided = func(n int64, allowed bool) { refused[n] = !allowed }
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r, refused[:r.Requests]
}

// reportOf replays requests with a policy.
func reportOf(t *testing.T, log []logtest.Request, policy string) *Report {
	t.Helper()
	report, _ := replayed(t, Config{Files: []string{logtest.Write(t, logtest.Combined(log))}, Document: decode(t, policy)})
	return report
}

func format(t *testing.T, name string, o accesslog.Options) *accesslog.Format {
	t.Helper()
	f, err := accesslog.Lookup(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func randomPolicy(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var b strings.Builder
	fmt.Fprintf(&b, "ipv6_prefix: %s\nrules:\n", pick("48", "64", "56"))
	if r.IntN(3) == 0 {
		b.WriteString("  - {name: open, match: GET /open, exempt: true}\n")
	}
	if r.IntN(3) == 0 {
		b.WriteString("  - {name: shut, match: GET /shut, block: true, clients: 10.0.0.0/30}\n")
	}
	for i := range 1 + r.IntN(4) {
		fmt.Fprintf(&b, "  - name: r%d\n    key: %s\n    limit: %s\n", i,
			pick("[client_ip]", "[client_ip, method]", "[client_ip, \"query:q\"]", "[method, client_ip]"), pick("2/second", "7/minute", "40/hour", "3/5s"))
		algorithm := pick("token_bucket", "gcra", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact")
		fmt.Fprintf(&b, "    algorithm: %s\n", algorithm)
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "    match: [%s]\n", pick("\"GET /a/{id}\"", "\"/a/{rest...}\"", "POST /login"))
		}
		switch r.IntN(6) {
		case 0:
			b.WriteString("    shadow: true\n")
		case 1:
			b.WriteString("    enforce: 50%\n")
		case 2:
			b.WriteString("    missing: refuse\n")
		case 3:
			if algorithm != "leaky_bucket" {
				b.WriteString("    count: {status: [401, 5xx]}\n")
			}
		case 4:
			if algorithm != "leaky_bucket" {
				b.WriteString("    cost: {response_bytes: 10}\n")
			}
		}
	}
	return b.String()
}

func randomLog(r *rand.Rand, n int) string {
	at := time.Date(2026, 3, 1, 23, 50, 0, 0, time.UTC)
	clients := []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "dsl-7.example.net", "DSL-7.example.net", "cache.example.org", "-"}
	for i := range 30 {
		clients = append(clients, fmt.Sprintf("10.0.0.%d", i))
	}
	all := make([]logtest.Request, n)
	for i := range all {
		if r.IntN(3) == 0 {
			at = at.Add(time.Duration(r.IntN(3)) * time.Second)
		}
		if r.IntN(500) == 0 {
			at = at.Add(time.Duration(r.IntN(20)) * time.Minute)
		}
		all[i] = logtest.Request{
			At: at, Client: clients[min(r.IntN(len(clients)), r.IntN(len(clients)))], Method: []string{"GET", "POST"}[r.IntN(2)],
			Target: []string{"/a/1", "/a/2?q=x", "/open", "/shut", "/login?q=y", "/", "*", "http://example.com/a/3?q=z", "\\x16\\x03"}[r.IntN(9)],
			Status: []int{200, 401, 502}[r.IntN(3)],
		}
	}
	return logtest.Combined(all)
}

// With any number of workers, the same requests are denied, and the report is the same.
func TestWorkers(t *testing.T) {
	t.Parallel()
	telling := 0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 14))
		n := 3000
		if seed == 0 {
			n = 20_000 // several batches, so the workers pass shards to each other
		}
		text, log := randomPolicy(r), logtest.Write(t, randomLog(r, n))
		c := Config{Files: []string{log}, Document: decode(t, text), Workers: 1}
		other := decode(t, randomPolicy(r))
		if seed%2 == 0 {
			c.Against = &other
		}
		one, refused := replayed(t, c)
		c.Workers = 4
		four, also := replayed(t, c)
		if i := firstDifference(refused, also); i >= 0 {
			t.Fatalf("seed %d: request %d is denied: %v by one worker, %v by four\n%s", seed, i, refused[i], also[i], text)
		}
		if a, b := encoded(t, one), encoded(t, four); a != b {
			t.Fatalf("seed %d: the reports of one and of four workers differ:\n%s\n%s", seed, a, b)
		}
		// If the key of a rule is the same for all clients, the workers cannot divide the clients, and all use one
		// store. This rule never denies a request.
		c.Document.Rules = append(slices.Clone(c.Document.Rules), policy.Rule{Name: "all", Limit: "1000000/second"})
		if _, together := replayed(t, c); firstDifference(refused, together) >= 0 {
			t.Fatalf("seed %d: request %d differs if the clients are not divided\n%s", seed, firstDifference(refused, together), text)
		}
		if n := count(refused); n > 0 && n < len(refused) {
			telling++
		}
	}
	if telling < 6 {
		t.Errorf("only %d policies have denied some of the requests, want at least 6", telling)
	}
}

func encoded(t *testing.T, r *Report) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func firstDifference(a, b []bool) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func count(of []bool) (n int) {
	for _, b := range of {
		if b {
			n++
		}
	}
	return n
}
