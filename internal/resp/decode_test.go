package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// decodeAll returns the commands of data, of which pieces come one after the other, and what is
// left of it, or the error.
func decodeAll(data []byte, piece int) (commands [][]string, rest int, err error) {
	var d decoder
	var buf []byte
	for len(data) > 0 {
		n := min(piece, len(data))
		buf = append(buf, data[:n]...)
		data = data[n:]
		for {
			n, err := d.next(buf[:len(buf):len(buf)])
			if err != nil {
				return commands, 0, err
			}
			if n == 0 {
				break
			}
			commands = append(commands, texts(d.args))
			buf = bytes.Clone(buf[n:])
		}
	}
	return commands, len(buf), nil
}

func texts(args [][]byte) []string {
	all := []string{}
	for _, a := range args {
		all = append(all, string(a))
	}
	return all
}

func encode(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

func TestDecode(t *testing.T) {
	large := strings.Repeat("x", maxCommand)
	for _, c := range []struct {
		in   string
		want [][]string
		rest int
		err  error
	}{
		{in: "*1\r\n$4\r\nPING\r\n", want: [][]string{{"PING"}}},
		{in: "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*0\r\n", want: [][]string{{"ECHO", ""}, {}}},
		{in: "*2\r\n$1\r\n\r\r\n$2\r\n\r\n\r\n", want: [][]string{{"\r", "\r\n"}}},
		{in: "*2\r\n$4\r\nECHO\r\n$1", rest: 16},
		{in: "*1\r\n$4\r\nPING\r", rest: 13},
		{in: "PING\r\n", want: [][]string{{"PING"}}},
		{in: "  ping\t'it''s'\n", err: errQuotes},
		{in: `  ping	'it\'s' "\x41\n\q" a"b c"` + "\n\r\n", want: [][]string{{"ping", "it's", "A\nq", "ab c"}, {}}},
		{in: `ping "a`, rest: 7},
		{in: "ping \"a\n", err: errQuotes},
		{in: "ping \"a\"b\n", err: errQuotes},
		{in: "*-1\r\n", err: errCount},
		{in: "*+1\r\n", err: errCount},
		{in: "*01\r\n", err: errCount},
		{in: "*1\n", err: errCount},
		{in: "*\r\n", err: errCount},
		{in: "*9223372036854775808", err: errMany},
		{in: "*65\r\n", err: errMany},
		{in: strings.Repeat("a ", 65) + "\n", err: errMany},
		{in: "*1\r\n$-1\r\n", err: errLength},
		{in: "*1\r\n$99999999999999999999\r\n", err: errLarge},
		{in: "*1\r\n$65536\r\n", err: errLarge},
		{in: "*2\r\n$1\r\na\r\n$65530\r\n", err: errLarge},
		{in: "*1\r\n:1\r\n", err: errDollar},
		{in: "*1\r\n$1\r\nab\r\n", err: errEnding},
		{in: large, err: errLarge},
		{in: large[1:], rest: maxCommand - 1},
		{in: "*2\r\n$65522\r\n" + large[:65522] + "\r\n", err: errLarge},
		{in: "*1\r\n$65522\r\n" + large[:65522] + "\r\n", want: [][]string{{large[:65522]}}}, // of the largest size
		{in: "*1\r\n$65523\r\n" + large[:65523] + "\r\n", err: errLarge},
		{in: "POST / HTTP/1.1\r\n", err: errBrowser},
		{in: "GET / HTTP/1.1\r\nHost: a\r\n", want: [][]string{{"GET", "/", "HTTP/1.1"}}, err: errBrowser},
	} {
		for _, piece := range []int{1, 2, 7, len(c.in)} {
			if piece < 7 && len(c.in) > 1000 {
				continue
			}
			got, rest, err := decodeAll([]byte(c.in), piece)
			if !reflect.DeepEqual(got, c.want) || rest != c.rest || !errors.Is(err, c.err) {
				t.Errorf("%.40q by %d: %q, rest %d, %v; want %q, %d, %v", c.in, piece, got, rest, err, c.want, c.rest, c.err)
			}
		}
	}
}

// slowParser reads commands in the plainest way: byte by byte, one language feature after the
// other, with no thought of speed or of memory.
type slowParser struct{ r *bufio.Reader }

var errRefused = errors.New("refused")

func (p slowParser) line() (string, error) {
	text, err := p.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(text, "\n"), nil
}

func (p slowParser) number() (int, error) {
	text, err := p.line()
	if err != nil {
		return 0, err
	}
	digits, crlf := strings.CutSuffix(text, "\r")
	n, err := strconv.ParseUint(digits, 10, 31)
	if !crlf || err != nil || strconv.Itoa(int(n)) != digits {
		return 0, errRefused
	}
	return int(n), nil
}

func (p slowParser) command() ([]string, error) {
	first, err := p.r.ReadByte()
	if err != nil {
		return nil, err
	}
	if first != '*' {
		_ = p.r.UnreadByte()
		text, err := p.line()
		if err != nil {
			return nil, err
		}
		return slowWords(text)
	}
	count, err := p.number()
	if err != nil {
		return nil, err
	}
	if count > maxArgs {
		return nil, errRefused
	}
	args := []string{}
	for range count {
		if kind, err := p.r.ReadByte(); err != nil {
			return nil, err
		} else if kind != '$' {
			return nil, errRefused
		}
		size, err := p.number()
		if err != nil {
			return nil, err
		}
		if size > maxCommand {
			return nil, errRefused
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(p.r, data); err != nil {
			return nil, io.EOF
		}
		if string(data[size:]) != "\r\n" {
			return nil, errRefused
		}
		args = append(args, string(data[:size]))
	}
	return args, nil
}

// slowWords splits a line into words.
func slowWords(line string) ([]string, error) {
	words := []string{}
	var word strings.Builder
	inWord, afterQuote := false, false
	var quote byte
	for len(line) > 0 {
		c := line[0]
		line = line[1:]
		space := strings.IndexByte(spaces, c) >= 0
		switch {
		case quote != 0 && c == quote:
			quote, afterQuote = 0, true
		case quote == '\'' && c == '\\' && strings.HasPrefix(line, "'"):
			word.WriteByte('\'')
			line = line[1:]
		case quote == '"' && c == '\\' && line != "":
			if len(line) >= 3 && line[0] == 'x' {
				if n, err := strconv.ParseUint(line[1:3], 16, 8); err == nil {
					word.WriteByte(byte(n))
					line = line[3:]
					continue
				}
			}
			if plain, special := map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'a': '\a'}[line[0]]; special {
				word.WriteByte(plain)
			} else {
				word.WriteByte(line[0])
			}
			line = line[1:]
		case quote != 0:
			word.WriteByte(c)
		case space && inWord:
			words = append(words, word.String())
			word.Reset()
			inWord, afterQuote = false, false
		case space:
		case afterQuote:
			return nil, errRefused
		case c == '"' || c == '\'':
			quote, inWord = c, true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errRefused
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) > maxArgs || len(words) > 0 && (strings.EqualFold(words[0], "post") || strings.EqualFold(words[0], "host:")) {
		return nil, errRefused
	}
	return words, nil
}

// The decoder says of any bytes what a parser says that was written apart from it, in whatever
// pieces they come; and what it accepts is the same when it is written anew.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n*0\r\nPING\r\n", "*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n",
		`a "\x4g\x" 'b\'\n' c"d"` + "\n", "*-1\r\n", "*1\r\n$-1\r\n", "*2\r\n$4\r\nECHO\r\n$3\r\nab", "\x00 host: x\n", "*64\r\n$1\r\na\r\n", "*99999999999\r\n",
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		if len(data) >= maxCommand {
			return // what is too large is decided sooner than by reading it: see TestDecode
		}
		whole, rest, err := decodeAll(data, len(data)+1)
		inPieces, restInPieces, errInPieces := decodeAll(data, max(1, piece))
		if !reflect.DeepEqual(whole, inPieces) || rest != restInPieces || !errors.Is(errInPieces, err) {
			t.Fatalf("at once %q, %d, %v; in pieces %q, %d, %v", whole, rest, err, inPieces, restInPieces, errInPieces)
		}
		p := slowParser{bufio.NewReader(bytes.NewReader(data))}
		for i := 0; ; i++ {
			want, slowErr := p.command()
			if i == len(whole) {
				// What is refused may be refused before the line has ended.
				if slowErr == nil || err == nil && errors.Is(slowErr, errRefused) {
					t.Fatalf("command %d: %v, the slow parser has %q, %v", i, err, want, slowErr)
				}
				break
			}
			if slowErr != nil || !reflect.DeepEqual(whole[i], want) {
				t.Fatalf("command %d: %q, the slow parser has %q, %v", i, whole[i], want, slowErr)
			}
		}
		for _, args := range whole {
			if again, rest, err := decodeAll(encode(args), 5); len(again) != 1 || !reflect.DeepEqual(again[0], args) || rest != 0 || err != nil {
				t.Fatalf("%q written anew is %q, %d, %v", args, again, rest, err)
			}
		}
	})
}
