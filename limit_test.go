package sluice_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// texts returns the lines "text -> meaning" of a file, without comments.
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
		t.Fatalf("%s has %d lines", file, len(all))
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
			t.Errorf("%q: %v does not show how", text, err)
		}
	}
	if _, err := sluice.ParseLimit(strings.Repeat("9", 1000) + "/s"); err == nil || len(err.Error()) > 400 {
		t.Errorf("a count of 1000 digits: %v", err)
	}
	if _, err := sluice.ParsePeriod("month"); err == nil || !strings.Contains(err.Error(), "written 30d") {
		t.Errorf("a month is no length: %v", err)
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

// FuzzParseLimit: what is read is written so that it is read as the same, and whatever is
// read has a plan or an error.
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
			t.Fatalf("%q was read as %+v", s, l)
		}
		again, err := sluice.ParseLimit(l.String())
		if err != nil || again != l {
			t.Fatalf("%q was read as %+v, and its %q as %+v, %v", s, l, l, again, err)
		}
		checkPlan(t, l)
		l.Algorithm = sluice.Algorithm(algorithm % 8)
		checkPlan(t, l)
	})
}
