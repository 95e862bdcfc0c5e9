package storetest

import "time"

// monthEdge returns the start of a day of a month, in microseconds. January 1970 is month 0. If the month does not
// have that day, monthEdge returns the start of its last day.
func monthEdge(month int64, day int) int64 {
	last := time.Date(1970, time.Month(month+2), 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(1970, time.Month(month+1), min(day, last), 0, 0, 0, 0, time.UTC).UnixMicro()
}

// monthAt returns the number of the month that contains the time now, for months that begin on the given day. The
// number is the number of the calendar month in which that month ends.
func monthAt(now int64, day int) int64 {
	year, month, _ := time.UnixMicro(now).UTC().Date()
	number := int64(year-1970)*12 + int64(month-time.January)
	if now >= monthEdge(number, day) {
		number++
	}
	return number
}
