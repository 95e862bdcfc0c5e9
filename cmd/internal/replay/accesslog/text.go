package accesslog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// The errors of lines that do not follow their format.
var (
	errShape  = errors.New("it does not follow the format")
	errDoubt  = errors.New("its values contain the text that separates them, so it can be read in several ways")
	errTime   = errors.New("the time is missing or unreadable")
	errNumber = errors.New("a number is unreadable")
	errStatus = errors.New("the status is invalid")
	errClient = errors.New("the address is missing or unreadable")
)

// A what is the meaning of a value in a line.
type what uint8

const (
	valNothing what = iota // a value that no field takes
	valClient
	valClientPort // an address and a port
	valForwarded
	valUser
	valRequest // GET /x?y HTTP/1.1
	valMethod
	valTarget
	valPath // the path of the target, as the server has normalized it
	valQuery
	valHost
	valStatus
	valSent
	valSentSome // bytes, with "-" for none
	valDuration // in units of scale microseconds
	valReferer
	valUserAgent
	valID
	valHeader

	valLogTime // 20/Nov/2026:10:15:32 +0100
	valISOTime
	valDate  // of an ISO time
	valClock // of an ISO time
	valEpoch // in units of scale microseconds
	valYear
	valMonth
	valMonthName
	valDay
	valHour
	valMinute
	valSecond
	valZone
	valFraction // the digits after the decimal point of a second
)

// shape is the set of characters that a value may have, which determines where it can end.
type shape uint8

const (
	free   shape = iota // any text
	word                // no space, quote or bracket
	number              // digits, points and signs
	list                // words that are separated by ", " or " : "
	fixed               // as many bytes as its width
	port                // digits after the last colon of a word
)

// variable is the part of a format that stands for a value.
type variable struct {
	what  what
	shape shape
	wild  bool // a list with text that clients can choose
	width int
	scale int64  // the unit of a duration or an epoch, in microseconds
	rank  int    // of several variables with the same meaning, the one with the highest rank counts
	text  string // the variable as written in the format
	name  string // the name of the header field
}

// piece is a variable and the literal between it and the next one.
type piece struct {
	variable
	lit     string
	between []byte // lit as bytes
	header  []byte // name as bytes
	// quoted reports whether the value ends at the first quote that is not escaped.
	quoted bool
	// next is set if the value may contain the literal. The literal then ends the value only if the next value fits
	// after it.
	next *piece
	// ported, if not 0, is the first byte of the next piece's literal. The value ends at the last colon before it.
	ported byte
}

const maxPieces = 64

// text is a compiled format of variables with literals between them.
type text struct {
	prefix string
	pieces []piece
	// escapes reports whether the server escapes quotes, backslashes and control characters with a backslash, as nginx
	// does in \x22, and Apache in \".
	escapes bool
	// decode, if not nil, returns a value as it was sent. It is for servers that escape values in another way.
	decode func(e *Entry, value []byte, w what) []byte
	// doubt reports whether a value may contain its literal. If so, a line is cut both from the left and from the
	// right. It is read only if both cuts are the same, because then it cannot be cut in another way.
	doubt bool
	// request reports whether the format has variables for both the method and the target. Their values are empty if
	// the server could not read the request.
	request bool
	ends    bool // the time is the end of the request
	lasts   bool // the format has the duration of the request
	zone    *time.Location
}

