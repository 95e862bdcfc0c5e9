package recommend

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/replay"
	"github.com/sluicehq/sluice/internal/replay/accesslog"
	"github.com/sluicehq/sluice/internal/replay/feed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// line is a request of a log.
type line struct {
	at           int64 // seconds since the epoch
	client       string
	method, path string
	status       int
}

func (l *line) String() string {
	return fmt.Sprintf("%s - - [%s] \"%s\" %d 100 \"-\" \"-\"\n", l.client, time.Unix(l.at, 0).UTC().Format("02/Jan/2006:15:04:05 -0700"), l.method+" "+l.path+" HTTP/1.1", l.status)
}

// traffic makes a log of so many clients on each of some days: some pages in a row, some looked at one by one, with
// tails as heavy as they are. It is sorted.
func traffic(rng *rand.Rand, clients, days int, scanner bool) (log []line) {
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).Unix()
	for day := range int64(days) {
		for c := range clients {
			if days > 1 && rng.IntN(3) == 0 {
				continue
			}
			at := begin + day*86400 + rng.Int64N(80_000)
			client := fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255)
			for n := min(distributions[rng.IntN(len(distributions))].draw(rng), 400); n > 0; n-- {
				path := []string{"/", "/search?q=x", fmt.Sprintf("/api/users/%d", rng.IntN(1e6)), fmt.Sprintf("/blog/%d/x", rng.IntN(9)), "/x.css"}[rng.IntN(5)]
				log = append(log, line{at, client, "GET", path, 200})
				at += int64(rng.ExpFloat64() * []float64{0.3, 5}[c%2])
			}
		}
	}
	if scanner {
		for i := range int64(9_000) {
			log = append(log, line{begin + 3600 + i/5, "192.0.2.66", "GET", fmt.Sprintf("/wp-%d.php", i), 404})
		}
	}
	slices.SortStableFunc(log, func(a, b line) int { return int(a.at - b.at) })
	return log
}

func write(t testing.TB, log []line) string {
	t.Helper()
	var b bytes.Buffer
	for i := range log {
		b.WriteString(log[i].String())
	}
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func config(t testing.TB, files ...string) Config {
	t.Helper()
	format, err := accesslog.Lookup("combined", accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Files: files, Feed: feed.Options{Format: format}, Share: share(t, "0.1%"), Confidence: share(t, "95%"), Window: time.Minute, Key: "client_ip",
		Compile: policy.Compile, NewStore: newStore,
	}
}

type store struct{ *memory.Store }

func (s store) Evicted() int64 { return s.Losses().Evicted }

func newStore(maxBytes int64) replay.Store { return store{memory.NewSize(maxBytes)} }

func run(t testing.TB, c Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// naive is how many requests of whom a rule of the policy refuses.
func naive(t testing.TB, rule policy.Rule, log []line) map[string]int {
	t.Helper()
	refused := map[string]int{}
	for _, i := range naiveLines(t, rule, log) {
		refused[log[i].client]++
	}
	return refused
}

// naiveLines are the lines that a rule of the policy refuses, by definitions: a list of times for a log, a level for
// a bucket.
func naiveLines(t testing.TB, rule policy.Rule, log []line) (refused []int) {
	t.Helper()
	limit, err := sluice.ParseLimit(rule.Limit)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, m := range rule.Match {
		mux.HandleFunc(m, func(http.ResponseWriter, *http.Request) {})
	}
	period := int64(limit.Period / time.Second)
	type state struct {
		level, last int64 // a unit is one period; a second takes Count
		times       []int64
	}
	states := map[string]*state{}
	for i := range log {
		l := &log[i]
		if _, pattern := mux.Handler(httptest.NewRequest(l.method, l.path, nil)); len(rule.Match) > 0 && pattern == "" {
			continue
		}
		s := states[l.client]
		if s == nil {
			s = &state{}
			states[l.client] = s
		}
		switch rule.Algorithm {
		case "token_bucket":
			s.level = max(0, s.level-(l.at-s.last)*limit.Count)
			s.last = l.at
			if s.level+period > limit.Burst*period {
				refused = append(refused, i)
				continue
			}
			s.level += period
		case "sliding_window_log":
			// A unit counts until a period after the end of its tick: at whole seconds, with the period's last.
			s.times = slices.DeleteFunc(s.times, func(at int64) bool { return at < l.at-period })
			if int64(len(s.times)) >= limit.Count {
				refused = append(refused, i)
				continue
			}
			s.times = append(s.times, l.at)
		default:
			t.Fatalf("rule %s counts by %q", rule.Name, rule.Algorithm)
		}
	}
	return refused
}

// check holds a result to its promise by counts that are made without Sluice.
func check(t *testing.T, r *Result, log []line, aside ...string) {
	t.Helper()
	if len(r.Document.Rules) == 0 || r.Replay == nil || !r.Replay.Kept {
		t.Fatalf("%d rules, %+v", len(r.Document.Rules), r.Replay)
	}
	p, _ := r.shareOf()
	for _, rule := range r.Document.Rules {
		if !rule.Shadow {
			t.Errorf("rule %s is no shadow", rule.Name)
		}
		refused := naive(t, rule, log)
		subjects, requests := 0, 0
		for client, n := range refused {
			if !slices.Contains(aside, client) {
				subjects++
				requests += n
			}
		}
		i := slices.IndexFunc(r.Rules, func(o Rule) bool { return o.Name == rule.Name })
		of := r.Rules[i]
		if float64(subjects) > p*float64(of.Subjects) || float64(requests) > p*float64(of.Requests) {
			t.Errorf("rule %s, %s: %d of %d subjects and %d of %d requests are refused", rule.Name, rule.Limit, subjects, of.Subjects, requests, of.Requests)
		}
		if seen := r.Replay.Rules[rule.Name]; seen.Subjects != subjects || seen.Refused != int64(requests) {
			t.Errorf("rule %s, %s: the replay says %+v, and it is %d subjects and %d requests", rule.Name, rule.Limit, seen, subjects, requests)
		}
		for _, f := range of.Forward {
			if within := float64(f.Above) <= 2*p*float64(f.Subjects); within != f.Within || within != (f.Why == "") {
				t.Errorf("rule %s: %+v", rule.Name, f)
			}
		}
	}
	var text, yaml bytes.Buffer
	if err := r.WriteYAML(&yaml); err != nil {
		t.Fatal(err)
	}
	got, err := policyfile.Decode("x.yaml", yaml.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, &yaml)
	}
	if len(got.Rules) != len(r.Document.Rules) {
		t.Errorf("%d rules became %d", len(r.Document.Rules), len(got.Rules))
	}
	if q, err := policy.Compile(got); err != nil || len(q.Warnings()) > 0 {
		t.Errorf("the policy: %v, %v", err, q.Warnings())
	}
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	for _, b := range text.Bytes() {
		if b < ' ' && b != '\n' {
			t.Fatalf("the text has the byte %d", b)
		}
	}
}

func (r *Result) shareOf() (float64, error) {
	p, err := ParseShare(r.Share)
	if err != nil {
		return 0, err
	}
	f, _ := p.Float64()
	return f, nil
}

func TestOwnPolicyKeepsPromise(t *testing.T) {
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 8))
		log := traffic(rng, 4_000, 1, false)
		r := run(t, config(t, write(t, log)))
		if all := r.Rules[0]; !all.Promised || all.Subjects != 4_000 || all.Confidence < 0.95 || r.Requests != int64(len(log)) {
			t.Errorf("seed %d: of %d requests: %+v", seed, r.Requests, all)
		}
		check(t, r, log, asides(r)...)
	}
}

