package kernel_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// edge returns the start of the monthly window that starts on the given day of a month, or on the month's last day if
// the month has no such day.
func edge(year int, month time.Month, day int) time.Time {
	begin := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for begin.Day() != day { // the month has no such day: use its last one
		begin, day = time.Date(year, month, day-1, 0, 0, 0, 0, time.UTC), day-1
	}
	return begin
}

// TestMonths compares the monthly windows from every start day, from 1970 to 2112, with windows computed by package
// time: on each day of a window, and at its edges to the microsecond.
func TestMonths(t *testing.T) {
	for day := 1; day <= 31; day++ {
		p := plan(t, sluice.Limit{Count: 10, MonthDay: day, Algorithm: sluice.FixedWindow})
		check := func(now, begin, end time.Time, number int64) {
			n, b, e := p.WindowAt(now.UnixMicro())
			if n != number || b != begin.UnixMicro() || e != end.UnixMicro() {
				t.Fatalf("start day %d: %v is in month %d, from %v to %v; want %d, from %v to %v",
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