// line reads a line.
func (t *text) line(line []byte, e *Entry) error {
	var ends [maxPieces]int32
	var m moment
	escaped := t.escapes && bytes.IndexByte(line, '\\') >= 0
	if !t.cut(line, escaped, &ends) {
		return errShape
	}
	if t.doubt && !t.sure(line, escaped, &ends) {
		return errDoubt
	}
	var path, query []byte
	at := len(t.prefix)
	for i := range t.pieces {
		p := &t.pieces[i]
		v := line[at:ends[i]]
		at = int(ends[i]) + len(p.lit)
		if p.what == valNothing {
			continue
		}
		if len(v) == 1 && v[0] == '-' {
			if p.what == valSentSome {
				e.Sent = 0
			}
			continue
		}
		if p.what >= valLogTime {
			if !p.when(v, &m) {
				return errTime
			}
			continue
		}
		switch {
		case escaped && bytes.IndexByte(v, '\\') >= 0:
			v = e.unescape(v)
		case t.decode != nil && p.what != valMethod:
			v = t.decode(e, v, p.what)
		}
		ok := true
		switch p.what {
		case valClient:
			e.Client = v
		case valClientPort:
			if i := bytes.LastIndexByte(v, ':'); i >= 0 {
				v = v[:i]
			}
			e.Client = bytes.Trim(v, "[]")
		case valForwarded:
			e.Forwarded = v
		case valUser:
			if t.decode != nil || string(v) != `""` { // Apache writes this for an empty name
				e.User = v
			}
		case valRequest:
			e.Method, e.Target = requestLine(v)
		case valMethod:
			if !t.request || token(v) {
				e.Method = v
			}
		case valTarget:
			e.Target = v
		case valPath:
			path = v
		case valQuery:
			query = v
		case valHost:
			e.Host = v
		case valStatus:
			if e.Status, ok = digits(v); !ok || e.Status > 999 {
				return errStatus
			}
		case valSent, valSentSome:
			e.Sent, ok = integer(v)
		case valDuration:
			e.Duration, ok = decimal(v, p.scale)
		case valReferer:
			e.Referer = v
		case valUserAgent:
			e.UserAgent = v
		case valID:
			e.ID = v
		case valHeader:
			if len(v) > 0 {
				e.Headers = append(e.Headers, Field{p.header, v})
			}
		}
		if !ok {
			return errNumber
		}
	}
	if path != nil && e.Target == nil {
		e.Target = e.join(path, query)
	}
	if t.request && (e.Method == nil || e.Target == nil) { // the server could not read the request
		e.Method, e.Target = nil, nil
	}
	var ok bool
	if e.Time, ok = m.unix(t.zone); !ok {
		return errTime
	}
	if e.Ended = t.ends; e.Ended && e.Duration >= 0 {
		e.Time, e.Ended = e.Time-e.Duration, false
	}
	return nil
}

// when parses the value of the piece, and sets the part of m for which the piece stands.
func (p *piece) when(v []byte, m *moment) bool {
	ok := true
	switch p.what {
	case valLogTime:
		return m.logTime(v)
	case valISOTime:
		return m.iso(v)
	case valDate:
		return m.date(v)
	case valClock:
		return m.clock(v)
	case valEpoch:
		m.micros, ok = decimal(v, p.scale)
		m.whole = true
	case valYear:
		m.year, ok = digits(v)
	case valMonth:
		m.month, ok = digits(v)
	case valMonthName:
		m.month = monthOf(v)
	case valDay:
		if v[0] == ' ' { // from %e
			v = v[1:]
		}
		m.day, ok = digits(v)
	case valHour:
		m.hour, ok = digits(v)
	case valMinute:
		m.minute, ok = digits(v)
	case valSecond:
		m.second, ok = digits(v)
	case valZone:
		ok = m.zone(v)
	case valFraction:
		_, ok = digits(v)
		m.micros += fraction(v)
	}
	return ok
}

// cut finds the ends of the values from the left.
func (t *text) cut(line []byte, escaped bool, ends *[maxPieces]int32) bool {
	at := len(t.prefix)
	if len(line) < at || string(line[:at]) != t.prefix {
		return false
	}
	for i := range t.pieces {
		p := &t.pieces[i]
		rest := line[at:]
		n := 0
		switch {
		case p.quoted:
			if n = unquoted(rest, escaped); n < 0 && i == len(t.pieces)-1 && p.lit == `"` {
				ends[i] = int32(len(line)) // the line was truncated in its last value, which does not affect the others
				return true
			}
		case p.shape == fixed:
			n = p.width
		case i == len(t.pieces)-1:
			n = len(rest) - len(p.lit)
		default:
			n = p.end(rest)
		}
		if n < 0 || len(rest) < n+len(p.lit) || string(rest[n:n+len(p.lit)]) != p.lit {
			return false
		}
		ends[i] = int32(at + n)
		at += n + len(p.lit)
	}
	return at == len(line)
}

