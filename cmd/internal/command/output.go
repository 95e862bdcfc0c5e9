package command

import (
	"fmt"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// output writes to standard output or standard error. Texts that a command prints may come from clients, so output
// escapes characters that would affect a terminal: control characters, invisible characters, and characters that
// change the direction of text. In JSON and YAML, an escape such as "\u202e" does not change the meaning.
type output struct {
	file *os.File
	half []byte // the start of a character that is not yet complete
	err  error  // the error of the first write that failed
}

func (o *output) Write(p []byte) (int, error) {
	text := append(o.half, p...)
	o.half = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1 && !utf8.FullRune(text):
			o.half = append(o.half, text...)
			n = len(text)
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case acts(r) && r > 0xFFFF: // as in JSON, which has no "\U"
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		case acts(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	if _, err := o.file.Write(out); err != nil {
		if o.err == nil {
			o.err = err
		}
		return 0, err
	}
	return len(p), nil
}

// acts reports whether r can affect a terminal beyond being shown. Joiners are not escaped, because many languages
// need them.
func acts(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	switch r {
	case '\n', '\t', zeroWidthNonJoiner, zeroWidthJoiner:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Terminal returns the terminal to which an output of a command writes, or nil if the output is not a terminal with
// a movable cursor.
func Terminal(stream any) *os.File {
	f := File(stream)
	if f == nil || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

// File returns the file to which an output of a command writes, or nil.
func File(stream any) *os.File {
	if o, ok := stream.(*output); ok {
		return o.file
	}
	f, _ := stream.(*os.File)
	return f
}
