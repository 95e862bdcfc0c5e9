package resp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
)

// A command has at most maxArgs arguments and at most maxCommand bytes, including names and lengths. All known
// commands are much smaller.
const (
	maxArgs    = 64
	maxCommand = 64 << 10
)

// decoder reads commands from a buffer. args are slices of that buffer, and are valid until the next call.
type decoder struct{ args [][]byte }

// Errors for clients that speak another protocol or send commands that are too large.
var (
	errCount   = errors.New("invalid multibulk length")
	errMany    = errors.New("too many arguments")
	errLength  = errors.New("invalid bulk length")
	errLarge   = errors.New("the command is too large")
	errDollar  = errors.New("expected '$'")
	errEnding  = errors.New("a bulk string must end with CRLF")
	errQuotes  = errors.New("unbalanced quotes in request")
	errBrowser = errors.New("this is not HTTP")
)

// next reads the command at the start of buf, and returns its length, or 0 if the command is incomplete. An empty
// command has no arguments.
func (d *decoder) next(buf []byte) (n int, err error) {
	d.args = d.args[:0]
	switch {
	case len(buf) == 0:
		return 0, nil
	case buf[0] == '*':
		n, err = d.array(buf)
	default:
		n, err = d.inline(buf[:min(len(buf), maxCommand)])
	}
	if n == 0 && err == nil && len(buf) >= maxCommand {
		err = errLarge
	}
	return n, err
}

func (d *decoder) array(buf []byte) (n int, err error) {
	count, at, err := number(buf, 1, maxArgs, errCount, errMany)
	if at == 0 || err != nil {
		return 0, err
	}
	for range count {
		var arg []byte
		if arg, at, err = bulk(buf, at); at == 0 || err != nil {
			return 0, err
		}
		d.args = append(d.args, arg)
	}
	return at, nil
}

// bulk reads a bulk string, and returns the index of its end, or 0 if the string is incomplete.
func bulk(buf []byte, at int) (arg []byte, end int, err error) {
	if at == len(buf) {
		return nil, 0, nil
	}
	if buf[at] != '$' {
		return nil, 0, errDollar
	}
	size, begin, err := number(buf, at+1, maxCommand, errLength, errLarge)
	if begin == 0 || err != nil {
		return nil, 0, err
	}
	end = begin + size
	switch {
	case end+2 > maxCommand:
		return nil, 0, errLarge
	case end+2 > len(buf):
		return nil, 0, nil
	case buf[end] != '\r' || buf[end+1] != '\n':
		return nil, 0, errEnding
	}
	return buf[begin:end:end], end + 2, nil
}

// number reads a length and its CRLF, and returns the index of their end, or 0 if they are incomplete. It returns
// the error bad for a text that is not a length, and the error large for a length above the maximum most.
func number(buf []byte, at, most int, bad, large error) (n, end int, err error) {
	begin := at
	for ; at < len(buf) && '0' <= buf[at] && buf[at] <= '9'; at++ {
		if n = n*10 + int(buf[at]-'0'); n > most {
			return 0, 0, large
		}
		if at > begin && buf[begin] == '0' {
			return 0, 0, bad
		}
	}
	switch {
	case at < len(buf) && (at == begin || buf[at] != '\r'):
		return 0, 0, bad
	case at+1 >= len(buf):
		return 0, 0, nil
	case buf[at+1] != '\n':
		return 0, 0, bad
	}
	return n, at + 2, nil
}

// inline reads a command that is a line of words, as written in telnet.
func (d *decoder) inline(buf []byte) (n int, err error) {
	line, _, whole := bytes.Cut(buf, []byte{'\n'})
	if !whole {
		return 0, nil
	}
	n = len(line) + 1
	for {
		line = bytes.TrimLeft(line, spaces)
		if len(line) == 0 {
			return n, nil
		}
		if len(d.args) == maxArgs {
			return 0, errMany
		}
		word, rest, ok := cutWord(line)
		if !ok {
			return 0, errQuotes
		}
		d.args, line = append(d.args, word), rest
		if browser(d.args[0]) {
			return 0, errBrowser
		}
	}
}

const spaces = " \t\r\v\f\x00"

// browser reports whether a word starts a line of HTTP, which a web page can make a browser send.
func browser(word []byte) bool { return is(word, "POST") || is(word, "HOST:") }

// cutWord cuts the first word off line, and unescapes it in place: in quotes, "\n" is a line feed. A closing quote
// must be followed by a space or by the end of the line.
func cutWord(line []byte) (word, rest []byte, ok bool) {
	word = line[:0]
	for at := 0; at < len(line); {
		switch c := line[at]; {
		case bytes.IndexByte([]byte(spaces), c) >= 0:
			return word, line[at:], true
		case c == '"' || c == '\'':
			if word, at, ok = unquote(word, line, at); !ok {
				return nil, nil, false
			}
		default:
			word = append(word, c)
			at++
		}
	}
	return word, nil, true
}

// unquote appends the quoted text that starts at line[at] to word, and returns the index of its end.
func unquote(word, line []byte, at int) (_ []byte, end int, ok bool) {
	quote := line[at]
	for at++; at < len(line); {
		switch c := line[at]; {
		case c == quote:
			at++
			return word, at, at == len(line) || bytes.IndexByte([]byte(spaces), line[at]) >= 0
		case c == '\\':
			var plain byte
			plain, at = escape(line, at, quote)
			word = append(word, plain)
		default:
			word = append(word, c)
			at++
		}
	}
	return nil, 0, false
}

// escape returns the character for the escape sequence that starts at line[at], and the index of its end.
func escape(line []byte, at int, quote byte) (plain byte, end int) {
	if at+1 == len(line) {
		return '\\', at + 1
	}
	c := line[at+1]
	if quote == '\'' && c != '\'' {
		return '\\', at + 1
	}
	if quote == '"' && c == 'x' && at+3 < len(line) {
		var one [1]byte
		if _, err := hex.Decode(one[:], line[at+2:at+4]); err == nil {
			return one[0], at + 4
		}
	}
	if i := bytes.IndexByte([]byte("nrtba"), c); quote == '"' && i >= 0 {
		return "\n\r\t\b\a"[i], at + 2
	}
	return c, at + 2
}

// is reports whether word equals name, ignoring case.
func is(word []byte, name string) bool {
	return len(word) == len(name) && strings.EqualFold(string(word), name)
}
