package fields

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/percent"
)

// jsonReader goes through JSON text, and takes only what RFC 8259 says it is. A server that
// takes more, such as comments or single quotes, reads what is refused here.
type jsonReader struct {
	s      string
	i      int
	nested bool // the members of objects in the object are wanted, too
}

// maxDepth is how deep JSON may be nested.
const maxDepth = 100

// addJSON adds the members of a JSON object, and with nested those of the objects in it, and
// reports whether data is one and nothing else. They live as long as data does not change.
func (m *Members) addJSON(data []byte, nested bool) bool {
	if !utf8.Valid(data) {
		return false
	}
	j := jsonReader{s: unsafe.String(unsafe.SliceData(data), len(data)), nested: nested}
	if !j.object(m, 0) {
		return false
	}
	j.space()
	return j.i == len(j.s)
}

func (j *jsonReader) space() {
	for j.i < len(j.s) {
		switch j.s[j.i] {
		case ' ', '\t', '\r', '\n':
			j.i++
		default:
			return
		}
	}
}

// eat moves past c, if it comes next.
func (j *jsonReader) eat(c byte) bool {
	j.space()
	if j.i == len(j.s) || j.s[j.i] != c {
		return false
	}
	j.i++
	return true
}

// object reads an object. Its members are added to m, unless that is nil.
func (j *jsonReader) object(m *Members, depth int) bool {
	if !j.eat('{') || depth > maxDepth {
		return false
	}
	if j.eat('}') {
		return true
	}
	for {
		j.space()
		start := j.i
		if !j.string() {
			return false
		}
		name := j.s[start:j.i]
		if !j.eat(':') {
			return false
		}
		j.space()
		if !j.member(m, name, depth) {
			return false
		}
		if !j.eat(',') {
			return j.eat('}')
		}
	}
}

// member reads the value of a member and adds it to m. Only the members of objects in the
// outermost one are looked at: see member.nested.
func (j *jsonReader) member(m *Members, name string, depth int) bool {
	if m == nil {
		return j.value(nil, depth+1)
	}
	n := len(m.list)
	if m.addName(name, depth > 0); m.garbled {
		return true // nothing behind matters
	}
	start := j.i
	var inner *Members
	if j.nested && depth == 0 {
		inner = m
	}
	if !j.value(inner, depth+1) {
		return false
	}
	if !m.garbled {
		m.list[n].Text, m.list[n].kind = jsonText(j.s[start:j.i])
	}
	return true
}

// value reads a value. The members of an object are added to m, unless that is nil.
func (j *jsonReader) value(m *Members, depth int) bool {
	if j.i == len(j.s) {
		return false
	}
	switch c := j.s[j.i]; {
	case c == '"':
		return j.string()
	case c == '{':
		return j.object(m, depth)
	case c == '[':
		return j.array(depth)
	case c == '-' || '0' <= c && c <= '9':
		return j.number()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(j.s[j.i:], word) {
			j.i += len(word)
			return true
		}
	}
	return false
}

func (j *jsonReader) array(depth int) bool {
	if !j.eat('[') || depth > maxDepth {
		return false
	}
	if j.eat(']') {
		return true
	}
	for {
		j.space()
		if !j.value(nil, depth+1) {
			return false
		}
		if !j.eat(',') {
			return j.eat(']')
		}
	}
}

// string reads a string, and leaves to jsonString what its escapes say.
func (j *jsonReader) string() bool {
	if j.i == len(j.s) || j.s[j.i] != '"' {
		return false
	}
	for j.i++; j.i < len(j.s); j.i++ {
		switch c := j.s[j.i]; {
		case c == '"':
			j.i++
			return true
		case c < ' ':
			return false
		case c == '\\':
			if !j.escape() {
				return false
			}
		}
	}
	return false
}

// escape reads an escape but for its last character.
func (j *jsonReader) escape() bool {
	j.i++
	if j.i == len(j.s) {
		return false
	}
	if j.s[j.i] != 'u' {
		return strings.IndexByte(`"\/bfnrt`, j.s[j.i]) >= 0
	}
	for range 4 {
		j.i++
		if j.i == len(j.s) {
			return false
		}
		if _, ok := percent.Digit(j.s[j.i]); !ok {
			return false
		}
	}
	return true
}

func (j *jsonReader) number() bool {
	if j.s[j.i] == '-' {
		j.i++
	}
	whole := j.digits()
	if whole == 0 || whole > 1 && j.s[j.i-whole] == '0' {
		return false
	}
	if j.i < len(j.s) && j.s[j.i] == '.' {
		j.i++
		if j.digits() == 0 {
			return false
		}
	}
	if j.i < len(j.s) && fold.Lower(j.s[j.i]) == 'e' {
		j.i++
		if j.i < len(j.s) && (j.s[j.i] == '+' || j.s[j.i] == '-') {
			j.i++
		}
		return j.digits() > 0
	}
	return true
}

// digits moves past digits, and returns how many there were.
func (j *jsonReader) digits() (n int) {
	for j.i < len(j.s) && '0' <= j.s[j.i] && j.s[j.i] <= '9' {
		j.i++
		n++
	}
	return n
}

// jsonText returns what a value says; null is no text.
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

// addName adds a member without text by its name in quotes.
func (m *Members) addName(quoted string, nested bool) {
	name := quoted[1 : len(quoted)-1]
	if strings.IndexByte(name, '\\') >= 0 {
		start, ok := len(m.names), len(name) <= maxFieldName
		if ok {
			m.names, ok = appendJSON(m.names, name)
		}
		m.garbled = m.garbled || !ok
		name = m.since(start)
	}
	m.add(Member{name: name, nested: nested})
}

// jsonString returns the text of a string in quotes: see appendJSON.
func jsonString(quoted string) (string, bool) {
	inner := quoted[1 : len(quoted)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	text, ok := appendJSON(nil, inner)
	return string(text), ok
}

// appendJSON appends what is between the quotes of a string, unescaped. It reports false for
// half of a surrogate pair, which each server replaces by something else.
func appendJSON(dst []byte, s string) ([]byte, bool) {
	for {
		plain, rest, escaped := strings.Cut(s, `\`)
		dst = append(dst, plain...)
		if !escaped {
			return dst, true
		}
		if rest[0] != 'u' {
			dst = append(dst, jsonEscapes[rest[0]])
			s = rest[1:]
			continue
		}
		r := hex4(rest[1:])
		s = rest[5:]
		if utf16.IsSurrogate(r) {
			if !strings.HasPrefix(s, `\u`) {
				return dst, false
			}
			if r = utf16.DecodeRune(r, hex4(s[2:])); r == utf8.RuneError {
				return dst, false
			}
			s = s[6:]
		}
		dst = utf8.AppendRune(dst, r)
	}
}

var jsonEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hex4 returns what four hex digits stand for.
func hex4(s string) (r rune) {
	for i := range 4 {
		digit, _ := percent.Digit(s[i])
		r = r<<4 | rune(digit)
	}
	return r
}

// jsonStart returns data without a byte order mark and white space at its beginning.
func jsonStart(data []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\uFEFF")), " \t\r\n\v\f")
}
