package policy

import (
	"bytes"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// presence says whether a request has a part of a key.
type presence uint8

const (
	absent presence = iota
	present
	// garbled parts are there, but not so that all servers read the same.
	garbled
)

// members are the names and values of a query, a form, the cookies or a JSON object, in
// their order, and as often as they are there. Names are unescaped when they are added,
// values when they are asked for: most are not.
type members struct {
	list    []member
	names   []byte // what unescaped names are cut from
	garbled bool   // what is there cannot be relied upon
	// odd is set where a server might find more than what is listed. What is listed can be
	// relied upon, but nothing counts as absent.
	odd bool
}

type member struct {
	name, text string
	kind       memberKind
	// nested members are those of an object in the object: some servers take them for
	// members of the whole.
	nested bool
}

type memberKind uint8

const (
	textMember   memberKind = iota
	formMember              // text is escaped as in a form
	stringMember            // text is a string of JSON, in quotes
	numberMember
	brokenMember // has no text that all servers agree on
)

// maxMembers is the most members that are looked at. Servers stop at about as many, and to
// go through more would cost us more than it costs whoever sends them.
const maxMembers = 1000

func (m *members) reset() {
	clear(m.list)
	*m = members{list: m.list[:0], names: m.names[:0]}
}

func (m *members) add(e member) {
	if len(m.list) == maxMembers || !utf8.ValidString(e.name) || strings.ContainsRune(e.name, utf8.RuneError) {
		m.garbled = true // some servers drop bytes that are not UTF-8
		return
	}
	if strings.EqualFold(e.name, "_charset_") && !strings.EqualFold(e.text, "utf-8") {
		m.garbled = true // to some servers it says how all the others are to be read
		return
	}
	m.list = append(m.list, e)
}

// get returns the member that a server may find by that name. It is garbled if there are
// several that differ, or one whose name only some servers take for it: alike says which
// those are. What is empty is no name of anything, and does not count.
func (m *members) get(name string, alike func(s, name string) likeness) (member, presence) {
	if m.garbled {
		return member{}, garbled
	}
	var found member
	state := absent
	for _, e := range m.list {
		like := alike(e.name, name)
		if like == different {
			continue
		}
		e = e.read()
		switch {
		case e.text == "" && e.kind != brokenMember:
			continue
		case like == similar || e.nested || e.kind == brokenMember || state == present && e.text != found.text:
			return member{}, garbled
		}
		e.kind = max(e.kind, found.kind) // a number in one place, perhaps text in the other
		found, state = e, present
	}
	if state == absent && m.odd {
		return member{}, garbled
	}
	return found, state
}

// maxEscaped is the length of the longest text that is unescaped. It holds any name of an
// account, each byte of it escaped.
const maxEscaped = 12 << 10

// read returns the member with its text as servers read it.
func (e member) read() member {
	ok := true
	switch {
	case e.kind == formMember && len(e.text) <= maxEscaped:
		e.kind = textMember
		e.text, ok = formText(e.text)
	case e.kind == stringMember && len(e.text) <= maxEscaped:
		e.kind = textMember
		e.text, ok = jsonString(e.text)
	case e.kind == formMember || e.kind == stringMember:
		ok = false
	}
	if !ok {
		e.kind = brokenMember
	}
	return e
}

// addQuery adds the pairs of a query. It has no fragment: some servers end it there.
func (m *members) addQuery(s string) {
	m.garbled = m.garbled || strings.IndexByte(s, '#') >= 0
	m.addForm(s, true)
}

// addForm adds the pairs of a query or a form. Where there is a ";", which some servers
// take for a "&", both readings are added. Unless it is certain that s is a form, names
// that could not be one's are passed over.
func (m *members) addForm(s string, certain bool) {
	m.addPairs(s, "&", certain)
	if !m.garbled && strings.IndexByte(s, ';') >= 0 {
		m.addPairs(s, "&;", certain)
	}
}

// maxPairs is the most pairs that are looked at, with those that are empty.
const maxPairs = 4 * maxMembers

func (m *members) addPairs(s, separators string, certain bool) {
	for n := 0; s != "" && !m.garbled; n++ {
		pair := s
		if i := strings.IndexAny(s, separators); i >= 0 {
			pair, s = s[:i], s[i+1:]
		} else {
			s = ""
		}
		switch {
		case n == maxPairs:
			m.garbled = true
		case pair != "":
			m.addPair(pair, certain)
		}
	}
}

// maxFieldName is the length of the longest name of a field, as it is written.
const maxFieldName = 1 << 10

func (m *members) addPair(pair string, certain bool) {
	name, value, _ := strings.Cut(pair, "=")
	ok := len(name) <= maxFieldName
	if ok {
		name, ok = m.unescapedName(name)
	}
	if !certain {
		// It may be the inside of a file: what is no text in it is not for forms.
		name = strings.ReplaceAll(strings.ToValidUTF8(name, ""), "\uFFFD", "")
	}
	switch {
	case ok:
		m.add(member{name: name, text: value, kind: formMember})
	case certain:
		m.garbled = true
	}
}

// unescapedName is formText for names.
func (m *members) unescapedName(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, true
	}
	start := len(m.names)
	m.names = appendForm(m.names, s)
	return m.since(start), validEscapes(s) && !escaped(m.names[start:])
}

