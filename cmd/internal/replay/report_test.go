package replay

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// every returns so many requests of a client, one in each step.
func every(client, target string, n int, step time.Duration) (all []logtest.Request) {
	for i := range n {
		all = append(all, logtest.Request{At: noon.Add(time.Duration(i) * step), Client: client, Method: "GET", Target: target})
	}
	return all
}

func TestHardnessAndPatterns(t *testing.T) {
	t.Parallel()
	log := slices.Concat(
		every("192.0.2.1", "/a", 6, 0),                  // 5 pass: refused once
		every("192.0.2.2", "/b", 40, 0),                 // refused 35 times at once
		every("192.0.2.3", "/c", 4000, time.Second),     // for the rest of the hour
		every("192.0.2.4", "/d?x", 200, 30*time.Second), // every 30 s, which is too often
		every("192.0.2.5", "/e", 5, time.Second),        // never refused
	)
	report := reportOf(t, logtest.ByTime(log), `
rules:
  - {name: r, key: [client_ip], limit: 5/hour, algorithm: fixed_window}
  - {name: twin, key: [client_ip], limit: 5/hour, algorithm: fixed_window}
  - {name: never, match: /nothing, limit: 1/hour}`)
	rule := report.Rules["r"]
	if want := [6]int64{1, 1, 0, 2, 0, 0}; rule.Hardness != want {
		t.Errorf("hardness %v, want %v", rule.Hardness, want)
	}
	got := map[string]Subject{}
	for _, s := range rule.Top {
		got[s.Key] = s
	}
	for key, want := range map[string]Subject{
		"192.0.2.1": {Requests: 6, Refused: 1, Path: "/a", Pattern: "a burst of 6 within 1 s, then silence"},
		"192.0.2.2": {Requests: 40, Refused: 35, Path: "/b", Pattern: "a burst of 40 within 1 s, then silence"},
		"192.0.2.3": {Requests: 4000, Refused: 4000 - 10, Path: "/c", Pattern: "4,000 without a pause for 67 min, about 60 a minute"},
		"192.0.2.4": {Requests: 200, Refused: 200 - 10, Path: "/d", Pattern: "one by one, about every 30 s for 100 min"},
	} {
		s := got[key]
		if s.Requests != want.Requests || s.Refused != want.Refused || s.Path != want.Path || want.Pattern != "" && s.Pattern != want.Pattern {
			t.Errorf("%s: got %+v, want %+v", key, s, want)
		}
	}
	if report.Top[0].Key != "192.0.2.3" || report.Top[0].Rule != "r" {
		t.Errorf("the top is %+v", report.Top[0])
	}
	if !slices.Equal(report.NeverHit, []string{"never"}) || !slices.Equal(report.Shadowed, []Shadowed{{"twin", "r"}}) {
		t.Errorf("never hit %v, always beside %v", report.NeverHit, report.Shadowed)
	}
	if rule.Alone != 0 {
		t.Errorf("alone %d of %d", rule.Alone, rule.Refused)
	}
}

// Steps become longer as the log goes on, and no count is lost.
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
		for i := range 1000 {
			at += int64(r.IntN(1<<r.IntN(20))) * 1e6
			part := r.IntN(3)
			if seed%2 == 0 { // parts of the log, of different lengths
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
		if whole.axis != parts[0].axis && whole.axis.level > parts[0].axis.level || len(whole.all) > maxSteps {
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

// Beyond the room, subjects are estimated.
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
	for what, n := range map[string][2]int64{
		"seen": {s.beyond.seen[0].count(), 49_000}, "refused": {s.beyond.refused[0].count(), 24_500},
		"values": {s.beyond.values.count(), 49_000}, "refused values": {s.beyond.refusedValues.count(), 24_500},
	} {
		if n[0] < n[1]*85/100 || n[0] > n[1]*115/100 {
			t.Errorf("%s: estimated %d, want about %d", what, n[0], n[1])
		}
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	log := logtest.ByTime(slices.Concat(every("192.0.2.1", "/", 9, 3*time.Hour), every("192.0.2.1", "\\x16", 1, 0), every("192.0.2.2", "/", 1, 0)))
	log[len(log)-1].Status = 429
	report := reportOf(t, log, "rules: [{name: r, key: [client_ip], limit: 1/second, algorithm: sliding_window_log}]")
	notes := strings.Join(report.Notes, "\n")
	for _, want := range []string{
		"All requests are in minute 0 of their hour", "1 of 11 requests (9.1 %) were answered with 429 or 503",
		"1 of 11 requests (9.1 %) could not be read by the server", "judged as a sliding_window_log_exact",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if report.Log.Limited != 1 {
		t.Errorf("%d limited", report.Log.Limited)
	}
	skipped, _ := replayed(t, Config{Document: decode(t, "rules: []"), Files: []string{logtest.Write(t, `{"msg": "hello"}`)}, Feed: feed.Options{Format: format(t, "json", accesslog.Options{})}})
	if skipped.Log.Skipped != 1 || len(skipped.Notes) != 1 || !strings.Contains(skipped.Notes[0], "No line of the logs tells of a request") {
		t.Errorf("%+v", skipped)
	}
	if empty := reportOf(t, nil, "rules: []"); empty.Requests != 0 || !slices.Equal(empty.Notes, []string{"The logs are empty."}) {
		t.Errorf("%+v", empty)
	}
}

// A client that goes away after a refusal is down until the time at which it may come back.
func TestDownEnds(t *testing.T) {
	t.Parallel()
	later := func(after time.Duration, of []logtest.Request) []logtest.Request {
		for i := range of {
			of[i].At = of[i].At.Add(after)
		}
		return of
	}
	log := slices.Concat(
		every("192.0.2.1", "/", 8, 0),                     // 5 pass, and 3 have to wait for a second
		every("192.0.2.2", "/", 2, time.Hour),             // until its block ends
		later(9*time.Hour, every("192.0.2.1", "/", 1, 0)), // back
		later(20*time.Hour, every("192.0.2.2", "/", 1, 0)),
	)
	report := reportOf(t, logtest.ByTime(log), `
rules: [{name: r, key: [client_ip], limit: 1/second burst 5}]
overrides: [{rule: r, key: {client_ip: 192.0.2.2}, block: true, until: "`+noon.Add(2*time.Hour).Format(time.RFC3339)+`"}]`)
	down := map[string]time.Duration{}
	for _, s := range report.Top {
		down[s.Key] = s.Down
	}
	if down["192.0.2.1"] != time.Second || down["192.0.2.2"] < time.Hour {
		t.Errorf("down for %v", down)
	}
}
