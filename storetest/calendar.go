package storetest

import "time"

// monthEdge returns the midnight of a day in a month, counted from January 1970 as month 0, or
// of its last day if it has no such day, in microseconds.
func monthEdge(month int64, day int) int64 {
	last := time.Date(1970, time.Month(month+2), 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(1970, time.Month(month+1), min(day, last), 0, 0, 0, 0, time.UTC).UnixMicro()
}

// monthAt returns the number of the month from a day that now is in: that of the month in which
// it ends.
func monthAt(now int64, day int) int64 {
	year, month, _ := time.UnixMicro(now).UTC().Date()
	number := int64(year-1970)*12 + int64(month-time.January)
	if now >= monthEdge(number, day) {
		number++
	}
	return number
}
