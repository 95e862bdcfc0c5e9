package pace

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// member is a member of a list or a dictionary in a structured field (RFC 9651). Fields about limits have no inner
// lists, dates or display strings, so a field that has one counts as malformed.
type member struct {
	key        string // the key of a member of a dictionary
	value      any    // int64, float64, string, token, []byte or bool
	parameters []parameter
}

type parameter struct {
	key   string
	value any
}

type token string

// parameter returns the value of the last parameter with the key, or nil.
func (m *member) parameter(key string) (value any) {
	for _, p := range m.parameters {
		if p.key == key {
			value = p.value
		}
	}
	return value
}

// parseList reads a list. ok is false if any member is malformed.
func parseList(s string) (list []member, ok bool) {
	return parseMembers(s, func(r *reader) (m member, ok bool) {
		m.value, m.parameters, ok = r.member()
		return m, ok
	})
}

// parseDictionary reads a dictionary. If several members have the same key, it returns all of them; the caller has
// to use the last.
func parseDictionary(s string) (dictionary []member, ok bool) {
	return parseMembers(s, func(r *reader) (m member, ok bool) {
		if m.key, ok = r.key(); !ok {
			return m, false
		}
		if r.skip('=') {
			m.value, m.parameters, ok = r.member()
			return m, ok
		}
		m.value = true
		m.parameters, ok = r.parameters()
		return m, ok
	})
}

func parseMembers(s string, one func(*reader) (member, bool)) (all []member, ok bool) {
	r := &reader{strings.Trim(s, " ")}
	for r.rest != "" {
		m, ok := one(r)
		if !ok {
			return nil, false
		}
		all = append(all, m)
		r.rest = strings.TrimLeft(r.rest, " \t")
		if r.rest == "" {
			return all, true
		}
		if !r.skip(',') {
			return nil, false
		}
		if r.rest = strings.TrimLeft(r.rest, " \t"); r.rest == "" {
			return nil, false
		}
	}
	return all, true
}

// reader reads a text from its beginning.
type reader struct{ rest string }

// next returns the next byte without removing it from the rest, or 0 at the end.
func (r *reader) next() byte {
	if r.rest == "" {
		return 0
	}
	return r.rest[0]
}

func (r *reader) skip(c byte) bool {
	if r.next() != c || c == 0 {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// while reads the bytes up to the first one for which kind returns false.
func (r *reader) while(kind func(byte) bool) string {
	n := 0
	for n < len(r.rest) && kind(r.rest[n]) {
		n++
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) member() (value any, parameters []parameter, ok bool) {
	if value, ok = r.bare(); ok {
		parameters, ok = r.parameters()
	}
	return value, parameters, ok
}

func (r *reader) parameters() (all []parameter, ok bool) {
	for r.skip(';') {
		r.rest = strings.TrimLeft(r.rest, " ")
		p := parameter{value: true}
		if p.key, ok = r.key(); !ok {
			return nil, false
		}
		if r.skip('=') {
			if p.value, ok = r.bare(); !ok {
				return nil, false
			}
		}
		all = append(all, p)
	}
	return all, true
}

func (r *reader) key() (key string, ok bool) {
	if c := r.next(); !isLower(c) && c != '*' {
		return "", false
	}
	return r.while(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }), true
}

func (r *reader) bare() (value any, ok bool) {
	switch c := r.next(); {
	case c == '-' || isDigit(c):
		return r.number()
	case c == '"':
		return r.text()
	case c == '*' || isAlpha(c):
		return token(r.while(inToken)), true
	case c == ':':
		return r.bytes()
	case c == '?':
		return r.boolean()
	}
	return nil, false
}

// number reads an integer of up to 15 digits, or a decimal of up to 12 digits before and 3 digits after the point.
func (r *reader) number() (value any, ok bool) {
	sign := ""
	if r.skip('-') {
		sign = "-"
	}
	whole := r.while(isDigit)
	if !r.skip('.') {
		n, err := strconv.ParseInt(sign+whole, 10, 64)
		return n, err == nil && len(whole) <= 15
	}
	part := r.while(isDigit)
	if whole == "" || len(whole) > 12 || part == "" || len(part) > 3 {
		return nil, false
	}
	f, err := strconv.ParseFloat(sign+whole+"."+part, 64)
	return f, err == nil
}

func (r *reader) text() (value any, ok bool) {
	var b strings.Builder
	for r.skip('"'); r.rest != ""; {
		c := r.rest[0]
		r.rest = r.rest[1:]
		switch {
		case c == '"':
			return b.String(), true
		case c == '\\':
			if c = r.next(); c != '"' && c != '\\' {
				return nil, false
			}
			r.rest = r.rest[1:]
		case c < ' ' || c > '~':
			return nil, false
		}
		b.WriteByte(c)
	}
	return nil, false
}

func (r *reader) bytes() (value any, ok bool) {
	encoded, rest, closed := strings.Cut(r.rest[1:], ":")
	if !closed || strings.ContainsAny(encoded, "\r\n") {
		return nil, false
	}
	r.rest = rest
	b, err := base64.StdEncoding.DecodeString(encoded)
	return b, err == nil
}

func (r *reader) boolean() (value any, ok bool) {
	r.skip('?')
	if r.skip('1') {
		return true, true
	}
	return false, r.skip('0')
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

func inToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
