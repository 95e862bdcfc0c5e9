// Package fields finds named values in a request: in queries, forms, JSON, multipart bodies, cookies and the claims
// of tokens.
//
// The limit and the server behind it read the same bytes, and may read them differently. So a value is Present only
// if every known server reads the same value, Absent only if no server finds a value, and Garbled in all other
// cases. A value that would cost much more to read than to send is also Garbled.
package fields

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/sluicehq/sluice/policy/internal/percent"
)

// Presence describes whether a request has a value.
type Presence uint8

const (
	Absent Presence = iota
	Present
	// Garbled values are present, but servers may read them differently.
	Garbled
)

// Members has the names and values of a query, a form, the cookies or a JSON object, in their order and with
// repetitions. Names are unescaped when they are added. Values are unescaped only when they are requested, because
// most values are never requested.
type Members struct {
	list    []Member
	names   []byte // the memory for unescaped names
	garbled bool   // whether all values are Garbled
	// odd is set if a server might find members that list does not have. The members in list are reliable, but no
	// value counts as absent.
	odd bool
	// loose is a text in which servers that read any body as a form find pairs. It may have very many pairs, so it
	// is searched only when a field is requested.
	loose string
	json  bool // whether this is a JSON object with Content-Type application/json
}

// Member is a name with its value.
type Member struct {
	Text string // the text as servers read it
	name string
	kind memberKind
}

// IsNumber reports whether the member is a number of JSON.
func (e *Member) IsNumber() bool { return e.kind == numberMember }

// Value returns v. It is Absent if v is empty, and otherwise Present.
func Value(v string) (string, Presence) {
	if v == "" {
		return "", Absent
	}
	return v, Present
}

type memberKind uint8

const (
	textMember   memberKind = iota
	formMember              // the text is escaped as in a form
	stringMember            // the text is a string of JSON, in quotes
	numberMember
	brokenMember // servers disagree about the text
)

// maxMembers is the maximum number of members of a form that are read. Servers have similar limits, and reading more
// members would cost more than sending them. JSON objects may have more members, because requests to models can have a
// member for each token with a changed probability.
const (
	maxMembers     = 1000
	maxJSONMembers = 4000
)

// Reset removes all members, and keeps the memory for reuse. Earlier results are no longer valid.
func (m *Members) Reset() {
	clear(m.list)
	*m = Members{list: m.list[:0], names: m.names[:0]}
}

// Garble makes all values Garbled.
func (m *Members) Garble() { m.garbled = true }

// Size returns the size of the memory for unescaped names that m would reuse, in bytes.
func (m *Members) Size() int { return cap(m.names) }

func (m *Members) most() int {
	if m.json {
		return maxJSONMembers
	}
	return maxMembers
}

func (m *Members) add(e Member) {
	if len(m.list) >= m.most() || !utf8.ValidString(e.name) || strings.ContainsRune(e.name, utf8.RuneError) {
		m.garbled = true // some servers drop bytes that are not UTF-8
		return
	}
	if namesCharset(e.name, e.Text) {
		m.garbled = true
		return
	}
	m.list = append(m.list, e)
}

// namesCharset reports whether a field makes some servers read all other fields in a charset other than UTF-8.
func namesCharset(name, text string) bool {
	return strings.EqualFold(name, "_charset_") && !strings.EqualFold(text, "utf-8")
}

// Field returns the field of a query or a body that servers may find by the given name.
func (m *Members) Field(name string) (Member, Presence) {
	if m.json && isAPIField(name) {
		return m.get(name, wholeLikeness)
	}
	return m.get(name, fieldLikeness)
}

// Cookie returns the cookie that a server may find by the given name.
func (m *Members) Cookie(name string) (Member, Presence) { return m.get(name, cookieLikeness) }

// Claim returns the claim of a token that a server may find by the given name.
func (m *Members) Claim(name string) (Member, Presence) { return m.get(name, claimLikeness) }

// JSON returns the value of a member of a JSON object as its text, if it is a string, or as its number, if it is an
// integer. It returns false for other values, and if a server may read another member in its place.
func (m *Members) JSON(name string) (text string, number int64, ok bool) {
	if m.garbled {
		return "", 0, false
	}
	for i := range m.list {
		e := &m.list[i]
		if wholeLikeness(e.name, name) == different {
			continue
		}
		if e.name != name || ok {
			return "", 0, false
		}
		if text, number, ok = e.value(); !ok {
			return "", 0, false
		}
	}
	return text, number, ok
}

