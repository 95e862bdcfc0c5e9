package accesslog

import (
	"bytes"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// text returns a value as text: the text of a string; a number, true or false as written; or the text of an array's
// first element. It returns nothing for other values.
func (e *Entry) text(v value) []byte {
	raw := v.raw
	if len(raw) > 0 && raw[0] == '[' {
		for raw = range jsonscan.Elements(raw) {
			break
		}
	}
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		return e.unescaped(raw[1 : len(raw)-1])
	case '{', '[', 'n':
		return nil
	}
	return raw
}

// unescaped returns the text of a string, given the bytes between its quotes. Bytes that are not UTF-8 stay as they
// are, because clients may send such bytes. Half a surrogate pair becomes U+FFFD.
func (e *Entry) unescaped(s []byte) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	from := len(e.own)
	e.own, _ = jsonscan.Unescape(e.own, s)
	return e.own[from:len(e.own):len(e.own)]
}