func TestSeveralDaysAndAScanner(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	log := traffic(rng, 1_200, 3, true)
	c := config(t, write(t, log))
	c.Share = share(t, "1%")
	r := run(t, c)
	if !slices.Contains(asides(r), "192.0.2.66") || len(asides(r)) > 12 {
		t.Errorf("set aside: %q", asides(r))
	}
	if r.Days != 3 || len(r.Rules[0].Forward) != 2 {
		t.Errorf("%d days, %+v", r.Days, r.Rules[0].Forward)
	}
	if r.Rules[0].WithAside < r.Rules[0].Exact {
		t.Errorf("with those set aside the burst is %d, and without %d", r.Rules[0].WithAside, r.Rules[0].Exact)
	}
	check(t, r, log, asides(r)...)
}

func asides(r *Result) (clients []string) {
	for _, a := range r.Aside {
		clients = append(clients, a.Key[strings.IndexByte(a.Key, '/')+1:])
	}
	return clients
}

// TestAccessLog recommends from real traffic.
func TestAccessLog(t *testing.T) {
	log := realLog(t)
	r := run(t, config(t, write(t, log)))
	all := r.Rules[0]
	if all.Promised || all.Subjects < 1_000 || all.Subjects > 3_326 {
		t.Errorf("of %d subjects: %+v", all.Subjects, all)
	}
	if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "one minute of the hour (:05)") }) {
		t.Errorf("nothing is said about the clock: %q", r.Notes)
	}
	check(t, r, log, asides(r)...)
}

// TestTooFew: from a handful of clients no limit is made up.
func TestTooFew(t *testing.T) {
	log := traffic(rand.New(rand.NewPCG(1, 10)), 20, 1, false)
	r := run(t, config(t, write(t, log)))
	if len(r.Document.Rules) != 0 || r.Replay != nil || r.Rules[0].Limit != "" || r.Rules[0].Promised {
		t.Errorf("%+v", r.Rules)
	}
	var b bytes.Buffer
	if err := r.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := policyfile.Parse("x.yaml", b.Bytes()); err != nil {
		t.Errorf("%v in\n%s", err, &b)
	}
	if _, err := Run(t.Context(), config(t, write(t, nil))); err == nil {
		t.Error("an empty log has a recommendation")
	}
}

