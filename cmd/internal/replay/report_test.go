package replay

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/internal/testkit"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// every returns n requests of a client, one in each step.
func every(client, target string, n int, step time.Duration) (all []logtest.Request) {
	for i := range n {
		all = append(all, logtest.Request{At: noon.Add(time.Duration(i) * step), Client: client, Method: "GET", Target: target})
	}
	return all
}

// The reports of small logs have the values that testdata/reports.txt lists.
func TestReports(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/reports.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			log, rules, _ := strings.Cut(c.Setup, "---\n")
			var all []logtest.Request
			for line := range strings.Lines(log) {
				all = append(all, loggedOf(t, line)...)
			}
			var report any
			if err := json.Unmarshal([]byte(encoded(t, reportOf(t, logtest.ByTime(all), rules))), &report); err != nil {
				t.Fatal(err)
			}
			c.Play(t, func(step string) string { return partOf(report, step) })
		})
	}
}

// loggedOf parses "CLIENT TARGET N STEP [BEGIN [STATUS]]". It returns N requests, each STEP after the previous one, the
// first at BEGIN after noon.
func loggedOf(t *testing.T, line string) []logtest.Request {
	t.Helper()
	var client, target, step, begin string
	var n, status int
	if _, err := fmt.Sscan(line+" 0s 200", &client, &target, &n, &step, &begin, &status); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	of := every(client, target, n, duration(t, step))
	for i := range of {
		of[i].At, of[i].Status = of[i].At.Add(duration(t, begin)), status
	}
	return of
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// partOf returns values in JSON. The step "rules.r" means the value at this path, and "top.0 key path" two fields of
// the value at "top.0".
func partOf(of any, step string) string {
	path, fields, _ := strings.Cut(step, " ")
	paths := []string{path}
	if fields != "" {
		paths = strings.Split(path+"."+strings.ReplaceAll(fields, " ", " "+path+"."), " ")
	}
	var texts []string
	for _, path := range paths {
		at := of
		for name := range strings.SplitSeq(path, ".") {
			switch v := at.(type) {
			case map[string]any:
				at = v[name]
			case []any:
				n, _ := strconv.Atoi(name)
				at = v[n]
			}
		}
		text, _ := json.Marshal(at)
		texts = append(texts, string(text))
	}
	return strings.Join(texts, " ")
}

// The steps of a series become longer as the log goes on, and no count is lost.
func TestSeries(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var whole tally
		parts := make([]tally, 3)
		whole.rules = make([]ruleTally, 1)
		for i := range parts {
			parts[i].rules = make([]ruleTally, 1)
		}
		counts := map[int64]int64{}
		at := int64(r.IntN(2_000_000_000)) * 1e6
		for i := range parts {
			parts[i].step(at)
		}
		whole.step(at)
		for i := range 1000 {
			at += int64(r.IntN(1<<r.IntN(20))) * 1e6
			part := r.IntN(3)
			if seed%2 == 0 { // consecutive sections of the log, of different lengths
				part = min(2, i/50)
			}
			for _, to := range []*tally{&whole, &parts[part]} {
				step := to.step(at)
				to.all = add(to.all, step, 1)
				to.rules[0].series = add(to.rules[0].series, step, 1)
			}
			counts[at]++
		}
		parts[0].merge(&parts[1])
		parts[0].merge(&parts[2])
		if whole.axis.level != parts[0].axis.level || whole.axis.steps != parts[0].axis.steps || len(whole.all) > maxSteps {
			t.Fatalf("seed %d: %+v and %+v", seed, whole.axis, parts[0].axis)
		}
		for name, of := range map[string]*tally{"whole": &whole, "merged": &parts[0]} {
			want := make([]int64, of.axis.steps)
			for at, n := range counts {
				want[at/of.axis.micros()-of.axis.begin] += n
			}
			if !slices.Equal(filled(of.all, of.axis.steps), want) || !slices.Equal(filled(of.rules[0].series, of.axis.steps), want) {
				t.Fatalf("seed %d: %s: %v, want %v", seed, name, of.all, want)
			}
		}
	}
}

// Subjects beyond the maximum are estimated.
func TestManySubjects(t *testing.T) {
	t.Parallel()
	s := newSubjects(maphash.MakeSeed(), 1000, 1)
	for range 2 {
		for i := range 50_000 {
			was := s.request(0, 0, fmt.Sprintf("r/%d", i), s.textHash(fmt.Sprint(i)), int64(i+1)*1e6)
			if i%2 == 0 {
				s.refused(was, int64(i+1)*1e6, 0, true, "", "/")
			}
		}
	}
	if s.ofRule[0] != 1000 || len(s.values) != 1000 || len(s.records) != 500 {
		t.Errorf("%d subjects, %d values, %d records", s.ofRule[0], len(s.values), len(s.records))
	}
	for what, n := range map[string][2]uint64{
		"seen": {s.beyond.seen[0].Estimate(), 49_000}, "refused": {s.beyond.refused[0].Estimate(), 24_500},
		"values": {s.beyond.values.Estimate(), 49_000}, "refused values": {s.beyond.refusedValues.Estimate(), 24_500},
	} {
		if n[0] < n[1]*96/100 || n[0] > n[1]*104/100 {
			t.Errorf("%s: estimated %d, want about %d", what, n[0], n[1])
		}
	}
}

// The report of a log without requests has a note.
func TestNotes(t *testing.T) {
	t.Parallel()
	skipped, _ := replayed(t, Config{Document: decode(t, "rules: []"), Files: []string{logtest.Write(t, `{"msg": "hello"}`)}, Feed: feed.Options{Format: format(t, "json", accesslog.Options{})}})
	if skipped.Log.Skipped != 1 || len(skipped.Notes) != 1 || !strings.Contains(skipped.Notes[0], "No line of the logs is a request") {
		t.Errorf("%+v", skipped)
	}
}
