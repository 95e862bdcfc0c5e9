package recommend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const scanner = "192.0.2.66"

// traffic returns a log of some clients on some days, with heavy-tailed numbers of requests, and optionally a scanner.
func traffic(seed uint64, clients, days int, scanned bool) (log []logtest.Request) {
	rng := rand.New(rand.NewPCG(seed, 8))
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for day := range days {
		for c := range clients {
			if days > 1 && rng.IntN(3) == 0 {
				continue
			}
			at := begin.AddDate(0, 0, day).Add(time.Duration(rng.IntN(80_000)) * time.Second)
			client := fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255)
			for n := min(distributions[rng.IntN(len(distributions))].draw(rng), 400); n > 0; n-- {
				path := []string{"/", "/search?q=x", fmt.Sprintf("/api/users/%d", rng.IntN(1e6)), fmt.Sprintf("/blog/%d/x", rng.IntN(9)), "/x.css"}[rng.IntN(5)]
				log = append(log, logtest.Request{At: at, Client: client, Method: "GET", Target: path})
				at = at.Add(time.Duration(rng.ExpFloat64()*[]float64{0.3, 5}[c%2]) * time.Second)
			}
		}
	}
	for i := 0; scanned && i < 9_000; i++ {
		at := begin.Add(time.Hour + time.Duration(i/5)*time.Second)
		log = append(log, logtest.Request{At: at, Client: scanner, Method: "GET", Target: fmt.Sprintf("/wp-%d.php", i), Status: 404})
	}
	return logtest.ByTime(log)
}

type store struct{ *memory.Store }

func (s store) Evicted() int64 { return s.Losses().Evicted }

func newStore(maxBytes int64) replay.Store { return store{memory.NewSize(maxBytes)} }

func config(t testing.TB, share string, log []logtest.Request) Config {
	t.Helper()
	format, err := accesslog.Lookup("combined", accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Files: []string{logtest.Write(t, logtest.Combined(log))}, Feed: feed.Options{Format: format}, Share: parseShare(t, share),
		Confidence: parseShare(t, "95%"), Window: time.Minute, Key: "client_ip", Compile: policy.Compile, NewStore: newStore,
	}
}

