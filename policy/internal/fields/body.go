package fields

import (
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/sluicehq/sluice/policy/internal/fold"
)

// bodyKind is what the fields around a body say that it is.
type bodyKind uint8

const (
	doubtfulBody bodyKind = iota // compressed, in another encoding than UTF-8, or said twice
	otherBody                    // JSON, or of a type that is not known
	formBody                     // a form; or nothing or plain text, which some servers read as one
	multipartBody
)

// AddBody adds the fields of a body that is not empty: of a form, of a JSON object, or of
// multipart/form-data.
//
// What a body is depends on the server. Those that read JSON seldom look at the
// Content-Type, those that read forms often look at no more than its beginning, and some
// take for a form whatever lacks one. So every body is read in all the ways that a server
// may read it: whatever begins with a brace has to be an object to the letter, and what has
// pairs as a form has them as well. A body that nobody can be sure of is garbled.
func (m *Members) AddBody(data []byte, h http.Header) {
	kind, boundary := kindOfBody(h)
	text := unsafe.String(unsafe.SliceData(data), len(data))
	switch start := jsonStart(data); {
	case kind == multipartBody:
		m.addMultipart(text, boundary)
		m.addForm(text, false)
	case kind == doubtfulBody || !utf8.Valid(data):
		m.garbled = true
	case len(start) > 0 && start[0] == '{':
		m.garbled = !m.addJSON(start, true) || m.garbled
		m.addForm(text, false)
	case len(start) > 0 && start[0] == '[', kind == otherBody:
		m.garbled = true
	default:
		m.odd = !plainForm(text)
		m.addForm(text, true)
	}
}

// plainForm reports whether s is made of what forms are made of, so that it is nothing else.
func plainForm(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c <= ' ' || strings.IndexByte("\"<>\\[]{}:", c) >= 0 {
			return false
		}
	}
	return true
}

// kindOfBody says what a body is from its fields, and the boundary of a multipart body.
func kindOfBody(h http.Header) (kind bodyKind, boundary string) {
	encoding, _ := Header(h["Content-Encoding"])
	if encoding != "" && !strings.EqualFold(encoding, "identity") || len(h["Content-Encoding"]) > 1 {
		return doubtfulBody, ""
	}
	value, state := Header(h["Content-Type"])
	switch {
	case state == Garbled:
		return doubtfulBody, ""
	case state == Absent || value == formType || value == jsonType:
		return plainKind(value), ""
	case len(value) > len(multipartType) && strings.EqualFold(value[:len(multipartType)], multipartType):
		if boundary, ok := plainBoundary(value[len(multipartType):]); ok {
			return multipartBody, boundary
		}
		return doubtfulBody, ""
	}
	typ, params, err := mime.ParseMediaType(value)
	if err != nil || params["boundary"] != "" || strings.HasPrefix(typ, "multipart/") {
		return doubtfulBody, ""
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
		return plainKind(typ), ""
	}
	return doubtfulBody, ""
}

const (
	formType      = "application/x-www-form-urlencoded"
	jsonType      = "application/json"
	multipartType = "multipart/form-data;"
)

func plainKind(typ string) bodyKind {
	switch typ {
	case "", formType, "text/plain":
		return formBody
	}
	return otherBody
}

// plainBoundary returns the boundary that is all that s says, as clients write it: without
// quotes and of characters that need none.
func plainBoundary(s string) (string, bool) {
	name, value, _ := strings.Cut(trimBlanks(s), "=")
	if !strings.EqualFold(name, "boundary") || value == "" || len(value) > 70 {
		return "", false
	}
	for i := range len(value) {
		if c := value[i]; strings.IndexByte("-_.+'", c) < 0 && !isAlnum(c) {
			return "", false
		}
	}
	return value, true
}

func isAlnum(c byte) bool {
	c = fold.Lower(c)
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
}

// addMultipart adds the fields of a multipart/form-data body (RFC 7578), if it is one as
// browsers and client libraries write it. Of all that the format allows besides, and of
// what its readers forgive, no two of them think alike.
func (m *Members) addMultipart(text, boundary string) {
	delimiter := "--" + boundary
	rest, ok := strings.CutPrefix(text, delimiter)
	for ok && !m.garbled {
		var part string
		if part, rest, ok = strings.Cut(rest, delimiter); ok {
			ok = m.addField(part)
			continue
		}
		if part == "--" || part == "--\r\n" {
			return // the end
		}
	}
	m.garbled = true
}

// addField adds what is between two delimiters, and reports whether that is a field.
func (m *Members) addField(part string) bool {
	part, ok := strings.CutPrefix(part, "\r\n")
	part, ok2 := strings.CutSuffix(part, "\r\n")
	head, value, ok3 := strings.Cut(part, "\r\n\r\n")
	line, more, typed := strings.Cut(head, "\r\n")
	name, file, ok4 := disposition(line)
	if !ok || !ok2 || !ok3 || !ok4 || strings.ContainsAny(line+more, "\r\n\x00") {
		return false
	}
	e := Member{name: name, Text: value}
	if file {
		e.kind = brokenMember
	}
	if typed {
		typ, ok := cutPrefixFold(more, "content-type: ")
		if !ok {
			return false
		}
		if !file && !strings.EqualFold(typ, "text/plain") && !strings.EqualFold(typ, "text/plain; charset=utf-8") {
			e.kind = brokenMember
		}
	}
	m.add(e)
	return true
}

// disposition reads the line that names a field: Content-Disposition: form-data;
// name="username", and perhaps ; filename="x".
func disposition(line string) (name string, file, ok bool) {
	rest, ok := cutPrefixFold(line, `content-disposition: form-data; name="`)
	name, rest, ok2 := strings.Cut(rest, `"`)
	if !ok || !ok2 || strings.ContainsAny(name, `%\`) {
		return "", false, false
	}
	if rest == "" {
		return name, false, true
	}
	filename, ok := strings.CutPrefix(rest, `; filename="`)
	filename, ok2 = strings.CutSuffix(filename, `"`)
	return name, true, ok && ok2 && !strings.ContainsAny(filename, `"\;`)
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
