package sluice_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

func monthly(t testing.TB, count int64, day int) *sluice.Plan {
	t.Helper()
	return plan(t, sluice.Limit{Count: count, MonthDay: day, Algorithm: sluice.FixedWindow})
}

// edge is when the month from a day begins that has its beginning in that month.
func edge(year int, month time.Month, day int) time.Time {
	begin := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for begin.Day() != day { // there is no such day: the last one
		begin, day = time.Date(year, month, day-1, 0, 0, 0, 0, time.UTC), day-1
	}
	return begin
}

// TestMonths: every month from every day, from 1970 to 2112, as package time has it, on each day
// of it and to the microsecond at its edges.
func TestMonths(t *testing.T) {
	for day := 1; day <= 31; day++ {
		p := monthly(t, 10, day)
		check := func(now, begin, end time.Time, number int64) {
			n, b, e := p.WindowAt(now.UnixMicro())
			if n != number || b != begin.UnixMicro() || e != end.UnixMicro() {
				t.Fatalf("from %d, %v is in month %d, from %v to %v; want %d, from %v to %v",
					day, now, n, time.UnixMicro(b).UTC(), time.UnixMicro(e).UTC(), number, begin, end)
			}
		}
		for number := range int64(143 * 12) {
			month := time.Date(1970, time.Month(1+number), 1, 0, 0, 0, 0, time.UTC)
			before := month.AddDate(0, -1, 0)
			begin, end := edge(before.Year(), before.Month(), day), edge(month.Year(), month.Month(), day)
			for now := begin; now.Before(end); now = now.AddDate(0, 0, 1) {
				if now.Year() >= 1970 {
					check(now, begin, end, number)
					check(now.Add(24*time.Hour-time.Microsecond), begin, end, number)
				}
			}
		}
	}
}

// TestMonthByHand: what people expect of a quota that is billed.
func TestMonthByHand(t *testing.T) {
	for _, test := range []struct {
		day             int
		now, begin, end string
	}{
		{1, "2024-02-29T23:59:59Z", "2024-02-01", "2024-03-01"},
		{1, "2024-12-31T23:59:59Z", "2024-12-01", "2025-01-01"},
		{15, "2025-01-14T23:59:59Z", "2024-12-15", "2025-01-15"},
		{15, "2025-01-15T00:00:00Z", "2025-01-15", "2025-02-15"},
		{30, "2025-02-27T12:00:00Z", "2025-01-30", "2025-02-28"},
		{30, "2025-02-28T00:00:00Z", "2025-02-28", "2025-03-30"},
		{31, "2024-02-29T00:00:00Z", "2024-02-29", "2024-03-31"},
		{31, "2025-04-30T00:00:00Z", "2025-04-30", "2025-05-31"},
		{31, "2100-02-28T00:00:00Z", "2100-02-28", "2100-03-31"}, // no leap year
		{29, "2000-02-29T00:00:00Z", "2000-02-29", "2000-03-29"}, // a leap year
	} {
		now, err1 := time.Parse(time.RFC3339, test.now)
		begin, err2 := time.Parse(time.DateOnly, test.begin)
		end, err3 := time.Parse(time.DateOnly, test.end)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		b := &bucket{Plan: monthly(t, 3, test.day)}
		d := b.take(now.UnixMicro(), 3)
		if until := end.Sub(now); !d.Allowed || d.RetryAfter != until || d.ResetAfter != until {
			t.Errorf("from %d, at %s: %+v, want to wait for %v", test.day, test.now, d, until)
		}
		if d := b.ask(end.UnixMicro()-1, 1); d.Allowed {
			t.Errorf("from %d: a fourth unit fits in the month before %s", test.day, test.end)
		}
		if d := b.ask(end.UnixMicro(), 3); !d.Allowed {
			t.Errorf("from %d: nothing fits in the month from %s", test.day, test.end)
		}
		if _, from, _ := b.WindowAt(now.UnixMicro()); from != begin.UnixMicro() {
			t.Errorf("from %d: the month at %s begins at %v, want %s", test.day, test.now, time.UnixMicro(from).UTC(), test.begin)
		}
	}
}

