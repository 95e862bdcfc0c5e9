package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// Trace.After equals the next decision about the request. If the request is denied, every kind of peek has the same
// results as the decision.
func TestTraceAfter(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"limit: 7/minute burst 5",
		"limit: 100/second burst 13",
		"limit: 7/minute, algorithm: fixed_window",
		"limit: 7/minute, algorithm: sliding_window_counter",
		"limit: 7/minute, algorithm: sliding_window_log",
		"limit: 7/minute, algorithm: sliding_window_log_exact",
		"limit: 1100/minute, cost: 170, algorithm: sliding_window_log",
		"limit: 3/second burst 9, algorithm: leaky_bucket",
		"limit: 9/month, algorithm: fixed_window",
		"limits: [5/second, 7/minute]",
		"limit: 7/minute burst 5, penalty: 2m",
		"limit: 7/minute burst 5, shadow: true",
	} {
		virtually(t, rule, func(t *testing.T) {
			e := engine(t, "rules: [{name: a, "+rule+"}, {name: b, limit: 1000/day}]")
			random := rand.New(rand.NewPCG(1, 2))
			for n := range 400 {
				time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
				r, peek := get("/"), get("/")
				r.Cost = 1 + random.Int64N(3)
				peek.Cost, peek.Mode = r.Cost, Peek
				trace, peeks := e.Explain(t.Context(), r), e.everyPeek(t, peek)
				parts := ""
				if !strings.Contains(rule, "penalty") { // the other part would be an offence
					parts = e.refusedPart(t, r)
				}
				after, got := trace.After(), e.Decide(t.Context(), r)
				if decisionText(&after) != decisionText(&got) {
					t.Fatalf("request %d: predicted\n%s\ndecided\n%s\nbefore\n%s", n, decisionText(&after), decisionText(&got), decisionText(&trace.Decision))
				}
				if got.Allowed && len(trace.Rules[0].After) > 0 && trace.Rules[0].After[0] != after.Results[0] {
					t.Fatal("After of the rule differs from After of the trace")
				}
				for how, d := range peeks {
					switch {
					case d.Allowed != got.Allowed:
						t.Fatalf("request %d: %s returns %v, and the decision is %v", n, how, d.Allowed, got.Allowed)
					case !got.Allowed && decisionText(&d) != decisionText(&got):
						t.Fatalf("request %d: %s returns\n%s\nand the decision is\n%s", n, how, decisionText(&d), decisionText(&got))
					}
				}
				if parts != "" && !got.Allowed && parts != decisionText(&got) {
					t.Fatalf("request %d: as one of two parts:\n%s\nand the decision is\n%s", n, parts, decisionText(&got))
				}
			}
		})
	}
}

// everyPeek returns the decision of each kind of peek about a request.
func (e *Engine) everyPeek(t *testing.T, peek *Request) map[string]Decision {
	trace := e.Explain(t.Context(), peek)
	all := map[string]Decision{"Decide": e.Decide(t.Context(), peek), "Explain": trace.Decision, "Quota": e.Quota(t.Context(), peek)}
	for _, decide := range []struct {
		how string
		by  func(ds []Decision)
	}{
		{"DecideEach", func(ds []Decision) { e.DecideEach(t.Context(), []*Request{peek, peek}, ds) }},
		{"DecideTogether", func(ds []Decision) { e.DecideTogether(t.Context(), []*Request{peek, peek}, ds) }},
	} {
		ds := make([]Decision, 2)
		decide.by(ds)
		for i, d := range ds {
			all[fmt.Sprint(decide.how, " ", i)] = d
		}
	}
	return all
}

// refusedPart returns the decision about a request as the first of two parts, if the second part never fits.
func (e *Engine) refusedPart(t *testing.T, r *Request) string {
	never := *r
	never.Cost = 1_000_000
	ds := make([]Decision, 2)
	e.DecideTogether(t.Context(), []*Request{r, &never}, ds)
	return decisionText(&ds[0])
}

// decisionText returns a decision as text.
func decisionText(d *Decision) string {
	text := ""
	for _, r := range d.Results {
		text += fmt.Sprintln(r.Rule, r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter, r.Delay, r.Locked)
	}
	return text + fmt.Sprintln(d.Allowed, d.RetryAfter, d.Delay)
}

// FuzzQuota checks that each result of Quota is also a result of Explain.
func FuzzQuota(f *testing.F) {
	f.Add("/orders/7", "GET", "k", "pro", uint8(3))
	f.Add("", "POST", "", "", uint8(0))
	script := testkit.SectionOf(f, "testdata/scripts/blocks.txt", "quotas say what holds for a caller, and take nothing")
	rules, _, _ := strings.Cut(script.Text, "---")
	p := parse(f, rules)
	f.Fuzz(func(t *testing.T, path, method, key, plan string, before uint8) {
		e := NewEngine(memory.NewSize(1<<20), p)
		r := request(method, path, "192.0.2.1", "X-Api-Key: "+key, "X-Plan: "+plan)
		for range before % 16 {
			e.Decide(t.Context(), r)
		}
		d := e.Quota(t.Context(), r)
		x := e.Explain(t.Context(), r)
		if path != "" && (d.Exempt != x.Decision.Exempt || d.Blocked != x.Decision.Blocked) {
			t.Fatalf("%+v, explained as %+v", d, x.Decision)
		}
		for _, q := range d.Results {
			found := path == "" || x.Decision.Missing != "" // then Explain has fewer rules
			for _, is := range x.Decision.Results {
				found = found || is.Rule == q.Rule && is.Name == q.Name && is.From == q.From && is.Plan == q.Plan && is.Remaining == q.Remaining
			}
			if !found {
				t.Fatalf("%s", fmt.Sprintf("%+v is not in %+v", q, x.Decision))
			}
		}
	})
}