func run(t testing.TB, c Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func asides(r *Result) (clients []string) {
	for _, a := range r.Aside {
		clients = append(clients, a.Key[strings.IndexByte(a.Key, '/')+1:])
	}
	return clients
}

// refusedBy returns the indexes of the requests that a rule denies, by the definitions of its algorithm.
func refusedBy(t testing.TB, rule policy.Rule, log []logtest.Request) (refused []int) {
	t.Helper()
	limit, err := sluice.ParseLimit(rule.Limit)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, m := range rule.Match {
		mux.HandleFunc(m, func(http.ResponseWriter, *http.Request) {})
	}
	oracles := map[string]logtest.Oracle{}
	for i := range log {
		l := &log[i]
		if _, pattern := mux.Handler(httptest.NewRequest(l.Method, l.Target, nil)); len(rule.Match) > 0 && pattern == "" {
			continue
		}
		if oracles[l.Client] == nil {
			period := int64(limit.Period / time.Second)
			switch rule.Algorithm {
			case "token_bucket":
				oracles[l.Client] = logtest.Bucket(limit.Count, period, limit.Burst)
			case "sliding_window_log": // a unit counts until one period after the end of its tick, which is at most a second
				oracles[l.Client] = logtest.SlidingLog(limit.Count, period, 1)
			default:
				t.Fatalf("rule %s has the algorithm %q", rule.Name, rule.Algorithm)
			}
		}
		if !oracles[l.Client](l.At.Unix()) {
			refused = append(refused, i)
		}
	}
	return refused
}

// check compares a result with its promise, by counts without Sluice's code, and reads its output back.
func check(t *testing.T, r *Result, log []logtest.Request) {
	t.Helper()
	if len(r.Document.Rules) == 0 || r.Replay == nil || !r.Replay.Kept {
		t.Fatalf("%d rules, %+v", len(r.Document.Rules), r.Replay)
	}
	aside := asides(r)
	exact, err := ParseShare(r.Share)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := exact.Float64()
	refused := map[int]bool{} // denied by any rule
	for _, rule := range r.Document.Rules {
		if !rule.Shadow {
			t.Errorf("rule %s is not in shadow mode", rule.Name)
		}
		clients, requests := map[string]bool{}, 0
		for _, i := range refusedBy(t, rule, log) {
			refused[i] = true
			if client := log[i].Client; !slices.Contains(aside, client) {
				clients[client] = true
				requests++
			}
		}
		of := r.Rules[slices.IndexFunc(r.Rules, func(o Rule) bool { return o.Name == rule.Name })]
		if float64(len(clients)) > p*float64(of.Subjects) || float64(requests) > p*float64(of.Requests) {
			t.Errorf("rule %s, %s: %d of %d subjects and %d of %d requests are denied", rule.Name, rule.Limit, len(clients), of.Subjects, requests, of.Requests)
		}
		if seen := r.Replay.Rules[rule.Name]; seen.Subjects != len(clients) || seen.Refused != int64(requests) {
			t.Errorf("rule %s, %s: the replay has %+v, want %d subjects and %d requests", rule.Name, rule.Limit, seen, len(clients), requests)
		}
		for _, f := range of.Forward {
			if within := float64(f.Above) <= 2*p*float64(f.Subjects); within != f.Within || within != (f.Why == "") {
				t.Errorf("rule %s: %+v", rule.Name, f)
			}
		}
	}
	ofAside := int64(0)
	for i := range refused {
		if slices.Contains(aside, log[i].Client) {
			ofAside++
		}
	}
	all := int64(len(refused))
	if got := r.Replay; got.AsideRefused != ofAside || got.Refused != all-ofAside {
		t.Errorf("%+v, want %d denials, %d of them of subjects set aside", got, all, ofAside)
	}
	checkText(t, r, all)
	var yaml bytes.Buffer
	if err := r.WriteYAML(&yaml); err != nil {
		t.Fatal(err)
	}
	got, err := policyfile.Decode("x.yaml", yaml.Bytes())
	if err != nil || len(got.Rules) != len(r.Document.Rules) {
		t.Fatalf("%d rules became %d: %v in\n%s", len(r.Document.Rules), len(got.Rules), err, &yaml)
	}
	if q, err := policy.Compile(got); err != nil || len(q.Warnings()) > 0 {
		t.Errorf("the policy: %v, %v", err, q.Warnings())
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
}

// checkText checks that the text is printable, and that it begins with the fraction of all requests if it is large.
func checkText(t *testing.T, r *Result, refused int64) {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if i := strings.IndexFunc(text, func(c rune) bool { return c < ' ' && c != '\n' }); i >= 0 {
		t.Fatalf("the text has the byte %d", text[i])
	}
	if total, later := strings.Index(text, fmt.Sprintf("denies %s (", humanize.Comma(refused))), strings.Index(text, "Set aside"); 2*refused >= r.Requests && (total < 0 || later < total) {
		t.Errorf("the fraction of all requests does not come first:\n%s", text)
	}
	if strings.Contains(text, "Every rule keeps the promise") && strings.Contains(text, "CANNOT PROMISE") {
		t.Errorf("the text contradicts itself:\n%s", text)
	}
}

func noted(r *Result, text string) bool {
	return strings.Contains(strings.Join(r.Notes, "\n"), text)
}

// The recommended rules keep their promise on the log, for various logs.
func TestRecommendations(t *testing.T) {
	withinAnHour := traffic(12, 400, 1, true)
	for i := range withinAnHour {
		begin := withinAnHour[0].At
		withinAnHour[i].At = begin.Add(withinAnHour[i].At.Sub(begin) / 30).Truncate(time.Second)
	}
	for name, c := range map[string]struct {
		share  string
		log    []logtest.Request
		wanted func(t *testing.T, r *Result, all Rule) bool
	}{
		"a promise": {"1%", traffic(0, 500, 1, false), func(t *testing.T, r *Result, all Rule) bool {
			return all.Promised && all.Subjects == 500 && all.Confidence >= 0.95
		}},
		"refusals": {"20%", traffic(2, 400, 1, false), func(t *testing.T, r *Result, all Rule) bool {
			return r.Replay.Refused > 0
		}},
		"several days and a scanner": {"1%", traffic(1, 450, 3, true), func(t *testing.T, r *Result, all Rule) bool {
			return r.Days == 3 && len(all.Forward) == 2 && slices.Contains(asides(r), scanner) && len(r.Aside) <= 4 && all.WithAside >= all.Exact && !noted(r, "DAY")
		}},
		"an hour": {"1%", withinAnHour, func(t *testing.T, r *Result, all Rule) bool {
			return slices.Contains(asides(r), scanner) && 2*(r.Replay.Refused+r.Replay.AsideRefused) >= r.Requests && strings.Contains(r.Notes[0], "LESS THAN A DAY")
		}},
		"real": {"0.1%", logtest.Real(t), func(t *testing.T, r *Result, all Rule) bool {
			return !all.Promised && all.Subjects >= 1_000 && all.Subjects <= 3_326 && noted(r, "one minute of the hour (:05)")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, config(t, c.share, c.log))
			check(t, r, c.log)
			if all := r.Rules[0]; r.Requests != int64(len(c.log)) || !c.wanted(t, r, all) {
				t.Errorf("%d of %d requests, %d days, set aside %q: %+v\n%q", r.Requests, len(c.log), r.Days, asides(r), all, r.Notes)
			}
		})
	}
}

// With only a few clients, no limit is recommended.
func TestTooFew(t *testing.T) {
	r := run(t, config(t, "0.1%", traffic(10, 20, 1, false)))
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
	if _, err := Run(t.Context(), config(t, "0.1%", nil)); err == nil {
		t.Error("an empty log has a recommendation")
	}
}

// With little memory, a random sample of the subjects is kept, and the result reports it.
func TestSample(t *testing.T) {
	var log []logtest.Request
	for i := range 18_000 {
		client := fmt.Sprintf("10.0.%d.%d", i/3>>8, i/3&255)
		log = append(log, logtest.Request{At: time.Unix(1_795_132_800+int64(i/3), 0), Client: client, Method: "GET", Target: "/"})
	}
	c := config(t, "1%", log)
	c.Memory = 2 << 20
	r := run(t, c)
	if r.Sampled < 2 || !noted(r, "one in ") {
		t.Fatalf("1 in %d, %q", r.Sampled, r.Notes)
	}
	expected := 6_000 / r.Sampled
	if n := r.Rules[0].Subjects; n < expected-250 || n > expected+250 { // five standard deviations of a fair half are 190
		t.Errorf("%d subjects of 6,000 are not a fair sample of 1 in %d", n, r.Sampled)
	}
	c.Memory = 0
	if whole := run(t, c); whole.Sampled != 0 || whole.Rules[0].Subjects != 6_000 {
		t.Errorf("with enough memory: 1 in %d, %d subjects", whole.Sampled, whole.Rules[0].Subjects)
	}
}