// TestSample: with little memory a random part of the subjects is kept, and it is said.
func TestSample(t *testing.T) {
	log := traffic(rand.New(rand.NewPCG(1, 11)), 6_000, 1, false)
	c := config(t, write(t, log))
	c.Share, c.Memory = share(t, "1%"), 2<<20
	r := run(t, c)
	if r.Sampled < 2 || r.Rules[0].Subjects >= 4_000 || r.Rules[0].Subjects < 300 {
		t.Fatalf("1 in %d, %d subjects", r.Sampled, r.Rules[0].Subjects)
	}
	expected := 6_000 / r.Sampled
	if n := r.Rules[0].Subjects; n < expected-250 || n > expected+250 { // five sigma of a fair half is 190
		t.Errorf("%d subjects of 6,000 are no fair 1 in %d", n, r.Sampled)
	}
	if !strings.Contains(strings.Join(r.Notes, " "), "one in ") {
		t.Errorf("nothing is said: %q", r.Notes)
	}
	if whole := run(t, config(t, c.Files...)); whole.Sampled != 0 || whole.Rules[0].Subjects != 6_000 {
		t.Errorf("with enough memory: 1 in %d, %d subjects", whole.Sampled, whole.Rules[0].Subjects)
	}
}

// realLog is that of SLUICE_TEST_ACCESS_LOG, or else what the other tests have of it.
func realLog(t testing.TB) (log []line) {
	t.Helper()
	file := os.Getenv("SLUICE_TEST_ACCESS_LOG")
	var data []byte
	var err error
	if file != "" {
		data, err = os.ReadFile(file)
	} else {
		data, err = gunzip("../../../e2e/testdata/access.log.gz")
	}
	if err != nil {
		t.Fatal(err)
	}
	return parseReal(t, data)
}

func gunzip(file string) ([]byte, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

var combined = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d+) `)

// parseReal reads lines of the combined format, or a time, a client, a method and a path with tabs between.
func parseReal(t testing.TB, data []byte) (log []line) {
	t.Helper()
	for text := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSuffix(text, "\n"), "\t")
		status := 200
		if len(fields) == 4 {
			fields[0] += " +0000"
		} else if m := combined.FindStringSubmatch(text); m != nil {
			fields = []string{m[2], m[1], m[3], m[4]}
			status, _ = strconv.Atoi(m[5])
		} else {
			t.Fatalf("what is %q?", text)
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", fields[0])
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, line{at.Unix(), fields[1], fields[2], fields[3], status})
	}
	slices.SortStableFunc(log, func(a, b line) int { return int(a.at - b.at) })
	return log
}

// TestShareOfAll: what the whole policy refuses comes first, with those set aside, and then a log of an hour is
// called one.
func TestShareOfAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 12))
	log := traffic(rng, 400, 1, true)
	for i := range log {
		log[i].at = log[0].at + (log[i].at-log[0].at)/30 // within an hour
	}
	c := config(t, write(t, log))
	c.Share = share(t, "1%")
	r := run(t, c)
	if !slices.Contains(asides(r), "192.0.2.66") {
		t.Fatalf("premise: set aside %q", asides(r))
	}
	refused := map[int]bool{}
	for _, rule := range r.Document.Rules {
		for _, i := range naiveLines(t, rule, log) {
			refused[i] = true
		}
	}
	all, aside := int64(len(refused)), int64(0)
	for i := range refused {
		if slices.Contains(asides(r), log[i].client) {
			aside++
		}
	}
	if p := r.Replay; p.AsideRefused != aside || p.Refused != all-aside || 2*all < r.Requests {
		t.Errorf("%+v, want %d refused, of them %d of those set aside", p, all, aside)
	}
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	total, later := strings.Index(b.String(), fmt.Sprintf("refuses %s (", humanize.Comma(all))), strings.Index(b.String(), "Set aside")
	if total < 0 || later < total {
		t.Errorf("the share of all requests does not come first:\n%s", &b)
	}
	if strings.Contains(b.String(), "Every rule keeps the promise") && strings.Contains(b.String(), "CANNOT PROMISE") {
		t.Errorf("the text contradicts itself:\n%s", &b)
	}
	if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "LESS THAN A DAY") {
		t.Errorf("an hour is taken for enough: %q", r.Notes)
	}
	if day := run(t, config(t, write(t, traffic(rng, 400, 2, false)))); slices.ContainsFunc(day.Notes, func(n string) bool { return strings.Contains(n, "DAY") }) {
		t.Errorf("two days are not taken for enough: %q", day.Notes)
	}
}
