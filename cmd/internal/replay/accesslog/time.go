package accesslog

import (
	"bytes"
	"time"
)

// moment is a point in time. A line may have it in several parts.
type moment struct {
	year, month, day     int
	hour, minute, second int
	micros               int64 // within the second, or since the Unix epoch if the field whole is set
	offset               int   // seconds east of UTC
	zoned                bool  // the offset is known
	whole                bool  // micros is the whole time
}

// unix returns microseconds since the Unix epoch, and false for an invalid time. The parameter zone is the time
// zone of times without an offset.
func (m *moment) unix(zone *time.Location) (int64, bool) {
	if m.whole {
		return m.micros, true
	}
	if m.zoned || zone == nil {
		zone = time.UTC
	}
	// Package time would turn a day that the month does not have into a day of the next month.
	if m.month < 1 || m.month > 12 || m.hour > 23 || m.minute > 59 || m.second > 60 ||
		m.day < 1 || m.day > 28 && time.Date(m.year, time.Month(m.month), m.day, 0, 0, 0, 0, time.UTC).Day() != m.day {
		return 0, false
	}
	at := time.Date(m.year, time.Month(m.month), m.day, m.hour, m.minute, m.second-m.offset, 0, zone)
	return at.Unix()*1e6 + m.micros, true
}

// digits returns the number in b, which has at most 9 digits.
func digits(b []byte) (int, bool) {
	n, ok := integer(b)
	return int(n), ok && len(b) <= 9
}

// two returns the number of the two digits at the start of b, or a number over 9999 if these bytes are not digits.
func two(b []byte) int {
	hi, lo := b[0]-'0', b[1]-'0'
	if hi > 9 || lo > 9 {
		return 100_000
	}
	return int(hi)*10 + int(lo)
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// monthOf returns the number of an English month by its first three letters, or 0.
func monthOf(b []byte) int {
	for i := 0; i < len(months); i += 3 {
		if months[i] == b[0] && months[i+1] == b[1] && months[i+2] == b[2] {
			return i/3 + 1
		}
	}
	return 0
}

// logTime reads 20/Nov/2026:10:15:32 +0100, or without the zone.
func (m *moment) logTime(b []byte) bool {
	if len(b) != 26 && len(b) != 20 || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return false
	}
	m.day, m.month = two(b), monthOf(b[3:])
	m.year = two(b[7:])*100 + two(b[9:])
	m.hour, m.minute, m.second = two(b[12:]), two(b[15:]), two(b[18:])
	if m.year > 9999 {
		return false
	}
	return len(b) == 20 || b[20] == ' ' && m.zone(b[21:])
}

// zone reads +0100, +01:00 or Z.
func (m *moment) zone(b []byte) bool {
	m.zoned = true
	if len(b) == 1 && b[0] == 'Z' {
		return true
	}
	if len(b) == 6 && b[3] == ':' {
		return m.shift(b[0], two(b[1:]), two(b[4:]))
	}
	return len(b) == 5 && m.shift(b[0], two(b[1:]), two(b[3:]))
}

func (m *moment) shift(sign byte, hours, minutes int) bool {
	m.offset = hours*3600 + minutes*60
	if sign == '-' {
		m.offset = -m.offset
	}
	return hours < 24 && minutes < 60 && (sign == '+' || sign == '-')
}

// iso reads 2026-11-20T10:15:32.123+01:00, with or without a fraction and a zone, and with T or a space.
func (m *moment) iso(b []byte) bool {
	return len(b) >= 19 && m.date(b[:10]) && (b[10] == 'T' || b[10] == ' ') && m.clock(b[11:])
}

// date reads 2026-11-20.
func (m *moment) date(b []byte) bool {
	if len(b) != 10 || b[4] != '-' || b[7] != '-' {
		return false
	}
	m.year, m.month, m.day = two(b)*100+two(b[2:]), two(b[5:]), two(b[8:])
	return m.year <= 9999
}

// clock reads 10:15:32.123+01:00, with or without a fraction and a zone.
func (m *moment) clock(b []byte) bool {
	if len(b) < 8 || b[2] != ':' || b[5] != ':' {
		return false
	}
	m.hour, m.minute, m.second = two(b), two(b[3:]), two(b[6:])
	if b = b[8:]; len(b) > 0 && (b[0] == '.' || b[0] == ',') {
		n := 1
		for n < len(b) && b[n]-'0' < 10 {
			n++
		}
		if n == 1 {
			return false
		}
		m.micros = fraction(b[1:n])
		b = b[n:]
	}
	return len(b) == 0 || m.zone(b)
}

// fraction returns the microseconds of the digits after a decimal point. It ignores finer digits.
func fraction(b []byte) int64 {
	n := int64(0)
	for i := range 6 {
		n *= 10
		if i < len(b) {
			n += int64(b[i] - '0')
		}
	}
	return n
}

// isoTime returns an ISO 8601 time in microseconds since the Unix epoch. The parameter zone is the time zone of a
// time without one; nil means UTC.
func isoTime(b []byte, zone *time.Location) (int64, bool) {
	var m moment
	if !m.iso(b) {
		return 0, false
	}
	return m.unix(zone)
}

// decimal reads a number, such as 1795169732.524, and multiplies it by scale, which is 1, 1e3 or 1e6. A remaining
// fraction is cut off.
func decimal(b []byte, scale int64) (int64, bool) {
	whole, frac, point := bytes.Cut(b, []byte("."))
	n, ok := integer(whole)
	if !ok || point && (len(frac) == 0 || len(bytes.Trim(frac, "0123456789")) > 0) || n >= 1<<62/scale {
		return 0, false
	}
	return n*scale + fraction(frac)*scale/1e6, true
}

// integer returns a number of at most 18 digits.
func integer(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	n := int64(0)
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, true
}
