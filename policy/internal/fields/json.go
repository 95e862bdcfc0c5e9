package fields

import (
	"bytes"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// addJSON adds the members of a JSON object. If nested is true, it also adds the members of inner objects, as
// "outer[name]". It reports whether data is exactly one JSON object. It returns false for extensions of RFC 8259
// that some servers read, such as comments or single quotes. The members are valid as long as data does not change.
func (m *Members) addJSON(data []byte, nested bool) bool {
	if !utf8.Valid(data) {
		return false
	}
	s := unsafe.String(unsafe.SliceData(data), len(data))
	end := m.addObject(s, jsonscan.Space(s, 0), "", nested)
	return end >= 0 && jsonscan.Space(s, end) == len(s)
}

// addObject adds the members of the object at i, and returns the index of its end. The parameter outer is the name
// of the object within another object, or empty. The result is negative if s has no object at i, or if m is
// garbled.
func (m *Members) addObject(s string, i int, outer string, nested bool) int {
	if i == len(s) || s[i] != '{' {
		return ^i
	}
	i, more := jsonscan.First(s, i+1, '}')
	for more {
		end, value := jsonscan.Name(s, i)
		if value < 0 {
			return value
		}
		n := len(m.list)
		if m.addName(outer, s[i+1:end-1]); m.garbled {
			return ^i
		}
		if nested && value < len(s) && s[value] == '{' {
			i = m.addObject(s, value, m.list[n].name, false)
		} else {
			i = jsonscan.Value(s, value, 1)
		}
		if i < 0 {
			return i
		}
		m.list[n].Text, m.list[n].kind = jsonText(s[value:i])
		i, more = jsonscan.Next(s, i, '}')
	}
	return i
}

// jsonText returns the text of a value. null has no text.
func jsonText(raw string) (string, memberKind) {
	switch raw[0] {
	case '"':
		return raw, stringMember
	case '{', '[':
		return "", brokenMember
	case 'n':
		return "", textMember
	case 't', 'f':
		return raw, textMember
	}
	return raw, numberMember
}

// addName adds a member without a text. The parameter name is the text between its quotes. The name of a member of
// an inner object becomes "outer[name]", as in a form.
func (m *Members) addName(outer, name string) {
	if strings.IndexByte(name, '\\') < 0 && outer == "" {
		m.add(Member{name: name})
		return
	}
	start, ok := len(m.names), len(outer)+len(name) <= maxFieldName
	if ok && outer == "" {
		m.names, ok = jsonscan.Unescape(m.names, name)
	} else if ok {
		m.names = append(append(m.names, outer...), '[')
		m.names, ok = jsonscan.Unescape(m.names, name)
		m.names = append(m.names, ']')
	}
	m.garbled = m.garbled || !ok
	m.add(Member{name: m.since(start)})
}

// jsonString returns the text of a string in quotes. It returns false for half of a surrogate pair, because servers
// replace it differently.
func jsonString(quoted string) (string, bool) {
	inner := quoted[1 : len(quoted)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	text, ok := jsonscan.Unescape(nil, inner)
	return string(text), ok
}

// jsonStart returns data without a byte order mark and white space at its beginning.
func jsonStart(data []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\uFEFF")), " \t\r\n\v\f")
}