// since returns the names from start on.
func (m *members) since(start int) string {
	return unsafe.String(unsafe.SliceData(m.names[start:]), len(m.names)-start)
}

// formText unescapes a value of a form, once. It reports false where servers differ: the
// escapes are not valid, are those of another time ("%u0061"), or there are some left that a
// server might unescape in turn.
func formText(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, true
	}
	text := appendForm(nil, s)
	return string(text), validEscapes(s) && !escaped(text)
}

// appendForm appends s unescaped, with each "+" a space.
func appendForm(dst []byte, s string) []byte {
	start := len(dst)
	dst = append(dst, s...)
	for i, c := range dst[start:] {
		if c == '+' {
			dst[start+i] = ' '
		}
	}
	return appendUnescaped(dst[:start], unsafe.String(unsafe.SliceData(dst[start:]), len(s)))
}

func validEscapes(s string) bool {
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			return true
		}
		if _, ok := unhex(s, i); !ok {
			return false
		}
		s = s[i+3:]
	}
}

// escaped reports whether there is an escape in s.
func escaped(s []byte) bool {
	for {
		i := bytes.IndexByte(s, '%')
		if i < 0 || len(s)-i < 3 {
			return false
		}
		if _, ok := unhexPair(s[i+1], s[i+2]); ok {
			return true
		}
		s = s[i+1:]
	}
}

// addCookies adds the cookies of a Cookie header. Values may be quoted, and are unescaped,
// since some servers do: what is the same to any of them shall be the same here. To some
// servers a comma or white space ends a cookie, so that those on both sides are broken.
func (m *members) addCookies(header string) {
	for n, more := 0, true; more && !m.garbled; n++ {
		var pair string
		pair, header, more = strings.Cut(header, ";")
		m.garbled = n == maxPairs
		name, value, found := strings.Cut(trimBlanks(pair), "=")
		if !found {
			continue
		}
		e := member{name: strings.TrimRight(name, " \t")}
		value = trimBlanks(value)
		if strings.ContainsAny(value, ", \t") {
			e.kind = brokenMember
			m.addBroken(value)
		}
		if strings.ContainsAny(e.name, "%, \t") {
			m.addBroken("," + string(appendUnescaped(nil, e.name)))
		}
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
			if strings.IndexByte(value, '\\') >= 0 {
				e.kind = brokenMember // Python reads escapes there
			}
		}
		if strings.IndexByte(value, '"') >= 0 {
			e.kind = brokenMember
		}
		if strings.IndexByte(value, '%') >= 0 {
			value = string(appendUnescaped(nil, value))
		}
		e.text = value
		m.add(e)
	}
}

// addBroken adds the names of what may be cookies behind the commas and the white space of a
// value.
func (m *members) addBroken(value string) {
	for !m.garbled {
		i := strings.IndexAny(value, ", \t")
		if i < 0 {
			return
		}
		value = value[i+1:]
		name := value
		if end := strings.IndexAny(value, "=, \t"); end >= 0 {
			name = value[:end]
		}
		m.add(member{name: name, kind: brokenMember})
	}
}

// headerValue returns the value of a header from its lines. Lines that differ are garbled, and
// so is a value that begins or ends with what is a space in Latin-1, which Python's servers
// drop, and one with encoded words of mail ("=?utf-8?q?x?="), which some of them decode.
func headerValue(lines []string) (string, presence) {
	if len(lines) == 0 {
		return "", absent
	}
	value := trimBlanks(lines[0])
	for _, line := range lines[1:] {
		if trimBlanks(line) != value {
			return "", garbled
		}
	}
	if value != "" && (latin1Space(value[0]) || latin1Space(value[len(value)-1]) || strings.Contains(value, "=?")) {
		return "", garbled
	}
	return known(value)
}

func latin1Space(c byte) bool { return c == 0x85 || c == 0xA0 }

// trimBlanks is strings.Trim(s, " \t") for what hardly ever has any.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
