package main

import (
	"fmt"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// border is where the program writes to standard output or standard error. Much of what commands print
// was sent by clients, so it escapes what would act on a terminal: control characters, also those of one
// byte, and characters that turn the direction of text around or cannot be seen. "\u202e" means the same
// to readers of JSON and YAML.
type border struct {
	file *os.File
	half []byte // the beginning of a character
	err  error  // of the first write that failed
}

func (b *border) Write(p []byte) (int, error) {
	text := append(b.half, p...)
	b.half = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1 && !utf8.FullRune(text):
			b.half = append(b.half, text...)
			n = len(text)
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case acts(r) && r > 0xFFFF: // as JSON writes it: it has no "\U"
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		case acts(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	if _, err := b.file.Write(out); err != nil {
		if b.err == nil {
			b.err = err
		}
		return 0, err
	}
	return len(p), nil
}

// acts reports whether r does something in a terminal besides appearing. Joiners stay: many languages
// cannot be written without.
func acts(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	switch r {
	case '\n', '\t', zeroWidthNonJoiner, zeroWidthJoiner:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// terminalOf returns the terminal behind a writer or a reader of a command, for what moves the cursor;
// nil if it is none, or one that cannot.
func terminalOf(stream any) *os.File {
	f := fileOf(stream)
	if f == nil || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

// fileOf returns the file behind a writer or a reader of a command, or nil.
func fileOf(stream any) *os.File {
	if b, ok := stream.(*border); ok {
		return b.file
	}
	f, _ := stream.(*os.File)
	return f
}
