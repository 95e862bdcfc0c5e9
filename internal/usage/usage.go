// Package usage reads numbers from a response while its bytes pass, such as the number of tokens that a language
// model reports at the end of a stream.
//
// A [Scanner] reads JSON, newline-delimited JSON and server-sent events. It accepts the body in pieces of any size.
// It takes two kilobytes: for an unfinished name or number of up to 256 bytes, and for the position in the
// document.
package usage

import (
	"slices"
	"strings"
)

// Scanner reads one response. Call Reset before the first Write. It must not be used concurrently.
type Scanner struct {
	framing framing
	unread  string // the reason why the body is not read, or ""
	started bool   // whether the first byte of the body has been read
	field   int    // how many bytes of dataField the line starts with so far, or otherField
	cr      bool   // whether the previous line ended with CR

	document
}

// Reasons why a body cannot be read: see [Scanner.Unread].
const (
	Encoded   = "encoded"   // the body has a content coding
	Type      = "type"      // the media type is neither JSON nor server-sent events
	Malformed = "malformed" // the body is not JSON
)

// framing is the way in which a body is divided into documents.
type framing uint8

const (
	unreadable framing = iota
	unknown            // the first byte decides
	plain              // one document
	lines              // one document in each line
	events             // one document in the data of each event
)

// Reset prepares s for a response with these header fields. If the content type is empty, s guesses it from the
// first byte.
func (s *Scanner) Reset(p *Paths, contentType, contentEncoding string) {
	numbers := slices.Grow(s.numbers[:0], len(p.nodes))[:len(p.nodes)]
	for i := range numbers {
		numbers[i] = absent
	}
	*s = Scanner{framing: framingOf(contentType), document: document{paths: p, numbers: numbers}}
	s.atTop()
	switch {
	case contentEncoding != "" && !strings.EqualFold(contentEncoding, "identity"):
		s.framing, s.unread = unreadable, Encoded
	case s.framing == unreadable:
		s.unread = Type
	}
}

// framings has the framing of each media type.
var framings = []struct {
	mediaType string
	framing   framing
}{
	{"text/event-stream", events},
	{"application/json", plain},
	{"application/x-ndjson", lines},
	{"application/ndjson", lines},
	{"application/jsonl", lines},
	{"application/x-jsonlines", lines},
	{"", unknown},
}

func framingOf(contentType string) framing {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	for _, f := range framings {
		if strings.EqualFold(mediaType, f.mediaType) {
			return f.framing
		}
	}
	const suffix = "+json"
	if n := len(mediaType) - len(suffix); n > 0 && strings.EqualFold(mediaType[n:], suffix) {
		return plain
	}
	return unreadable
}

// Write reads the next piece of the body. It does not keep b.
func (s *Scanner) Write(b []byte) {
	if !s.started {
		b = s.start(b)
	}
	for len(b) > 0 {
		n := 0
		switch s.framing {
		case unreadable:
			return
		case events:
			n = s.line(b)
		default:
			n = s.read(b)
		}
		if n == len(b) {
			return
		}
		s.lineBreak(b[n])
		b = b[n+1:]
	}
}

// start skips a byte order mark. If the framing is unknown, it also skips white space, and guesses the framing from
// the next byte.
func (s *Scanner) start(b []byte) []byte {
	skip := "\xef\xbb\xbf"
	if s.framing == unknown {
		skip += " \t\r\n"
	}
	for len(b) > 0 && strings.IndexByte(skip, b[0]) >= 0 {
		b = b[1:]
	}
	if len(b) == 0 {
		return b
	}
	s.started = true
	if s.framing == unknown {
		if s.framing = plain; b[0] != '{' && b[0] != '[' {
			s.framing, s.unread = unreadable, Type
		}
	}
	return b
}

const (
	dataField  = "data:"
	otherField = -1
)

// line reads up to the end of a line of an event stream, or to the end of b, and returns how many bytes it has
// read. It passes on the space that may follow the colon, because the space is white space in JSON, too.
func (s *Scanner) line(b []byte) int {
	for i, c := range b {
		switch {
		case s.field == len(dataField):
			return i + s.read(b[i:])
		case c == '\n' || c == '\r':
			return i
		case s.field != otherField && c == dataField[s.field]:
			s.field++
		default:
			s.field = otherField
		}
	}
	return len(b)
}

// lineBreak ends a line with LF or CR.
func (s *Scanner) lineBreak(c byte) {
	switch s.framing {
	case events:
		s.endLine(c)
	case lines:
		s.newline()
		if c == '\n' {
			s.end()
		}
	default:
		s.newline()
	}
}

// endLine ends a line of an event stream with CR, LF or both. An empty line ends the event.
func (s *Scanner) endLine(c byte) {
	switch {
	case s.field == 0 && s.cr && c == '\n': // the LF of a CR LF
	case s.field == 0:
		s.end()
	default:
		s.newline()
	}
	s.field, s.cr = 0, c == '\r'
}

// End ends the body. A number at the end of the body is then complete.
func (s *Scanner) End() {
	if s.framing != unreadable {
		s.end()
	}
}

// Number returns the last number at a path. i is the index of the path in [Compile]. A number in a later document,
// or in a later member of the same name, replaces an earlier one; null and other values do not. Fractions are
// rounded up, negative numbers become 0, and numbers above [MaxNumber] become MaxNumber.
func (s *Scanner) Number(i int) (n int64, found bool) {
	if n = s.numbers[s.paths.leaves[i]]; n == absent {
		return 0, false
	}
	return n, true
}

// Events returns the number of top-level JSON objects: of the events or lines that contain one, or of the elements
// of an array. For a body that is a single object, it returns 1.
func (s *Scanner) Events() int64 { return s.objects }

// Text returns the length of the generated text so far, in bytes as sent, including escapes. OpenAI's Responses API
// streams the text in members named delta, and then repeats it in other members, which do not count.
func (s *Scanner) Text() int64 {
	if s.texts[delta] > 0 {
		return s.texts[delta]
	}
	return s.texts[text]
}

// Ended reports whether the body is known to be complete: its only document has ended, or a stream has sent its
// last event or line, such as [DONE]. Then clients may close the connection.
func (s *Scanner) Ended() bool { return s.done || s.framing == plain && s.whole }

// Pending reports whether the model continues to work in the background after the response, which can add to the
// cost.
func (s *Scanner) Pending() bool { return s.pending && !s.done }

// Unread returns [Encoded], [Type] or [Malformed] if the body cannot be read, and otherwise "". Malformed events or
// lines count only if no other event or line is complete.
func (s *Scanner) Unread() string {
	if s.broken && (s.framing == plain || !s.whole) {
		return Malformed
	}
	return s.unread
}