// Largest returns the largest number, rounded up, of all members that a server may find by the given name. Numbers
// in strings count, because some servers convert them.
func (m *Members) Largest(name string) (n int64, found bool) {
	for i := range m.list {
		if wholeLikeness(m.list[i].name, name) == different {
			continue
		}
		e := m.list[i].read()
		f, err := strconv.ParseFloat(strings.TrimSpace(e.Text), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(f) {
			continue
		}
		n, found = max(n, int64(math.Ceil(min(max(f, 0), 1<<53)))), true
	}
	return n, found
}

// value returns the value of a JSON string or integer.
func (e *Member) value() (text string, number int64, ok bool) {
	switch {
	case e.kind == stringMember && len(e.Text) <= maxEscaped:
		text, ok = jsonString(e.Text)
	case e.kind == numberMember:
		var err error
		number, err = strconv.ParseInt(e.Text, 10, 64)
		ok = err == nil
	}
	return text, number, ok
}

// get returns the member that a server may find by the given name. The function alike compares names. The result is
// garbled if members with the same or a similar name have different values, or if there are only similar names, which
// only some servers consider the same. Members with an empty value are ignored.
func (m *Members) get(name string, alike func(s, name string) likeness) (Member, Presence) {
	if m.garbled {
		return Member{}, Garbled
	}
	var f finding
	for i := range m.list {
		if like := alike(m.list[i].name, name); like != different {
			f.add(m.list[i], like)
		}
	}
	if m.loose != "" && !(m.json && isAPIField(name)) {
		m.addLoose(&f, name)
	}
	return f.result(m.odd)
}

// finding is the result of a search by name.
type finding struct {
	found, near Member // the last member with the name, and the last one with a similar name
	state       Presence
	nearby      bool
	looks       int // see maxLooks
}

func (f *finding) add(e Member, like likeness) {
	e = e.read()
	switch {
	case f.state == Garbled, e.Text == "" && e.kind != brokenMember:
		return
	case e.kind == brokenMember, f.state == Present && e.Text != f.found.Text, f.nearby && e.Text != f.near.Text:
		f.state = Garbled
		return
	}
	e.kind = max(e.kind, f.found.kind, f.near.kind) // the value may be a number in one member and text in another
	if like == similar {
		f.near, f.nearby = e, true
	} else {
		f.found, f.state = e, Present
	}
}

func (f *finding) result(odd bool) (Member, Presence) {
	if f.state == Garbled || f.state == Absent && (odd || f.nearby) {
		return Member{}, Garbled
	}
	f.found.kind = max(f.found.kind, f.near.kind)
	return f.found, f.state
}

// RawJSON returns the string or number under a name in a JSON object, in the form of the document. It returns false
// for other values, and if a server may read another member in its place.
func (m *Members) RawJSON(name string) (raw string, ok bool) {
	if m.garbled {
		return "", false
	}
	for i := range m.list {
		e := &m.list[i]
		if wholeLikeness(e.name, name) == different {
			continue
		}
		if e.name != name || ok || e.kind != stringMember && e.kind != numberMember {
			return "", false
		}
		raw, ok = e.Text, true
	}
	return raw, ok
}

// maxEscaped is the length of the longest text that is unescaped. It is enough for any name of an account, even if
// each byte is escaped.
const maxEscaped = 12 << 10

// read returns the member with its text as servers read it.
func (e Member) read() Member {
	ok := true
	switch {
	case e.kind == formMember && len(e.Text) <= maxEscaped:
		e.kind = textMember
		e.Text, ok = formText(e.Text)
	case e.kind == stringMember && len(e.Text) <= maxEscaped:
		e.kind = textMember
		e.Text, ok = jsonString(e.Text)
	case e.kind == formMember || e.kind == stringMember:
		ok = false
	}
	if !ok {
		e.kind = brokenMember
	}
	return e
}

// AddQuery adds the pairs of a query. A query with a "#" is garbled, because some servers end the query at the "#".
func (m *Members) AddQuery(s string) {
	m.garbled = m.garbled || strings.IndexByte(s, '#') >= 0
	m.addForm(s)
}

// addForm adds the pairs of a query or a form. If s has a ";", which some servers read as "&", the pairs of both
// readings are added.
func (m *Members) addForm(s string) {
	m.addPairs(s, "&")
	if !m.garbled && strings.IndexByte(s, ';') >= 0 {
		m.addPairs(s, "&;")
	}
}

// maxPairs is the maximum number of pairs that are read, including empty ones.
const maxPairs = 4 * maxMembers

func (m *Members) addPairs(s, separators string) {
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
			m.addPair(pair)
		}
	}
}