// TestMonthClock: a clock that steps back to the month before finds what it left, one that
// jumps further takes the count along.
func TestMonthClock(t *testing.T) {
	at := func(text string) int64 {
		now, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return now.UnixMicro()
	}
	b := &bucket{Plan: monthly(t, 5, 1)}
	b.take(at("2025-03-01 00:00:01"), 5)
	d := b.take(at("2025-02-28 23:59:59"), 1)
	if want := 31*24*time.Hour + time.Second; d.Allowed || d.RetryAfter != want {
		t.Errorf("two seconds back: %+v, want to wait for %v", d, want)
	}
	if d := b.take(at("2025-01-31 12:00:00"), 1); d.Allowed || d.RetryAfter != 12*time.Hour {
		t.Errorf("two months back: %+v, want to wait for what is left of January", d)
	}
	if d := b.take(at("2025-03-01 00:00:02"), 5); !d.Allowed {
		t.Errorf("and forth: %+v, want March anew", d)
	}
}

func TestMonthText(t *testing.T) {
	for text, day := range map[string]int{
		"10000/month":               1,
		"10000/month from 1":        1,
		" 10000 / month  from  15 ": 15,
		"10000/month from 031":      31,
	} {
		want := sluice.Limit{Count: 10000, Period: 31 * 24 * time.Hour, Algorithm: sluice.FixedWindow, MonthDay: day}
		got, err := sluice.ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
		written := "10000/month"
		if day > 1 {
			written = fmt.Sprintf("10000/month from %d", day)
		}
		if got.String() != written {
			t.Errorf("%q is written as %q, want %q", text, got, written)
		}
	}
	for text, want := range map[string]string{
		"5/month from":          `"from" behind the month is not "from DAY"`,
		"5/month 15":            `"15" behind the month is not "from DAY"`,
		"5/month from 15 UTC":   `"from 15 UTC" behind the month is not "from DAY"`,
		"5/month from 0":        `the day "0" is not a number from 1 to 31`,
		"5/month from 32":       `the day "32" is not a number from 1 to 31`,
		"5/month from 15th":     `the day "15th" is not a number from 1 to 31`,
		"5/month from -1":       `the day "-1" is not a number from 1 to 31`,
		"5/month burst 3":       "a month of the calendar has no burst",
		"5/30d from 15":         "only a month begins on a day",
		"5/day from 15 burst 3": "only a month begins on a day",
		"5/months":              `the period "months" is written month`,
		"5/1month":              `the period "1month" is neither`,
	} {
		if got, err := sluice.ParseLimit(text); err == nil || !strings.Contains(err.Error(), want) || got != (sluice.Limit{}) {
			t.Errorf("%q: %+v, %v, want %s", text, got, err, want)
		}
	}
	if _, err := sluice.ParsePeriod("month"); err == nil || !strings.Contains(err.Error(), "written 30d") {
		t.Errorf("a month is no length: %v", err)
	}
}

func TestMonthPlanErrors(t *testing.T) {
	for want, l := range map[string]sluice.Limit{
		"limit 5/month from 32: the month begins on day 32, and must on one from 1 to 31": {Count: 5, MonthDay: 32, Algorithm: sluice.FixedWindow},
		"the month begins on day -1":                                                   {Count: 5, MonthDay: -1, Algorithm: sluice.FixedWindow},
		"the period of a month of the calendar is 720h0m0s":                            {Count: 5, MonthDay: 1, Period: 30 * 24 * time.Hour, Algorithm: sluice.FixedWindow},
		"limit 5/month: token_bucket does not count by the calendar: use fixed_window": {Count: 5, MonthDay: 1},
		"a month of the calendar has no burst":                                         {Count: 5, MonthDay: 1, Burst: 5, Algorithm: sluice.FixedWindow},
		"limit 2251799813685249/month: the numbers are too large":                      {Count: 1<<51 + 1, MonthDay: 1, Algorithm: sluice.FixedWindow},
	} {
		if p, err := sluice.NewPlan(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v; want the error %q", l, p, err, want)
		}
	}
	p := monthly(t, 5, 15)
	again, err := sluice.NewPlan(p.Limit)
	if err != nil || *again != *p {
		t.Errorf("a plan of %+v is %+v, %v, and of its own limit %+v", p.Limit, p, err, again)
	}
}