// end returns the length of a value up to its literal, or -1 if the literal is missing.
func (p *piece) end(rest []byte) int {
	if p.ported != 0 {
		return bytes.LastIndexByte(rest[:max(bytes.IndexByte(rest, p.ported), 0)], ':')
	}
	for off := 0; ; off++ {
		i := bytes.IndexByte(rest[off:], p.lit[0])
		if i < 0 {
			return -1
		}
		off += i
		after := rest[off+1:]
		if len(p.lit) > 1 && (len(after) < len(p.lit)-1 || string(after[:len(p.lit)-1]) != p.lit[1:]) {
			continue
		}
		if p.shape == list && within(rest, off) || p.next != nil && !p.next.fits(rest[off+len(p.lit):]) {
			continue
		}
		return off
	}
}

// fits reports whether the value and its literal can be at the start of the remaining text. It is called only for
// fixed widths, numbers and words. It looks no further than the next space, so that a line of spaces takes no longer
// than others.
func (p *piece) fits(rest []byte) bool {
	n := p.width
	switch p.shape {
	case number:
		for n < len(rest) && (rest[n]-'0' <= 9 || rest[n] == '.' || rest[n] == '-') {
			n++
		}
	case word:
		if n = bytes.IndexByte(rest, ' '); n < 0 {
			n = len(rest)
		}
		if p.quoted {
			n = unquoted(rest[:n], true)
		} else if p.lit[0] != ' ' {
			n = bytes.IndexByte(rest[:n], p.lit[0])
		}
	}
	return n >= 0 && len(rest) >= n+len(p.lit) && string(rest[n:n+len(p.lit)]) == p.lit
}

// ended reports whether the value, which has a fixed width, can be at the end of b.
func (p *piece) ended(b []byte) bool {
	var m moment
	return len(b) >= p.width && p.when(b[len(b)-p.width:], &m)
}

// within reports whether the space at i separates values of one list, such as "3.000, 0.001" or "0.1 : 0.2", which
// nginx writes for several upstreams.
func within(b []byte, i int) bool {
	return b[i] == ' ' && (i > 0 && b[i-1] == ',' || bytes.HasPrefix(b[i:], []byte(" : ")) || i > 1 && string(b[i-2:i]) == " :")
}

// unquoted returns the index of the first quote that is not escaped, or -1.
func unquoted(b []byte, escaped bool) int {
	for off := 0; ; off++ {
		i := bytes.IndexByte(b[off:], '"')
		if i < 0 {
			return -1
		}
		if off += i; !escaped || !odd(b[:off]) {
			return off
		}
	}
}

// odd reports whether b ends with an odd number of backslashes, so that the next byte is escaped.
func odd(b []byte) bool {
	n := len(b)
	for n > 0 && b[n-1] == '\\' {
		n--
	}
	return (len(b)-n)%2 == 1
}

// sure reports whether a cut from the right finds the same ends. A cut from the left finds the earliest possible
// ends, and a cut from the right the latest.
func (t *text) sure(line []byte, escaped bool, ends *[maxPieces]int32) bool {
	at := len(line)
	for i := len(t.pieces) - 1; i >= 0; i-- {
		p := &t.pieces[i]
		end := at - len(p.lit)
		if end != int(ends[i]) {
			return false // if the ends are the same, cut has found the literal, and the same text after it
		}
		if i == 0 {
			return true
		}
		prev := &t.pieces[i-1]
		if p.shape == fixed {
			at = end - p.width
			continue
		}
		for at = end; ; {
			j := bytes.LastIndex(line[:at], prev.between)
			if j < 0 {
				return false
			}
			at = j + len(prev.between)
			if (p.shape == list || prev.shape == list) && within(line, j) ||
				escaped && prev.lit[0] == '"' && odd(line[:j]) ||
				prev.shape == fixed && !prev.ended(line[:j]) {
				at--
				continue
			}
			break
		}
	}
	return true
}

