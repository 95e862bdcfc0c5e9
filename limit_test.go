package sluice_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// texts returns the lines of a file that have the form "text -> meaning". It skips comments and empty lines.
func texts(t *testing.T, file string) (all [][2]string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if line == "\n" || strings.HasPrefix(line, "#") {
			continue
		}
		text, meaning, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " -> ")
		if !ok {
			t.Fatalf("%s: a line has no %q: %q", file, " -> ", line)
		}
		if quoted, err := strconv.Unquote(text); err == nil {
			text = quoted
		}
		all = append(all, [2]string{text, meaning})
	}
	if len(all) < 10 {
		t.Fatalf("%s has only %d lines", file, len(all))
	}
	return all
}

func TestParseLimit(t *testing.T) {
	for _, line := range texts(t, "testdata/limits.txt") {
		text, want := line[0], line[1]
		l, err := sluice.ParseLimit(text)
		got := fmt.Sprintf("%d in %v", l.Count, l.Period)
		if l.Burst > 0 {
			got += fmt.Sprintf(", burst %d", l.Burst)
		}
		if l.MonthDay > 0 {
			got += fmt.Sprintf(", from day %d", l.MonthDay)
		}
		problem, wrong := strings.CutPrefix(want, "! ")
		switch {
		case !wrong && (err != nil || got != want || (l.Algorithm == sluice.FixedWindow) != (l.MonthDay > 0)):
			t.Errorf("%q: %s, %+v, %v, want %s", text, got, l, err, want)
		case wrong && (err == nil || l != (sluice.Limit{}) || !strings.Contains(err.Error(), problem) || !strings.HasPrefix(err.Error(), "limit \"")):
			t.Errorf("%q: %+v, %v, want %s", text, l, err, problem)
		case wrong && !strings.HasSuffix(err.Error(), `write it as in "100/minute burst 20"`) && !strings.Contains(text, "month"):
			t.Errorf("%q: %v does not show an example", text, err)
		}
	}
	if _, err := sluice.ParseLimit(strings.Repeat("9", 1000) + "/s"); err == nil || len(err.Error()) > 400 {
		t.Errorf("a count of 1000 digits: %v", err)
	}
	if _, err := sluice.ParsePeriod("month"); err == nil || !strings.Contains(err.Error(), "written 30d") {
		t.Errorf("a month as a length: %v", err)
	}
}

func TestLimitString(t *testing.T) {
	for want, l := range map[string]sluice.Limit{
		"100/minute":          {Count: 100, Period: time.Minute},
		"100/minute burst 20": {Count: 100, Period: time.Minute, Burst: 20},
		"1/7d":                {Count: 1, Period: 7 * 24 * time.Hour},
		"5/1m30s":             {Count: 5, Period: 90 * time.Second, Algorithm: sluice.GCRA},
		"0/0s":                {},
		"10/month":            {Count: 10, MonthDay: 1},
		"10/month from 15":    {Count: 10, MonthDay: 15},
	} {
		if got := l.String(); got != want {
			t.Errorf("%+v is written as %q, want %q", l, got, want)
		}
	}
}

// FuzzParseLimit checks that String of a parsed limit parses to the same limit, and that every parsed limit has a
// correct plan or an error.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{
		"100/minute burst 20", "5/90s", "1/7d12h", "1/106751d23h47m16.854775s", "010/1us", "3/1.5h burst 1", "1/1d+1h", "1/.5s",
		"9223372036854775807/s burst 9223372036854775807", "1/1000000000us", "1/0d5s", "7/1.0000001ms", "-1/s", "1/d burst 0x1",
		"10000/month from 15", "1/month from 031", "1/month from 1 ", "1/month from 32", "1/month burst 1",
	} {
		f.Add(s, byte(len(s)))
	}
	f.Fuzz(func(t *testing.T, s string, algorithm byte) {
		l, err := sluice.ParseLimit(s)
		if err != nil {
			return
		}
		if l.Count < 1 || l.Period < time.Microsecond || l.Period%time.Microsecond != 0 || l.Burst < 0 || l.MonthDay < 0 || l.MonthDay > 31 {
			t.Fatalf("%q was parsed as %+v", s, l)
		}
		again, err := sluice.ParseLimit(l.String())
		if err != nil || again != l {
			t.Fatalf("%q was parsed as %+v, and its String %q as %+v, %v", s, l, l, again, err)
		}
		checkPlan(t, l)
		l.Algorithm = sluice.Algorithm(algorithm % 8)
		checkPlan(t, l)
	})
}

