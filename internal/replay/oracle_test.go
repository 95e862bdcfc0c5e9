package replay

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// accessLog returns the name of a real access log: of SLUICE_TEST_ACCESS_LOG, else one made of the
// requests that the tests of the gateway send.
func accessLog(t *testing.T) string {
	if name := os.Getenv("SLUICE_TEST_ACCESS_LOG"); name != "" {
		return name
	}
	f, err := os.Open("../../e2e/testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for lines := bufio.NewScanner(z); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		fmt.Fprintf(&b, "%s - - [%s +0000] \"%s %s HTTP/1.1\" 200 1 \"-\" \"-\"\n", fields[1], fields[0], fields[2], fields[3])
	}
	return write(t, b.String())
}

// hit is a request as the oracle reads it.
type hit struct {
	at     int64 // seconds
	client string
}

var oracleLine = regexp.MustCompile(`^(\S+) .*? \[([^\]]+)\] "`)

// hits reads a log with nothing of Sluice, in the order of its times.
func hits(t *testing.T, name string) (all []hit) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		m := oracleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("not a line of the log: %q", line)
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, hit{at.Unix(), m[1]})
	}
	slices.SortStableFunc(all, func(a, b hit) int { return int(a.at - b.at) })
	return all
}

// An oracle says whether a client may have one more, by when it had those before.
type oracle func(count, period int64) func(at int64) bool

// bucket drains count in a period, and holds places(count, period). Its level is in units of
// 1/period of a request, so that all numbers are whole.
func bucket(places func(count, period int64) int64) oracle {
	return func(count, period int64) func(int64) bool {
		level, last := int64(0), int64(0)
		return func(at int64) bool {
			level = max(0, level-(at-last)*count)
			last = at
			if level+period > places(count, period)*period {
				return false
			}
			level += period
			return true
		}
	}
}

func all(count, _ int64) int64 { return count }

// tenSeconds are the places of a queue by default: what drains in ten seconds, at least one.
func tenSeconds(count, period int64) int64 { return max(1, min(count, 10*count/period)) }

func fixedWindow(count, period int64) func(int64) bool {
	used := map[int64]int64{}
	return func(at int64) bool {
		if used[at/period] == count {
			return false
		}
		used[at/period]++
		return true
	}
}

func slidingCounter(count, period int64) func(int64) bool {
	used := map[int64]int64{}
	return func(at int64) bool {
		n := at / period
		left := period - at%period
		if used[n-1]*left+(used[n]+1)*period > count*period {
			return false
		}
		used[n]++
		return true
	}
}

func slidingLog(count, period int64) func(int64) bool {
	var taken []int64
	return func(at int64) bool {
		taken = slices.DeleteFunc(taken, func(t int64) bool { return t <= at-period })
		if int64(len(taken)) == count {
			return false
		}
		taken = append(taken, at)
		return true
	}
}

// The report counts what a count without Sluice's code counts, and refuses the same requests.
func TestCountsOfARealLog(t *testing.T) {
	name := accessLog(t)
	requests := hits(t, name)
	for algorithm, may := range map[string]oracle{
		"token_bucket": bucket(all), "gcra": bucket(all), "leaky_bucket": bucket(tenSeconds), "fixed_window": fixedWindow,
		"sliding_window_counter": slidingCounter, "sliding_window_log": slidingLog, "sliding_window_log_exact": slidingLog,
	} {
		for limit, of := range map[string][2]int64{"30/minute": {30, 60}, "100/hour": {100, 3600}, "50/day": {50, 86400}} {
			clients, refusedOf := map[string]func(int64) bool{}, map[string]int64{}
			want := make([]bool, len(requests))
			total := int64(0)
			for i, r := range requests {
				if clients[r.client] == nil {
					clients[r.client] = may(of[0], of[1])
				}
				if !clients[r.client](r.at) {
					want[i] = true
					refusedOf[r.client]++
					total++
				}
			}
			report, got := replayed(t, Config{Files: []string{name}, Document: decode(t, fmt.Sprintf("rules: [{name: per-address, key: [client_ip], limit: %s, algorithm: %s}]", limit, algorithm))})
			if i := firstDifference(got, want); i >= 0 {
				t.Errorf("%s %s: request %d of %s at %v differs", algorithm, limit, i, requests[i].client, time.Unix(requests[i].at, 0).UTC())
			}
			rule := report.Rules["per-address"]
			for what, n := range map[string][2]int64{
				"requests": {report.Requests, int64(len(requests))}, "refused": {report.Refused, total}, "unreadable": {report.Unreadable, 0},
				"subjects_refused": {report.SubjectsRefused, int64(len(refusedOf))}, "subjects": {report.Subjects, int64(len(clients))},
				"matched": {rule.Matched, int64(len(requests))}, "refused of the rule": {rule.Refused, total},
				"subjects refused of the rule": {rule.SubjectsRefused, int64(len(refusedOf))},
				"refused in the series":        {sum(report.Series.Refused), total}, "requests in the series": {sum(report.Series.Requests), int64(len(requests))},
				"hardness": {sum(rule.Hardness[:]), int64(len(refusedOf))},
			} {
				if n[0] != n[1] {
					t.Errorf("%s %s: %s is %d, want %d", algorithm, limit, what, n[0], n[1])
				}
			}
			for _, s := range report.Top {
				if s.Refused != refusedOf[s.Key] {
					t.Errorf("%s %s: %s was refused %d times, want %d", algorithm, limit, s.Key, s.Refused, refusedOf[s.Key])
				}
			}
			if len(report.Top) != min(topOfAll, len(refusedOf)) {
				t.Errorf("%s %s: %d top subjects of %d", algorithm, limit, len(report.Top), len(refusedOf))
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
