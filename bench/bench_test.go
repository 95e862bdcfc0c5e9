package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		goal        float64
		least       bool
		mid, spread float64
		want        string
	}{
		{1.5, false, 1.5, 0, "met"},
		{1.5, false, 1.5004, 0, "met"}, // shown as 1.50
		{1.5, false, 1.4, 0.05, "met"},
		{1.5, false, 1.4, 0.2, "met within noise"},
		{1.5, false, 1.6, 0.2, "**missed** within noise"},
		{1.5, false, 3, 0.2, "**missed by 100 %**"},
		{4, true, 4, 0, "met"},
		{4, true, 4.1, 0.2, "met within noise"},
		{4, true, 3, 0.5, "**missed by 25 %**"},
		{0, false, 0, 0, "met"},
		{0, false, 0.0001, 0, "met"},
		{0, false, 1, 0, "**missed**"},
	} {
		if got := (target{goal: c.goal, least: c.least}).verdict(c.mid, c.spread); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestRatiosAreOfOneRound(t *testing.T) {
	rs := results{
		{contender: contender{name: "a", role: ours}, work: "w", samples: []sample{{"ns": 10}, nil, {"ns": 40}, {"ns": 9}}},
		{contender: contender{name: "b", role: rival}, work: "w", samples: []sample{{"ns": 20}, {"ns": 1}, {"ns": 80}, {"ns": 3}}},
		{contender: contender{name: "c", role: rival}, work: "w", samples: []sample{nil, nil, nil, nil}},
	}
	if got, want := overBest("w", "ns", "a")(rs), []float64{0.5, 0.5, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := over("w", "ns", "a", "nobody")(rs); got != nil {
		t.Errorf("%v over a missing contender", got)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		v           []float64
		mid, spread float64
	}{
		{nil, 0, 0}, {[]float64{3}, 3, 0}, {[]float64{3, 1}, 2, 1}, {[]float64{5, 1, 3}, 3, 2}, {[]float64{4, 3, 2, 1}, 2.5, 1},
	} {
		if mid, spread := middle(c.v); mid != c.mid || spread != c.spread {
			t.Errorf("%v: %v ± %v, want %v ± %v", c.v, mid, spread, c.mid, c.spread)
		}
	}
}

func TestSequencesNameEveryKey(t *testing.T) {
	for _, n := range []int{2, 1000, 100_000} {
		if s := uniform(n); different(s, n) < n*95/100 || len(s)&(len(s)-1) != 0 {
			t.Errorf("%d entries name %d of %d keys", len(s), different(s, n), n)
		}
	}
	if all := keysOf(3); all.at(2) != "customer:00000015838" || all.len() != 3 {
		t.Errorf("%q of %d", all.at(2), all.len())
	}
	if all := zipf(1000); different(all, 1000) < 500 {
		t.Errorf("%d keys", different(all, 1000))
	}
}

func TestSentBy(t *testing.T) {
	s, err := startRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	const odd = "\x00\r\n\"\\\xff é"
	got := sentBy(s.addr, func() {
		c := goRedis(s.addr)
		defer c.Close()
		must(c.Eval(t.Context(), "return redis.call('SET', KEYS[1], 1)", []string{odd}).Err())
	})
	var commands []string
	for _, c := range got {
		if c = append(c, ""); strings.EqualFold(c[0], "eval") || strings.EqualFold(c[0], "set") {
			commands = append(commands, c[0])
			if !reflect.DeepEqual(c[2:], command{"1", odd, ""}) {
				t.Errorf("%q", c)
			}
		}
	}
	if len(commands) != 1 {
		t.Errorf("%q were sent, want one command", commands)
	}
	if n := s.keys(); n != 1 {
		t.Errorf("%d keys", n)
	}
}

func TestNote(t *testing.T) {
	notes := "# Notes\n\n## one\n\nFirst.\n\n## two\nSecond.\n"
	for name, want := range map[string]string{"one": "First.", "two": "Second.", "three": "Not explained yet."} {
		if got := note(notes, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Every target is about a contender and a column that exist, and every note is about a target.
func TestTargetsAreMeasured(t *testing.T) {
	var rs results
	for _, w := range append(varyingWorks(setting{}), steadyWorks()...) {
		for _, c := range w.contenders {
			s := sample{}
			for i, column := range w.columns {
				s[column] = float64(i + 2)
			}
			rs = append(rs, result{contender: c, work: w.name, samples: []sample{s}})
		}
	}
	names := map[string]bool{}
	for _, f := range targets() {
		if v := f.measured(rs); len(v) != 1 || math.IsNaN(v[0]) {
			t.Errorf("%s: %v", f.name, v)
		}
		if names[f.name] {
			t.Errorf("%s occurs twice", f.name)
		}
		names[f.name] = true
	}
	notes, err := os.ReadFile("notes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(notes), "\n## ")[1:] {
		if name, _, _ := strings.Cut(section, "\n"); !names[name] {
			t.Errorf("notes.md has a section about %q, which is not a target", name)
		}
	}
}

func TestWatchdog(t *testing.T) {
	start := time.Now()
	cmd := []string{"sleep", "60"}
	if _, err := output(200*time.Millisecond, cmd...); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if _, err := output(time.Minute, "sh", "-c", "echo no good >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "no good") {
		t.Errorf("%v", err)
	}
	if out, err := output(time.Minute, "echo", "1"); err != nil || string(out) != "1\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// The hostile lines are the same in every run, and as many as requested.
func TestHostileLines(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(hostileLines(&first, 25_000), hostileLines(&second, 25_000)); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(first.Bytes(), []byte("\n")); n != 25_000 || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("%d lines, or they differ from run to run", n)
	}
	for _, part := range []string{`\"quoted\"`, "2001:db8:", `"\x16\x03`, `"-" 408 - "-"`, "20/Nov/2026:23:59:", strings.Repeat("a/", 50_000)} {
		if !bytes.Contains(first.Bytes(), []byte(part)) {
			t.Errorf("no line has %.20q", part)
		}
	}
}