// Parsing and String use the same names for algorithms and consistencies. Origins have names, too, and the last two are
// degraded.
func TestNames(t *testing.T) {
	names := "token_bucket leaky_bucket gcra fixed_window sliding_window_counter sliding_window_log sliding_window_log_exact"
	for i, name := range strings.Fields(names) {
		if a, err := sluice.ParseAlgorithm(name); err != nil || a != sluice.Algorithms()[i] || a.String() != name || len(sluice.Algorithms()) != 7 {
			t.Errorf("%q is algorithm %v, %v", name, a, err)
		}
	}
	for _, name := range []string{"", "GCRA", "token bucket", "tokenbucket"} {
		if _, err := sluice.ParseAlgorithm(name); err == nil || !strings.Contains(err.Error(), "token_bucket, leaky_bucket, gcra") {
			t.Errorf("%q: %v, want an error that lists the names", name, err)
		}
	}
	if s := sluice.Algorithm(77).String(); s != "algorithm(77)" {
		t.Errorf("algorithm 77 is %q", s)
	}
	for want, name := range map[sluice.Consistency]string{sluice.Strict: "strict", sluice.Leased: "leased", sluice.Synced: "synced"} {
		if c, err := sluice.ParseConsistency(name); err != nil || c != want || c.String() != name {
			t.Errorf("%q is read as %v (%v), and written as %q", name, c, err, want.String())
		}
	}
	if _, err := sluice.ParseConsistency("eventual"); err == nil || !strings.Contains(err.Error(), "strict, leased or synced") {
		t.Errorf("eventual: %v", err)
	}
	for i, name := range strings.Fields("store deny_cache lease sync local_share on_error") {
		if o := sluice.Origin(i); o.String() != name || o.Degraded() != (i > 3) {
			t.Errorf("%q is origin %v, degraded %v", name, o, o.Degraded())
		}
	}
}

// A plan is not leasable if each decision depends on the charges of all instances: when each unit was taken, which
// turns are given out, which permits are held, or which values came before.
func TestLeasable(t *testing.T) {
	leasable := map[string]*sluice.Plan{}
	never := map[string]*sluice.Plan{"month": plantest.Plan(t, "10/month"), "in flight": inFlight(t, 3), "distinct": plantest.Distinct(t, "3/hour"), "lock": lockOf(t, sluice.Penalty{First: time.Minute})}
	for _, a := range sluice.Algorithms() {
		into := never
		switch a {
		case sluice.TokenBucket, sluice.GCRA, sluice.FixedWindow, sluice.SlidingWindowCounter:
			into = leasable
		}
		into[a.String()] = plantest.As(t, a, "10/minute")
	}
	var err error
	if never["once"], err = sluice.NewOnce(time.Minute); err != nil {
		t.Fatal(err)
	}
	for what, p := range leasable {
		if err := p.Leasable(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, p := range never {
		if err := p.Leasable(); !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%s: Leasable returned %v, want ErrUsage", what, err)
		}
	}
}

// All charges of a limiter have its Consistency, and so have those of a limiter that With returns.
func TestLimiterConsistency(t *testing.T) {
	store := newSpy()
	minute, hour := sluice.Limit{Count: 10, Period: time.Minute}, sluice.Limit{Count: 100, Period: time.Hour}
	for _, limits := range [][]sluice.Limit{{minute}, {minute, hour}} {
		l, err := sluice.NewLimiter(store, "a", limits...)
		if err != nil {
			t.Fatal(err)
		}
		l.Consistency = sluice.Synced
		other, err := l.With(sluice.Limit{Count: 7, Period: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*sluice.Limiter{l, other} {
			if _, err := l.Take(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			for _, c := range store.last {
				if c.Consistency != sluice.Synced {
					t.Errorf("not synced: %+v", c)
				}
			}
		}
	}
}
