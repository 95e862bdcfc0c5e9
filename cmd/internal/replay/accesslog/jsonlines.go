package accesslog

import (
	"bytes"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// jsonLog is a log with a JSON object in each line.
type jsonLog struct {
	// fields has the path of each value of a request. Blanks separate several paths; the first path that a line has
	// counts. The values from [whats] on are the format's own.
	fields []string
	when   func(e *Entry, slot int) (int64, error)
	// begin checks a line before its usual values are read, and returns [ErrSkip] for a line without a request.
	// finish reads the other values.
	begin, finish func(e *Entry) error
}

// reader returns a function that reads a line.
func (l *jsonLog) reader() func([]byte, *Entry) error {
	p := paths{}
	for slot, all := range l.fields {
		for rank, path := range strings.Fields(all) {
			p.add(path, slot, uint8(rank))
		}
	}
	slots := max(len(l.fields), whats)
	return func(line []byte, e *Entry) error {
		if len(e.values) < slots {
			e.values = make([]value, slots)
		}
		if !p.read(line, e.values) {
			return errJSON
		}
		if err := l.begin(e); err != nil {
			return err
		}
		if err := e.usual(l.when); err != nil {
			return err
		}
		return l.finish(e)
	}
}

// usual reads the values that every format may have.
func (e *Entry) usual(when func(e *Entry, slot int) (int64, error)) error {
	e.took(whatNanos, -3)
	e.took(whatMicros, 0)
	e.took(whatMillis, 3)
	e.took(whatSeconds, 6)
	if text := e.textIn(whatLasting); len(text) > 0 && text[len(text)-1] > '9' { // a number may have any unit, so only text is read
		e.took(whatLasting, 0)
	}
	if at, err := when(e, whatBegan); err == nil {
		e.Time = at
	} else if at, err := when(e, whatEnded); err == nil {
		e.ended(at)
	} else {
		return err
	}
	if err := e.status(whatStatus); err != nil {
		return err
	}
	e.sent(whatSent)
	e.tokens()
	e.Model = e.textIn(whatModel)
	e.Method, e.Target = e.textIn(whatMethod), e.textIn(whatTarget)
	if len(e.Target) == 0 {
		e.Target = e.join(e.textIn(whatPath), e.textIn(whatQuery))
	}
	e.Client, e.Forwarded, e.User = withoutPort(e.textIn(whatClient)), e.list(whatForwarded), e.textIn(whatUser)
	e.Host, e.Referer, e.UserAgent, e.ID = e.textIn(whatHost), e.textIn(whatReferer), e.textIn(whatAgent), e.textIn(whatID)
	return nil
}

// tokens reads how many tokens the response reports.
func (e *Entry) tokens() {
	for _, one := range [...]struct {
		slot int
		to   *int64
	}{{whatTokens, &e.Tokens.Total}, {whatInput, &e.Tokens.Input}, {whatOutput, &e.Tokens.Output}, {whatCached, &e.Tokens.Cached}} {
		if n, ok := scaled(e.textIn(one.slot), 0); ok && n >= 0 {
			*one.to = min(n, maxTokens)
		}
	}
	e.Tokens.complete()
}

// maxTokens is more than any response has.
const maxTokens = 1_000_000_000

// has reports whether the line has a value in a slot, even if the value is null.
func (e *Entry) has(slot int) bool { return e.values[slot].raw != nil }

// textIn returns the text in a slot. It returns nothing for "-", which many programs write for a missing value.
func (e *Entry) textIn(slot int) []byte {
	b := e.text(e.values[slot])
	if len(b) == 1 && b[0] == '-' {
		return nil
	}
	return b
}

// list returns the text in a slot, or all texts of an array with commas between them.
func (e *Entry) list(slot int) []byte {
	if raw := e.values[slot].raw; len(raw) > 0 && raw[0] == '[' {
		return e.joined(raw)
	}
	return e.textIn(slot)
}

// joined returns the texts of an array with commas between them, in the memory of the entry.
func (e *Entry) joined(array []byte) []byte {
	from, some := len(e.own), false
	for item := range jsonscan.Elements(array) {
		if item[0] != '"' {
			continue
		}
		if some {
			e.own = append(e.own, ", "...)
		}
		e.own, _ = jsonscan.Unescape(e.own, item[1:len(item)-1])
		some = true
	}
	return e.own[from:len(e.own):len(e.own)]
}

// is reports whether the text in a slot equals word. It does not unescape the text, so word must contain only
// characters that programs do not escape.
func (e *Entry) is(slot int, word string) bool {
	raw := e.values[slot].raw
	return len(raw) == len(word)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == word
}

// status reads the status in a slot. A request without a response has no status.
func (e *Entry) status(slot int) error {
	b := e.textIn(slot)
	if len(b) == 0 {
		return nil
	}
	n, ok := scaled(b, 0)
	if !ok || n < 0 || n > 999 {
		return errStatus
	}
	e.Status = int(n)
	return nil
}

// sent reads the number of bytes of the response, from a number or a string with a number.
func (e *Entry) sent(slot int) {
	if n, ok := scaled(e.textIn(slot), 0); ok && n >= 0 {
		e.Sent = n
	}
}

// took reads the duration of the request. The unit of a number is ten to the power of shift microseconds.
func (e *Entry) took(slot, shift int) {
	if n, ok := lasting(e.textIn(slot), shift); ok {
		e.Duration = n
	}
}

// ended sets the end of the request, and turns it into the start if the duration is known.
func (e *Entry) ended(at int64) {
	e.Time, e.Ended = at, e.Duration < 0
	if !e.Ended {
		e.Time -= e.Duration
	}
}

// timeIn returns a function that reads the time in a slot.
func timeIn(zone *time.Location) func(e *Entry, slot int) (int64, error) {
	return func(e *Entry, slot int) (int64, error) {
		if at, ok := anyTime(e.textIn(slot), zone); ok {
			return at, nil
		}
		return 0, errTime
	}
}

// someClient returns an error if a line does not name the client. Formats that always name the client call it last.
func (e *Entry) someClient() error {
	if len(e.Client) == 0 {
		return errClient
	}
	return nil
}

// header adds a field of the request's header. If User-Agent or Referer comes several times, the first counts.
func (e *Entry) header(name, value []byte) {
	own := &e.UserAgent
	switch string(name) {
	case "User-Agent":
	case "Referer":
		own = &e.Referer
	default:
		e.Headers = append(e.Headers, Field{name, value})
		return
	}
	if *own == nil {
		*own = value
	}
}

// withoutPort returns an address without its port, for addresses such as 192.0.2.1:80 and [2001:db8::1]:80. An
// address with several colons and without brackets has no port.
func withoutPort(b []byte) []byte {
	if len(b) > 0 && b[0] == '[' {
		if end := bytes.IndexByte(b, ']'); end > 0 {
			return b[1:end]
		}
	}
	if i := bytes.IndexByte(b, ':'); i >= 0 && bytes.IndexByte(b[i+1:], ':') < 0 {
		return b[:i]
	}
	return b
}