// unescape returns b with the escapes of nginx, Apache and JSON decoded. Other text stays as it is.
func (e *Entry) unescape(b []byte) []byte {
	begin := len(e.own)
	e.own = slices.Grow(e.own, len(b)) // no escape is shorter than the byte that it stands for
	out := e.own[begin : begin+len(b)]
	n := 0
	for i := 0; i < len(b); n++ {
		c, width := b[i], 1
		if c == '\\' && i < len(b)-1 {
			c, width = escape(b[i:])
		}
		out[n] = c
		i += width
	}
	e.own = e.own[:begin+n]
	return out[:n:n]
}

// escape returns the byte that the escape at the start of b stands for, and the length of the escape. If there is
// no valid escape, it returns the backslash.
func escape(b []byte) (c byte, width int) {
	switch c = b[1]; c {
	case '"', '\\', '/':
		return c, 2
	case 'b', 'f', 'n', 'r', 't', 'v':
		return "\b\f\n\r\t\v"[strings.IndexByte("bfnrtv", c)], 2
	case 'x':
		if c, ok := hex2(b[2:]); ok {
			return c, 4
		}
	case 'u': // nginx writes only control characters in this way
		if digits, ok := bytes.CutPrefix(b[2:], []byte("00")); ok {
			if c, ok := hex2(digits); ok {
				return c, 6
			}
		}
	}
	return '\\', 1
}

// hex2 returns the byte of the two hexadecimal digits at the start of b.
func hex2(b []byte) (byte, bool) {
	var c [1]byte
	if len(b) < 2 {
		return 0, false
	}
	_, err := hex.Decode(c[:], b[:2])
	return c[0], err == nil
}

// unhex returns b with its escapes decoded. An escape is the mark and two hexadecimal digits.
func (e *Entry) unhex(b []byte, mark byte) []byte {
	if bytes.IndexByte(b, mark) < 0 {
		return b
	}
	begin := len(e.own)
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == mark {
			if x, ok := hex2(b[i+1:]); ok {
				c = x
				i += 2
			}
		}
		e.own = append(e.own, c)
	}
	return e.own[begin:len(e.own):len(e.own)]
}

// join returns path?query, or the path alone.
func (e *Entry) join(path, query []byte) []byte {
	if len(query) == 0 {
		return path
	}
	begin := len(e.own)
	e.own = append(e.own, path...)
	if query[0] != '?' {
		e.own = append(e.own, '?')
	}
	e.own = append(e.own, query...)
	return e.own[begin:len(e.own):len(e.own)]
}

// requestLine returns the method and the target of a request line such as "GET /x HTTP/1.1". Both are nil if b is not
// a request line or has no target, for example if a client speaks TLS to an HTTP port.
func requestLine(b []byte) (method, target []byte) {
	i := bytes.IndexByte(b, ' ')
	if i < 0 || !token(b[:i]) {
		return nil, nil
	}
	method, target = b[:i], b[i+1:]
	if i = bytes.LastIndexByte(target, ' '); bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target = target[:max(i, 0)]
	} else if len(target) > 0 && target[0] != '/' && !bytes.HasPrefix(target, []byte("http://")) { // HTTP/0.9 has no version
		return nil, nil
	}
	if len(target) == 0 {
		return nil, nil
	}
	return method, target
}

// token reports whether b can be a method.
func token(b []byte) bool {
	return len(b) > 0 && !slices.ContainsFunc(b, func(c byte) bool { return !httpguts.IsTokenRune(rune(c)) })
}
