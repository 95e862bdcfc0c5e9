package fields

import (
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/sluicehq/sluice/policy/internal/fold"
)

// bodyKind is the kind of a body according to its header fields.
type bodyKind uint8

const (
	doubtfulBody bodyKind = iota // compressed, in a charset other than UTF-8, or with an unclear Content-Type
	otherBody                    // of an unknown type
	jsonBody
	formBody // a form, plain text, or without a type: some servers read all of these as a form
	multipartBody
)

// AddBody adds the fields of a body that is not empty: of a form, of a JSON object, or of
// multipart/form-data.
//
// Servers decide differently how to read a body. Servers that expect JSON seldom check the Content-Type. Servers that
// expect a form often check only its start, and some treat a body without a Content-Type as a form. So every body is
// read in all ways in which a server may read it: a body that starts with a brace must be a valid object, and pairs
// in it such as name=value are read as well. If servers may disagree about a body, it is garbled.
func (m *Members) AddBody(data []byte, h http.Header) {
	kind, boundary := kindOfBody(h)
	text := unsafe.String(unsafe.SliceData(data), len(data))
	switch start := jsonStart(data); {
	case kind == multipartBody:
		m.addMultipart(text, boundary)
		m.loose = text
	case kind == doubtfulBody || !utf8.Valid(data):
		m.garbled = true
	case len(start) > 0 && start[0] == '{':
		m.json = kind == jsonBody
		m.garbled = !m.addJSON(start, true) || m.garbled
		m.loose = text
	case len(start) > 0 && start[0] == '[', kind == otherBody, kind == jsonBody:
		m.garbled = true
	case strings.ContainsFunc(strings.TrimRight(text, "\r\n"), notInForms):
		m.garbled = true
	default:
		m.odd = !plainForm(text)
		m.addForm(text)
	}
}

// notInForms reports whether a character occurs in JSON, XML and text in other encodings, but is escaped in forms.
// Servers may read a body with such a character as something other than a form, even if it has pairs.
func notInForms(r rune) bool { return r < ' ' || r == 0x7F || r == '{' || r == '<' }

// plainForm reports whether s has only characters of forms, so that no server reads it as anything else.
func plainForm(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c <= ' ' || strings.IndexByte("\"<>\\[]{}:", c) >= 0 {
			return false
		}
	}
	return true
}

// EncodedBody reports whether a body with these header fields is, or may be, compressed.
func EncodedBody(h http.Header) bool {
	encoding, _ := Header(h["Content-Encoding"])
	return encoding != "" && !strings.EqualFold(encoding, "identity") || len(h["Content-Encoding"]) > 1
}

// kindOfBody returns the kind of a body by its header fields, and the boundary of a multipart body.
func kindOfBody(h http.Header) (kind bodyKind, boundary string) {
	if EncodedBody(h) {
		return doubtfulBody, ""
	}
	value, state := Header(h["Content-Type"])
	switch {
	case state == Garbled:
		return doubtfulBody, ""
	case state == Absent || value == formType || value == jsonType:
		return plainKind(value), ""
	case len(value) > maxType:
		return doubtfulBody, ""
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
	if !slices.Contains(utf8Names, strings.ToLower(params["charset"])) {
		return doubtfulBody, ""
	}
	return plainKind(typ), ""
}

// utf8Names has the charsets that are read as UTF-8.
var utf8Names = []string{"", "utf-8", "utf8", "us-ascii"}

// maxType is the length of the longest Content-Type that is read.
const maxType = 256

const (
	formType      = "application/x-www-form-urlencoded"
	jsonType      = "application/json"
	multipartType = "multipart/form-data;"
)

func plainKind(typ string) bodyKind {
	switch typ {
	case "", formType, "text/plain":
		return formBody
	case jsonType:
		return jsonBody
	}
	return otherBody
}

// plainBoundary returns the boundary if s has no other parameter, and the boundary has only characters that need no
// quotes, as in requests of real clients.
func plainBoundary(s string) (string, bool) {
	name, value, _ := strings.Cut(trimBlanks(s), "=")
	if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
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

// addMultipart adds the fields of a multipart/form-data body (RFC 7578) if it has the form that browsers and client
// libraries write. Servers disagree about the rest of the format, and about the errors that they tolerate.
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
			return // the final delimiter
		}
	}
	m.garbled = true
}

// addField adds the part between two delimiters, and reports whether the part is a field.
func (m *Members) addField(part string) bool {
	part, ok := strings.CutPrefix(part, "\r\n")
	part, ok2 := strings.CutSuffix(part, "\r\n")
	head, value, ok3 := strings.Cut(part, "\r\n\r\n")
	if !ok || !ok2 || !ok3 {
		return false
	}
	e := Member{Text: value}
	named := false
	for more := true; more; {
		var line string
		line, head, more = strings.Cut(head, "\r\n")
		name, value, ok := strings.Cut(line, ": ")
		if !ok || strings.ContainsAny(line, "\r\n\x00") {
			return false
		}
		switch strings.ToLower(name) {
		case "content-disposition":
			if named || !e.disposition(value) {
				return false
			}
			named = true
		case "content-type":
			if e.kind = max(e.kind, kindOfPart(value)); e.kind == brokenMember && named && e.name == "" {
				return false
			}
		case "content-length":
		case "content-transfer-encoding":
			if !strings.EqualFold(value, "binary") && !strings.EqualFold(value, "8bit") && !strings.EqualFold(value, "7bit") {
				return false
			}
		default:
			return false
		}
	}
	m.add(e)
	return named
}

// kindOfPart returns the kind of a field by its media type: textMember for text, and brokenMember otherwise.
func kindOfPart(typ string) memberKind {
	typ, charset, _ := strings.Cut(strings.ToLower(typ), "; charset=")
	if typ == "text/plain" && slices.Contains(utf8Names, charset) {
		return textMember
	}
	return brokenMember
}

// disposition reads the name of a field from a Content-Disposition such as form-data; name="username". It returns
// false if servers could read different names.
func (e *Member) disposition(s string) bool {
	rest, ok := cutPrefixFold(s, "form-data; name=")
	if !ok {
		return false
	}
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		if e.name, rest, ok = strings.Cut(quoted, `"`); !ok {
			return false
		}
	} else {
		e.name, rest, _ = strings.Cut(rest, ";")
		if rest != "" || strings.ContainsFunc(e.name, func(r rune) bool { return r >= utf8.RuneSelf || r != '_' && r != '-' && r != '.' && !isAlnum(byte(r)) }) {
			return false
		}
	}
	if strings.ContainsAny(e.name, `%\`) {
		return false
	}
	if rest != "" {
		e.kind = brokenMember // a file
	}
	return rest == "" || strings.HasPrefix(rest, "; filename") && strings.Count(strings.ToLower(rest), "name") == strings.Count(rest, "; filename") &&
		!strings.Contains(rest, `\`)
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
