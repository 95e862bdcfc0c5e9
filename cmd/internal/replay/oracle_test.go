package replay

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/internal/plantest"
)

// The report has the same counts and denials as a count without Sluice's code.
func TestCountsOfARealLog(t *testing.T) {
	t.Parallel()
	requests := logtest.Real(t)
	name := logtest.Write(t, logtest.Combined(requests))
	bucket := func(count, period int64) logtest.Oracle { return logtest.Bucket(count, period, count) }
	exactly := func(count, period int64) logtest.Oracle { return logtest.SlidingLog(count, period, 0) }
	for algorithm, oracle := range map[string]func(count, period int64) logtest.Oracle{
		"token_bucket": bucket, "gcra": bucket, "fixed_window": fixedWindow, "sliding_window_counter": slidingCounter,
		"sliding_window_log": exactly, "sliding_window_log_exact": exactly,
		// The queue has room for the requests that drain in ten seconds, at least one.
		"leaky_bucket": func(count, period int64) logtest.Oracle {
			return logtest.Bucket(count, period, max(1, min(count, 10*count/period)))
		},
	} {
		for limit, of := range map[string][2]int64{"30/minute": {30, 60}, "100/hour": {100, 3600}, "50/day": {50, 86400}} {
			clients, refusedOf := map[string]logtest.Oracle{}, map[string]int64{}
			want := make([]bool, len(requests))
			total := int64(0)
			for i, r := range requests {
				if clients[r.Client] == nil {
					clients[r.Client] = oracle(of[0], of[1])
				}
				if !clients[r.Client](r.At.Unix()) {
					want[i] = true
					refusedOf[r.Client]++
					total++
				}
			}
			report, got := replayed(t, Config{Files: []string{name}, Document: decode(t, fmt.Sprintf("rules: [{name: per-address, key: [client_ip], limit: %s, algorithm: %s}]", limit, algorithm))})
			if i := firstDifference(got, want); i >= 0 {
				t.Errorf("%s %s: request %d, %+v, differs", algorithm, limit, i, requests[i])
			}
			rule := report.Rules["per-address"]
			for what, n := range map[string][2]int64{
				"requests": {report.Requests, int64(len(requests))}, "refused": {report.Refused, total}, "unreadable": {report.Unreadable, 0},
				"subjects_refused": {report.SubjectsRefused, int64(len(refusedOf))}, "subjects": {report.Subjects, int64(len(clients))},
				"matched": {rule.Matched, int64(len(requests))}, "refused of the rule": {rule.Refused, total},
				"subjects refused of the rule": {rule.SubjectsRefused, int64(len(refusedOf))},
				"refused in the series":        {sum(report.Series.Refused), total}, "requests in the series": {sum(report.Series.Requests), int64(len(requests))},
				"hardness": {sum(rule.Hardness[:]), int64(len(refusedOf))}, "top subjects": {int64(len(report.Top)), int64(min(topOfAll, len(refusedOf)))},
			} {
				if n[0] != n[1] {
					t.Errorf("%s %s: %s is %d, want %d", algorithm, limit, what, n[0], n[1])
				}
			}
			for _, s := range report.Top {
				if s.Refused != refusedOf[s.Key] {
					t.Errorf("%s %s: %s was denied %d times, want %d", algorithm, limit, s.Key, s.Refused, refusedOf[s.Key])
				}
			}
		}
	}
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// N instances that count separately allow N times the limit.
func TestAlone(t *testing.T) {
	t.Parallel()
	plan := plantest.Plan(t, "100/day as fixed_window")
	for _, nodes := range []int{1, 2, 5} {
		a, passed := newAlone(nodes, 8<<20, newStore), 0
		for i := range int64(2000) {
			var r [1]sluice.Receipt
			if err := a.TakeAt(t.Context(), i*1_000_000, []sluice.Charge{{Key: "k", Plan: plan, Cost: 1}}, r[:]); err != nil {
				t.Fatal(err)
			}
			if r[0].Fits {
				passed++
			}
		}
		if passed != 100*nodes {
			t.Errorf("%d instances allow %d requests, want %d", nodes, passed, 100*nodes)
		}
	}
}

// fixedWindow allows count in each window.
func fixedWindow(count, period int64) logtest.Oracle {
	used := map[int64]int64{}
	return func(at int64) bool {
		if used[at/period] == count {
			return false
		}
		used[at/period]++
		return true
	}
}

// slidingCounter allows count in a sliding window, which it estimates from the counts of the last two fixed windows.
func slidingCounter(count, period int64) logtest.Oracle {
	used := map[int64]int64{}
	return func(at int64) bool {
		n := at / period
		if used[n-1]*(period-at%period)+(used[n]+1)*period > count*period {
			return false
		}
		used[n]++
		return true
	}
}
