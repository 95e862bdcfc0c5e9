package checkapi

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// reader reads JSON of a known shape. It does not use reflection, which would take twice as long. It accepts the
// JSON of RFC 8259, except duplicate names and unpaired surrogates, because other parsers could read these
// differently. Texts without escapes share memory with the input.
//
// Its methods return whether they succeeded. After a failure, the field problem is set.
type reader struct {
	s       string
	i       int
	problem *problem
}

func (d *reader) fail(format string, args ...any) bool {
	d.problem = badMember("", format, args...)
	return false
}

// within adds the name of a member to the problem. It returns false.
func (d *reader) within(name string) bool {
	d.problem.within(name)
	return false
}

func (d *reader) space() { d.i = jsonscan.Space(d.s, d.i) }

// eat skips c if c comes next, and reports whether it did.
func (d *reader) eat(c byte) bool {
	d.space()
	if d.i == len(d.s) || d.s[d.i] != c {
		return false
	}
	d.i++
	return true
}

// expect skips c, and fails if c does not come next.
func (d *reader) expect(c byte) bool {
	return d.eat(c) || d.fail("this is not JSON: %q is missing %s", c, d.where())
}

func (d *reader) where() string {
	if d.i == len(d.s) {
		return "at the end"
	}
	return "at byte " + strconv.Itoa(d.i)
}

// end fails unless the input ends.
func (d *reader) end() bool {
	d.space()
	return d.i == len(d.s) || d.fail("this is not JSON: unexpected text after the value %s", d.where())
}

// more reports whether another element or member follows. If it returns false, the reader has skipped the closing
// bracket or has failed.
func (d *reader) more(closing byte) bool {
	if d.eat(',') {
		return true
	}
	if !d.eat(closing) {
		d.fail("this is not JSON: \",\" or %q is missing %s", closing, d.where())
	}
	return false
}

// members reads an object. After the name of each member, it calls value, which reads the value.
func (d *reader) members(value func(name string) bool) bool {
	if !d.eat('{') {
		return d.fail("it must be an object")
	}
	if d.eat('}') {
		return true
	}
	for {
		name, ok := d.text("the name of a member")
		if !ok || !d.expect(':') {
			return false
		}
		if !value(name) {
			return d.within(name)
		}
		if !d.more('}') {
			return d.problem == nil
		}
	}
}

// elements reads a list. For each element, it calls value, which reads the element.
func (d *reader) elements(value func() bool) bool {
	if !d.eat('[') {
		return d.fail("it must be a list")
	}
	if d.eat(']') {
		return true
	}
	for n := 0; ; n++ {
		if !value() {
			return d.within(strconv.Itoa(n))
		}
		if !d.more(']') {
			return d.problem == nil
		}
	}
}

// text reads a string. Errors call it by the label.
func (d *reader) text(label string) (string, bool) {
	d.space()
	if d.i == len(d.s) || d.s[d.i] != '"' {
		return "", d.fail("%s must be text", label)
	}
	start := d.i + 1
	if d.i = jsonscan.String(d.s, d.i); d.i < 0 {
		d.i = ^d.i
		return "", d.fail("this is not JSON: %s is not closed, or has a control character or an unknown escape %s", label, d.where())
	}
	text, whole := d.s[start:d.i-1], true
	if strings.IndexByte(text, '\\') >= 0 {
		var unescaped []byte
		unescaped, whole = jsonscan.Unescape(make([]byte, 0, len(text)), text)
		text = string(unescaped)
	}
	switch {
	case !whole:
		return "", d.fail("%s has half of a surrogate pair, which is not a character", label)
	case !utf8.ValidString(text):
		return "", d.fail("%s is not UTF-8", label)
	}
	return text, true
}

// integer reads a whole number.
func (d *reader) integer(least, most int64) (int64, bool) {
	d.space()
	end := max(d.i, jsonscan.Number(d.s, d.i))
	n, err := strconv.ParseInt(d.s[d.i:end], 10, 64)
	d.i = end
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, d.fail("it must be a whole number")
	case err != nil || n < least || n > most:
		return 0, d.fail("it must be a number from %d to %d", least, most)
	}
	return n, true
}

// boolean reads true or false.
func (d *reader) boolean() (value, ok bool) {
	d.space()
	end := max(d.i, jsonscan.Value(d.s, d.i, 0))
	text := d.s[d.i:end]
	d.i = end
	return text == "true", text == "true" || text == "false" || d.fail("it must be true or false")
}
