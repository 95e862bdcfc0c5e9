package policy

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
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
// their order, and as often as they are there.
type members struct {
	list    []member
	garbled bool // what is there cannot be relied upon
}

type member struct {
	name, text string
	kind       memberKind
}

type memberKind uint8

const (
	textMember memberKind = iota
	numberMember
	brokenMember // has no text that all servers agree on
)

// maxMembers is the most members that are looked at: servers stop somewhere, too.
const maxMembers = 4096

func (m *members) add(name, text string, kind memberKind) {
	if len(m.list) == maxMembers || !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError) {
		m.garbled = true // some servers drop bytes that are not UTF-8
		return
	}
	m.list = append(m.list, member{name, text, kind})
}

// get returns the member of that name. Names differ not by case, nor in what PHP does
// to them: see sameName. If two have the name and differ, it is garbled.
func (m *members) get(name string) (member, presence) {
	if m.garbled {
		return member{}, garbled
	}
	var found member
	state := absent
	for _, e := range m.list {
		same, whole := sameName(e.name, name)
		switch {
		case !same:
			continue
		case !whole || e.kind == brokenMember || state == present && e.text != found.text:
			return member{}, garbled
		}
		e.kind = max(e.kind, found.kind) // a number in one place, perhaps text in the other
		found, state = e, present
	}
	if found.text == "" {
		return member{}, absent
	}
	return found, state
}

// sameName reports whether a server may take the name s of a member for name. PHP drops
// spaces before a name, ends it at NUL, and takes dots and spaces for underscores. A
// name such as "user[]" makes a list or a map of "user", and is not the whole of it, and
// neither is one with other characters around it that some servers drop.
func sameName(s, name string) (same, whole bool) {
	if len(s) == len(name) && strings.EqualFold(s, name) {
		return true, true
	}
	if strings.EqualFold(phpName(s), phpName(name)) {
		return true, true
	}
	if strings.IndexByte(name, '[') < 0 {
		s, _, _ = strings.Cut(s, "[")
	}
	s = strings.TrimFunc(s, dropped)
	return strings.EqualFold(phpName(s), phpName(name)), false
}

// dropped reports whether some servers drop the character from the ends of a name.
func dropped(r rune) bool { return r == '\uFEFF' || !unicode.IsGraphic(r) || unicode.IsSpace(r) }

var phpNames = strings.NewReplacer(" ", "_", ".", "_")

func phpName(s string) string {
	if !strings.ContainsAny(s, " .\x00") {
		return s
	}
	s, _, _ = strings.Cut(s, "\x00")
	return phpNames.Replace(strings.TrimLeft(s, " "))
}

// addForm adds the pairs of a query or a form. Where there is a ";", which some servers
// take for a "&", both readings are added.
func (m *members) addForm(s string) {
	m.addPairs(s, "&")
	if strings.IndexByte(s, ';') >= 0 {
		m.addPairs(s, "&;")
	}
}

func (m *members) addPairs(s, separators string) {
	for more := s != ""; more; {
		pair := s
		i := strings.IndexAny(s, separators)
		if more = i >= 0; more {
			pair, s = s[:i], s[i+1:]
		}
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, _ = formText(name)
		value, ok := formText(value)
		kind := textMember
		if !ok {
			kind = brokenMember
		}
		m.add(name, value, kind)
	}
}

// formText unescapes a name or a value of a form, and reports whether its escapes are valid.
func formText(s string) (string, bool) {
	if !strings.ContainsAny(s, "%+") {
		return s, true
	}
	ok := true
	for i := range len(s) {
		if s[i] == '%' {
			_, valid := unhex(s, i)
			ok = ok && valid
		}
	}
	return string(appendUnescaped(nil, strings.ReplaceAll(s, "+", " "))), ok
}

// addCookies adds the cookies of a Cookie header. Values may be quoted, and are unescaped,
// since some servers do: what is the same to any of them shall be the same here. To some
// servers a comma ends a cookie, so that those on both sides of it are broken.
func (m *members) addCookies(header string) {
	for more := true; more; {
		var pair string
		pair, header, more = strings.Cut(header, ";")
		name, value, found := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !found {
			continue
		}
		kind := textMember
		if strings.IndexByte(value, ',') >= 0 {
			kind = brokenMember
			m.addBroken(value)
		}
		value = strings.Trim(value, " \t")
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		if strings.IndexByte(value, '%') >= 0 {
			value = string(appendUnescaped(nil, value))
		}
		m.add(strings.TrimRight(name, " \t"), value, kind)
	}
}

// addBroken adds the names of what may be cookies behind the commas of a value.
func (m *members) addBroken(value string) {
	for _, rest, more := strings.Cut(value, ","); more; {
		var piece string
		piece, rest, more = strings.Cut(rest, ",")
		name, _, _ := strings.Cut(piece, "=")
		m.add(strings.Trim(name, " \t"), "", brokenMember)
	}
}

// addJSON adds the members of a JSON object, and reports whether data is one and nothing else.
func (m *members) addJSON(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return false
		}
		text, kind := jsonText(raw)
		m.add(name.(string), text, kind) // what is before a colon is a string
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return false
	}
	_, err := d.Token()
	return err == io.EOF
}

// jsonText returns the text of a JSON value; null is no text.
func jsonText(raw json.RawMessage) (string, memberKind) {
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil || strings.ContainsRune(s, utf8.RuneError) {
			return "", brokenMember // not UTF-8, or half of a surrogate pair
		}
		return s, textMember
	case '{', '[':
		return "", brokenMember
	case 'n':
		return "", textMember
	case 't', 'f':
		return string(raw), textMember
	}
	return string(raw), numberMember
}

// jsonObject returns data from its "{" on, or nil if it does not begin with one.
func jsonObject(data []byte) []byte {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	return data
}

// readBody reads a body that is not empty, together with the query of the request.
//
// Servers that read JSON seldom look at the Content-Type, so that whatever begins with
// a brace is read as JSON. Those that read forms do look at it. Many look into the query
// as well, whatever the body is.
func readBody(data []byte, h http.Header, query string) (m members) {
	form, readable := bodyType(h)
	object := jsonObject(data)
	switch {
	case !readable || !form && object == nil:
		return members{garbled: true}
	case object != nil && !m.addJSON(object):
		if !form {
			return members{garbled: true}
		}
		m = members{}
	}
	if form {
		m.addForm(string(data))
	}
	m.addForm(query)
	return m
}

// bodyType reports whether a body is a form, and whether it can be read at all: it is
// neither compressed nor in another encoding than UTF-8.
func bodyType(h http.Header) (form, readable bool) {
	encoding, _ := headerValue(h["Content-Encoding"])
	if encoding != "" && !strings.EqualFold(encoding, "identity") || len(h["Content-Encoding"]) > 1 {
		return false, false
	}
	value, state := headerValue(h["Content-Type"])
	if state != present {
		return false, state == absent
	}
	kind, params, err := mime.ParseMediaType(value)
	if err != nil {
		return false, false
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
	default:
		return false, false
	}
	return kind == "application/x-www-form-urlencoded", true
}

// headerValue returns the value of a header from its lines. Lines that differ are garbled.
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
	if value == "" {
		return "", absent
	}
	return value, present
}

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
