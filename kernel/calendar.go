package kernel

import "time"

// longestMonth is the Period of a limit by the calendar.
const longestMonth = 31 * 24 * time.Hour

const (
	microsecondsPerDay = int64(24 * time.Hour / time.Microsecond)
	// The calendar repeats itself every 400 years.
	cycleDays, cycleMonths = 146_097, 4_800
)

// A limit with a MonthDay runs on the window kernel: its ticks are months, and its windows have one tick. Month 0
// ends in January 1970, so no number is negative.

// monthly reports whether the windows of p are months of the calendar.
func (p *Plan) monthly() bool { return p.MonthDay > 0 }

// month returns the number of the month that contains the time now: the first month that ends after that time. The
// time is in microseconds.
func (p *Plan) month(now int64) int64 {
	days := now / microsecondsPerDay
	// Computed with months of average length, n is right or one too small.
	n := (days+cycleDays-int64(p.MonthDay)-1)*cycleMonths/cycleDays - cycleMonths + 1
	for p.monthEnd(n) <= days*microsecondsPerDay {
		n++
	}
	return n
}

// monthEnd returns when month n ends, in microseconds. Month n ends in the n-th month after January 1970, at the
// start of the plan's MonthDay, or of the last day if the month has fewer days.
func (p *Plan) monthEnd(n int64) int64 {
	first, day := daysBefore(n), int64(p.MonthDay)
	if day > 28 {
		day = min(day, daysBefore(n+1)-first)
	}
	return (first + day - 1) * microsecondsPerDay
}

// daysBefore returns the number of days from January 1, 1970 to the first day of the n-th month after January 1970.
// It counts years from March, so that a leap day is the last day of its year.
func daysBefore(n int64) int64 {
	n += 1970*12 - 2
	year, month := n/12, n%12
	return 365*year + year/4 - year/100 + year/400 + (153*month+2)/5 - 719_468
}

// WindowAt returns the number of the window that contains the time now, and when that window begins and ends. All
// times are in microseconds since the Unix epoch. p must run on the [Window] kernel.
func (p *Plan) WindowAt(now int64) (number, begin, end int64) {
	if p.monthly() {
		number = p.month(now)
		return number, p.monthEnd(number - 1), p.monthEnd(number)
	}
	length := p.Span * p.Tick
	number = now / length
	return number, number * length, (number + 1) * length
}
