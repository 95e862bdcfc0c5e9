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

	"github.com/sluicehq/sluice/internal/testkit"
)

// decodeAll decodes data that arrives in pieces of a length. It returns the commands and the number of bytes left over,
// or the error.
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
	for _, c := range testkit.Script(t, "testdata/decode.txt") {
		c.Play(t, func(step string) string {
			in, err := strconv.Unquote(step)
			if err != nil {
				t.Fatal(err)
			}
			first := decoded(in, len(in))
			for _, piece := range []int{1, 2, 7} {
				if got := decoded(in, piece); len(in) < 1000 && got != first {
					t.Errorf("%q in pieces of %d: %s; at once: %s", in, piece, got, first)
				}
			}
			return first
		})
	}
}

func decoded(in string, piece int) string {
	commands, rest, err := decodeAll([]byte(in), piece)
	var all []string
	for _, args := range commands {
		all = append(all, fmt.Sprintf("%q", args))
	}
	if rest > 0 {
		all = append(all, fmt.Sprint(rest, " left"))
	}
	if err != nil {
		all = append(all, err.Error())
	}
	return strings.Join(all, " ")
}

// slowParser reads commands in the simplest way, byte by byte, without regard to speed or memory.
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

// For any input, in any pieces, the decoder agrees with an independent parser. The commands that it accepts stay the
// same after encoding and decoding.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n*0\r\nPING\r\n", "*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n",
		`a "\x4g\x" 'b\'\n' c"d"` + "\n", "*-1\r\n", "*1\r\n$-1\r\n", "*2\r\n$4\r\nECHO\r\n$3\r\nab", "\x00 host: x\n", "*64\r\n$1\r\na\r\n", "*99999999999\r\n",
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		if len(data) >= maxCommand {
			return // the decoder refuses large input early, as TestDecode checks
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
				// The decoder may refuse a command before its line ends.
				if slowErr == nil || err == nil && errors.Is(slowErr, errRefused) {
					t.Fatalf("command %d: %v, the slow parser returns %q, %v", i, err, want, slowErr)
				}
				break
			}
			if slowErr != nil || !reflect.DeepEqual(whole[i], want) {
				t.Fatalf("command %d: %q, the slow parser returns %q, %v", i, whole[i], want, slowErr)
			}
		}
		for _, args := range whole {
			if again, rest, err := decodeAll(encode(args), 5); len(again) != 1 || !reflect.DeepEqual(again[0], args) || rest != 0 || err != nil {
				t.Fatalf("%q after encoding and decoding is %q, %d, %v", args, again, rest, err)
			}
		}
	})
}
