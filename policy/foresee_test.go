package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What a trace says of a request once it is charged is what the next decision says.
func TestTraceAfter(t *testing.T) {
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
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := engine(t, "rules: [{name: a, "+rule+"}, {name: b, limit: 1000/day}]")
				random := rand.New(rand.NewPCG(1, 2))
				for n := range 400 {
					time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
					r := get("/")
					r.Cost = 1 + random.Int64N(3)
					trace := e.Explain(t.Context(), r)
					after, got := trace.After(), e.Decide(t.Context(), r)
					if want := says(&got, nil); says(&after, &got) != want {
						t.Fatalf("request %d: foreseen\n%s\nwas\n%s\nbefore\n%s", n, says(&after, &got), want, says(&trace.Decision, nil))
					}
					if got.Allowed && len(trace.Rules[0].After) > 0 && trace.Rules[0].After[0] != after.Results[0] {
						t.Fatal("the rule says something else than the decision")
					}
				}
			})
		})
	}
}

// says puts a decision into words. Of a log nobody can say how long to wait but the log: there the
// wait is that of exact, if it may be.
func says(d, exact *Decision) string {
	text := ""
	for i, r := range d.Results {
		if algorithm := r.Plan.Limit.Algorithm.String(); exact != nil && strings.HasPrefix(algorithm, "sliding_window_log") {
			most := exact.Results[i].RetryAfter
			if r.Allowed && r.RetryAfter >= most && most > 0 || !r.Allowed && r.Cost > 1 && r.RetryAfter <= most {
				r.RetryAfter = most
			}
		}
		text += fmt.Sprintln(r.Rule, r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter, r.Delay, r.Locked)
	}
	return text + fmt.Sprintln(d.Allowed, d.Delay)
}
