package conf

import (
	"fmt"
	"strings"
)

// kind is a kind of token.
type kind uint8

const (
	endOfFile kind = iota
	word
	opens  // {
	closes // }
	ends   // ;
)

type token struct {
	kind   kind
	text   string // for words: the text without quotes and escapes
	line   int
	quoted bool
}

// lexer splits a file into tokens, as nginx does. A "#" starts a comment, and a quote starts a quoted word, only where
// a word can start.
type lexer struct {
	text string // the rest of the file
	file string
	line int
}

func (l *lexer) next() (token, error) {
	l.skipSpace()
	t := token{line: l.line}
	if l.text == "" {
		return t, nil
	}
	switch l.text[0] {
	case '{':
		t.kind = opens
	case '}':
		t.kind = closes
	case ';':
		t.kind = ends
	case '"', '\'':
		t.kind, t.quoted = word, true
		return l.quoted(t)
	default:
		t.kind, t.text = word, l.word()
		return t, nil
	}
	l.text = l.text[1:]
	return t, nil
}

// skipSpace skips white space and comments.
func (l *lexer) skipSpace() {
	for l.text != "" {
		switch l.text[0] {
		case '\n':
			l.line++
		case ' ', '\t', '\r':
		case '#':
			end := strings.IndexByte(l.text, '\n')
			if end < 0 {
				end = len(l.text)
			}
			l.text = l.text[end:]
			continue
		default:
			return
		}
		l.text = l.text[1:]
	}
}

// word reads a word without quotes. The word ends before white space, ";" or "{", except the "{" of "${".
func (l *lexer) word() string {
	i, dollar := 0, false
	for i < len(l.text) {
		c := l.text[i]
		if c == '\\' && i+1 < len(l.text) {
			i, dollar = i+2, false
			continue
		}
		if strings.IndexByte(" \t\r\n;", c) >= 0 || c == '{' && !dollar {
			break
		}
		dollar = c == '$'
		i++
	}
	return unescape(l.take(i))
}

// quoted reads a word in quotes. The closing quote must be followed by white space, ";", "{", ")" or the end of the
// file.
func (l *lexer) quoted(t token) (token, error) {
	quote := l.text[0]
	for i := 1; i < len(l.text); i++ {
		switch l.text[i] {
		case '\\':
			i++
		case quote:
			text := l.take(i + 1)
			t.text = unescape(text[1:i])
			if l.text != "" && strings.IndexByte(" \t\r\n;{)", l.text[0]) < 0 {
				return t, fmt.Errorf("%s:%d: unexpected %.1q after a quoted word", l.file, l.line, l.text)
			}
			l.text = strings.TrimPrefix(l.text, ")")
			return t, nil
		}
	}
	return t, fmt.Errorf("%s:%d: the quote %c is not closed", l.file, t.line, quote)
}

// take returns the next n bytes.
func (l *lexer) take(n int) string {
	text := l.text[:n]
	l.text = l.text[n:]
	l.line += strings.Count(text, "\n")
	return text
}

// escapes has the escapes that nginx replaces. nginx leaves other escapes unchanged, such as those of regular
// expressions.
var escapes = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`, `\t`, "\t", `\r`, "\r", `\n`, "\n")

func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return escapes.Replace(s)
}

// skipLua skips a block of Lua. Braces in it are balanced, except in strings and comments.
func (p *parser) skipLua(d *Directive) error {
	for open := 1; p.text != ""; {
		n := 1
		switch c := p.text[0]; {
		case c == '{':
			open++
		case c == '}':
			open--
		case c == '"', c == '\'':
			n = luaString(p.text)
		case strings.HasPrefix(p.text, "--"):
			if n = strings.IndexByte(p.text, '\n'); n < 0 {
				n = len(p.text)
			}
		}
		p.take(n)
		if open == 0 {
			return nil
		}
	}
	return d.Errorf("the block of %s is not closed", d.Name)
}

// luaString returns the length of the quoted string at the start of s.
func luaString(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0], '\n':
			return i + 1
		}
	}
	return len(s)
}