// maxFieldName is the length of the longest name of a field, as it is written.
const maxFieldName = 1 << 10

func (m *Members) addPair(pair string) {
	name, value, _ := strings.Cut(pair, "=")
	ok := len(name) <= maxFieldName
	if ok {
		name, ok = m.unescapedName(name)
	}
	if !ok {
		m.garbled = true
		return
	}
	m.add(Member{name: name, Text: value, kind: formMember})
}

// unescapedName unescapes a name like formText.
func (m *Members) unescapedName(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, true
	}
	start := len(m.names)
	m.names = appendForm(m.names, s)
	return m.since(start), validEscapes(s) && !escaped(m.names[start:])
}

// since returns m.names from the index start.
func (m *Members) since(start int) string {
	return unsafe.String(unsafe.SliceData(m.names[start:]), len(m.names)-start)
}

// formText unescapes a value of a form, once. It returns false if servers may read the value differently: because
// escapes are invalid or obsolete ("%u0061"), or because the result has escapes that a server might unescape again.
func formText(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, true
	}
	text := appendForm(nil, s)
	return string(text), validEscapes(s) && !escaped(text)
}

// appendForm appends s with its escapes resolved, and with a space for each "+".
func appendForm(dst []byte, s string) []byte {
	start := len(dst)
	dst = append(dst, s...)
	for i, c := range dst[start:] {
		if c == '+' {
			dst[start+i] = ' '
		}
	}
	return percent.AppendDecoded(dst[:start], unsafe.String(unsafe.SliceData(dst[start:]), len(s)))
}

func validEscapes(s string) bool {
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			return true
		}
		if _, ok := percent.Byte(s, i); !ok {
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
		if _, ok := percent.Pair(s[i+1], s[i+2]); ok {
			return true
		}
		s = s[i+1:]
	}
}

// AddCookies adds the cookies of a Cookie header. Values that some server treats as equal must be equal here, so
// values are unquoted and unescaped, as some servers do. Some servers end a cookie at a comma or white space. If a
// value has such a character, the cookies before and after the character count as broken.
func (m *Members) AddCookies(header string) {
	for n, more := 0, true; more && !m.garbled; n++ {
		var pair string
		pair, header, more = strings.Cut(header, ";")
		m.garbled = n == maxPairs
		name, value, found := strings.Cut(trimBlanks(pair), "=")
		if !found {
			continue
		}
		e := Member{name: strings.TrimRight(name, " \t")}
		value = trimBlanks(value)
		if strings.ContainsAny(value, ", \t") {
			e.kind = brokenMember
			m.addBroken(value)
		}
		if strings.ContainsAny(e.name, "%, \t") {
			m.addBroken("," + string(percent.AppendDecoded(nil, e.name)))
		}
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
			if strings.IndexByte(value, '\\') >= 0 {
				e.kind = brokenMember // Python unescapes quoted values
			}
		}
		if strings.IndexByte(value, '"') >= 0 {
			e.kind = brokenMember
		}
		if strings.IndexByte(value, '%') >= 0 {
			value = string(percent.AppendDecoded(nil, value))
		}
		e.Text = value
		m.add(e)
	}
}

// addBroken adds, as broken members, the names of the cookies that some servers find after commas and white space
// in a value.
func (m *Members) addBroken(value string) {
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
		m.add(Member{name: name, kind: brokenMember})
	}
}

// Header returns the value of a header from its lines. The value is garbled if the lines differ, if it starts or
// ends with a space of Latin-1, which servers in Python drop, or if it has encoded words of mail ("=?utf-8?q?x?="),
// which some servers decode.
func Header(lines []string) (string, Presence) {
	if len(lines) == 0 {
		return "", Absent
	}
	value := trimBlanks(lines[0])
	for _, line := range lines[1:] {
		if trimBlanks(line) != value {
			return "", Garbled
		}
	}
	if value != "" && (latin1Space(value[0]) || latin1Space(value[len(value)-1]) || encodedWord(value)) {
		return "", Garbled
	}
	return Value(value)
}

// encodedWord reports whether a value may have an encoded word. It is fast for values without a question mark, which
// are nearly all values.
func encodedWord(s string) bool {
	return strings.IndexByte(s, '?') >= 0 && strings.Contains(s, "=?")
}

func latin1Space(c byte) bool { return c == 0x85 || c == 0xA0 }

// trimBlanks is strings.Trim(s, " \t"), fast for texts without blanks at their ends.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
