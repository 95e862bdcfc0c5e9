package accesslog

import (
	"bytes"
	"math"
	"time"
)

// anyTime reads a time in one of the usual forms. Numbers are seconds, milliseconds, microseconds or nanoseconds
// since the Unix epoch, depending on their size. Texts are like 20/Nov/2026:10:15:32 +0100 or like
// 2026-11-20T10:15:32.123+01:00. The second form may have "/" in place of "-", a blank in place of the T or before
// the zone, or no zone. The parameter zone is the time zone of times without one; nil means UTC. The result is in
// microseconds since the Unix epoch.
func anyTime(b []byte, zone *time.Location) (int64, bool) {
	switch {
	case len(b) >= 20 && b[2] == '/':
		var m moment
		if !m.logTime(b) {
			return 0, false
		}
		return m.unix(zone)
	case len(b) >= 19 && (b[4] == '-' || b[4] == '/'):
		var room [48]byte
		if len(b) > len(room) {
			return 0, false
		}
		iso := append(room[:0], b...)
		if iso[4] == '/' && iso[7] == '/' {
			iso[4], iso[7] = '-', '-'
		}
		if i := bytes.IndexByte(iso[11:], ' '); i >= 0 {
			zone := iso[11+i+1:]
			if string(zone) == "UTC" {
				zone = zone[:copy(zone, "Z")]
			}
			iso = append(iso[:11+i], zone...)
		}
		return isoTime(iso, zone)
	}
	whole, ok := scaled(b, 0)
	if !ok || whole < 0 {
		return 0, false
	}
	shift := 6 // seconds, up to the year 5138
	for limit := int64(1e11); whole >= limit && shift > -3; limit *= 1000 {
		shift -= 3
	}
	return scaled(b, shift)
}

// scaled reads a decimal number, and returns it times ten to the power of shift, without the fraction. It ignores
// digits after the eighteenth. It fails if b is not a number, or if the number is too large.
func scaled(b []byte, shift int) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	var n int64
	i, some, point := 0, false, false
	for ; i < len(b); i++ {
		c := b[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c -= '0'; c > 9 {
			break
		}
		some = true
		if n < 1e17 {
			n = n*10 + int64(c)
			if point {
				shift--
			}
		} else if !point {
			shift++
		}
	}
	if !some || shift < -1e6 || shift > 1e6 {
		return 0, false
	}
	if i < len(b) {
		if b[i]|0x20 != 'e' {
			return 0, false
		}
		exponent, ok := scaled(bytes.TrimPrefix(b[i+1:], []byte("+")), 0)
		if !ok || exponent < -1e6 || exponent > 1e6 || bytes.ContainsAny(b[i+1:], ".eE") {
			return 0, false
		}
		shift += int(exponent)
	}
	for ; shift < 0 && n > 0; shift++ {
		n /= 10
	}
	for ; shift > 0 && n > 0; shift-- {
		if n > math.MaxInt64/10 {
			return 0, false
		}
		n *= 10
	}
	if negative {
		n = -n
	}
	return n, true
}

// longest is the longest duration of a request that is accepted: a year, in microseconds.
const longest = 365 * 24 * 3600 * 1_000_000

// lasting reads a duration. It is either a number, in units of ten to the power of shift microseconds, or a text
// with units, such as "12.4ms", "0.012340s", "1m2.5s" or "1h". The result is in microseconds.
func lasting(b []byte, shift int) (int64, bool) {
	if n, ok := scaled(b, shift); ok || len(b) == 0 {
		return n, ok && n >= 0 && n <= longest
	}
	d, err := time.ParseDuration(string(b))
	return d.Microseconds(), err == nil && d >= 0 && d.Microseconds() <= longest
}
