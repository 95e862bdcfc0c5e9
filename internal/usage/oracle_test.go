package usage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/jsonscan"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/usage"
)

// oracle reads the same numbers as a scanner, with encoding/json.
type oracle struct {
	t     testing.TB
	paths []string
	reading
	deltas, texts int64
	valid         bool // all documents are valid
	deep          bool // one document is nested more deeply than a scanner reads
}

// documents divides a body into documents.
func documents(mediaType, body string) []string {
	for body != "" && strings.IndexByte("\xef\xbb\xbf", body[0]) >= 0 { // skip a byte order mark
		body = body[1:]
	}
	switch mediaType {
	case "application/x-ndjson":
		return strings.Split(body, "\n")
	case "text/event-stream":
		body = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(body)
		var all []string
		var data strings.Builder
		for line := range strings.SplitSeq(body, "\n") {
			if line == "" {
				all = append(all, data.String())
				data.Reset()
			} else if value, ok := strings.CutPrefix(line, "data:"); ok {
				if data.Len() > 0 {
					data.WriteByte('\n')
				}
				data.WriteString(value)
			}
		}
		return append(all, data.String())
	}
	return []string{body}
}

var wordAtEnd = regexp.MustCompile(`[-+.0-9A-Za-z]+$`)

// read reads one or several documents, up to an error.
func (o *oracle) read(doc string) {
	for strings.Trim(doc, " \t\r\n") != "" {
		var v json.RawMessage
		err := json.Unmarshal([]byte(doc), &v)
		var wrong *json.SyntaxError
		switch {
		case err == nil:
			o.walk(doc)
			return
		case !errors.As(err, &wrong):
			o.t.Fatal(err)
		case strings.Contains(err.Error(), "unexpected end"):
			o.valid = false
			o.walk(doc)
			return
		}
		before, rest := doc[:wrong.Offset-1], doc[wrong.Offset-1:]
		joined := wordAtEnd.MatchString(before) && wordAtEnd.MatchString(rest[:1])
		if joined {
			before = wordAtEnd.ReplaceAllString(before, "")
		}
		o.walk(before)
		if joined || !strings.Contains(err.Error(), "after top-level value") {
			o.valid = false
			return
		}
		doc = rest
	}
}

// walk reads tokens up to an error.
func (o *oracle) walk(doc string) {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	type level struct {
		path   string
		on     bool // the path leads here
		array  bool
		values bool // in an object, its next token is a value
		name   string
	}
	stack := []level{{on: true}}
	for {
		from := d.InputOffset()
		token, err := d.Token()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				o.valid = false
			}
			return
		}
		top := &stack[len(stack)-1]
		raw := strings.TrimLeft(doc[from:d.InputOffset()], " \t\r\n,:")
		if len(stack) > 1 && !top.array && !top.values && token != json.Delim('}') {
			top.name, top.values = token.(string), true
			continue
		}
		path, on := top.path, top.on
		if len(stack) > 1 && !top.array {
			path, on = strings.TrimPrefix(path+"."+top.name, "."), on && top.name != "" && !strings.Contains(top.name, ".")
		}
		named := top.name
		if top.array {
			named = ""
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '}' || v == ']' {
				stack = stack[:len(stack)-1]
				stack[len(stack)-1].values = false
				continue
			}
			if v == '{' && (len(stack) == 1 || len(stack) == 2 && top.array) {
				o.events++
			}
			stack = append(stack, level{path: path, on: on && (v == '{' || len(stack) == 1), array: v == '['})
			o.deep = o.deep || len(stack) > jsonscan.MaxDepth+1
			continue
		case json.Number:
			for _, p := range o.paths {
				if on && p == path {
					o.numbers[p] = rounded(o.t, string(v))
				}
			}
		case string:
			switch named {
			case "delta":
				o.deltas += int64(len(raw) - 2)
			case "content", "text", "response", "refusal", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content":
				o.texts += int64(len(raw) - 2)
			}
		}
		top.values = false
	}
}

// Numbers that take big.Rat long to read, and numbers longer than maxToken.
var extreme = regexp.MustCompile(`[eE][-+]?[0-9]{4}|[-+.0-9A-Za-z]{257}|\[\s*DONE`)

// compare compares a scanner with the oracle, for a body in one piece, and in random pieces that draw chooses.
func compare(t *testing.T, paths []string, mediaType, body string, draw *rand.Rand) {
	t.Helper()
	if extreme.MatchString(body) {
		return
	}
	o := oracle{t: t, paths: paths, reading: reading{numbers: map[string]int64{}}, valid: true}
	for _, doc := range documents(mediaType, body) {
		o.read(doc)
	}
	if o.text = o.texts; o.deltas > 0 {
		o.text = o.deltas
	}
	p := compile(t, paths...)
	got := scan(new(usage.Scanner), p, paths, mediaType, body)
	want := o.reading
	if !o.valid {
		want.text = got.text // may count a part of a string or of an escape
		want.unread = got.unread
		if mediaType == "application/json" {
			want.unread = "malformed"
		}
	}
	if !o.deep && !got.equal(want) {
		t.Fatalf("%s %q:\n%+v, want\n%+v", mediaType, body, got, want)
	}
	for range 3 {
		if cut := scan(new(usage.Scanner), p, paths, mediaType, randomPieces(body, draw)...); !cut.equal(got) {
			t.Fatalf("%s %q: %+v in pieces, %+v in one", mediaType, body, cut, got)
		}
	}
	if cut := scan(new(usage.Scanner), p, paths, mediaType, pieces(body, 1)...); !cut.equal(got) {
		t.Fatalf("%s %q: %+v byte by byte, %+v in one", mediaType, body, cut, got)
	}
}

func randomPieces(body string, draw *rand.Rand) (all []string) {
	for len(body) > 0 {
		n := 1 + draw.IntN(min(len(body), 1<<draw.IntN(8)))
		all, body = append(all, body[:n]), body[n:]
	}
	return all
}

var mediaTypes = []string{"application/json", "application/x-ndjson", "text/event-stream"}

var shortPaths = []string{"a", "a.b", "a.b.c", "usage", "usage.n", "b"}

// drawn generates random documents.
type drawn struct {
	*rand.Rand
	strings.Builder
}

func (d *drawn) one(all ...string) { d.WriteString(all[d.IntN(len(all))]) }

func (d *drawn) space() {
	if d.IntN(6) == 0 {
		d.one(" ", "\t", "  ", "\n", "\r\n")
	}
}

func (d *drawn) value(depth int) {
	d.space()
	switch n := d.IntN(12); {
	case n < 3 && depth < 5, depth == 0:
		d.list(depth, "{", "}", func() {
			d.one(`"a"`, `"b"`, `"c"`, `"usage"`, `"n"`, `"\u0061"`, `"us\u0061ge"`, `"text"`, `"delta"`, `""`, `"a.b"`, `"\n"`, `"\ud83d\ude00"`)
			d.space()
			d.WriteByte(':')
			d.value(depth + 1)
		})
	case n == 3 && depth < 5:
		d.list(depth, "[", "]", func() { d.value(depth + 1) })
	case n < 6:
		d.one(`""`, `"x"`, `"\"a\":1"`, `"\\"`, `"{\"usage\":{\"n\":9}}"`, `"\u00e9é😀"`, `"0123456789abcdef"`, `"data: {}\n"`)
	case n == 6:
		d.one("null", "true", "false")
	default:
		d.one("0", "1", "17", "-3", "2.5", "1e3", "12.5e-1", "9007199254740992", "1E+20")
	}
	d.space()
}

func (d *drawn) list(depth int, begin, end string, item func()) {
	d.WriteString(begin)
	for i := range d.IntN(5) {
		if i > 0 {
			d.WriteByte(',')
		}
		item()
	}
	d.space()
	d.WriteString(end)
}

// body returns a few documents in the form of a media type, with some bytes changed.
func (d *drawn) body(mediaType string) string {
	for range 1 + d.IntN(4) {
		before := d.Len()
		if d.IntN(5) == 0 {
			d.list(0, "[", "]", func() { d.value(1 - d.IntN(2)) })
		} else {
			d.value(0)
		}
		doc := d.String()[before:]
		all := d.String()[:before]
		d.Reset()
		d.WriteString(all)
		switch mediaType {
		case "application/x-ndjson":
			d.WriteString(strings.ReplaceAll(doc, "\n", "") + "\n")
		case "text/event-stream":
			d.one("", ": x\n", "event: y\n", "id\r\n", "\r", "data\n")
			fmt.Fprintf(d, "data:%s\n\n", strings.ReplaceAll(doc, "\n", "\ndata: "))
		default:
			d.WriteString(doc)
		}
	}
	b := []byte(d.String())
	for range max(0, d.IntN(4)-1) {
		at := d.IntN(len(b))
		switch d.IntN(3) {
		case 0:
			b[at] = "{}[]:,\"\\ \n\r0-.ea\x00\xff"[d.IntN(18)]
		case 1:
			b = append(b[:at], b[at+1:]...)
		default:
			b = b[:at+1]
		}
		if len(b) == 0 {
			break
		}
	}
	return string(b)
}

// Random documents, valid and damaged, are read as encoding/json reads them.
func TestDrawnBodies(t *testing.T) {
	draw := rand.New(rand.NewPCG(seed.Of(t), 1))
	for i := range 10_000 {
		mediaType := mediaTypes[i%len(mediaTypes)]
		d := drawn{Rand: draw}
		compare(t, shortPaths, mediaType, d.body(mediaType), draw)
	}
}

// Any bytes are read as encoding/json reads them, however they are divided.
func FuzzScanner(f *testing.F) {
	for _, r := range responses(f) {
		f.Add([]byte(r.body), uint8(0), uint64(1))
		f.Add([]byte(r.body), uint8(1), uint64(1))
		f.Add([]byte(r.body), uint8(2), uint64(1))
	}
	for i := range uint64(60) {
		d := drawn{Rand: rand.New(rand.NewPCG(i, 2))}
		f.Add([]byte(d.body(mediaTypes[i%3])), uint8(i%3), i)
	}
	paths := append(shortPaths, allPaths[:len(allPaths)-1]...)
	f.Fuzz(func(t *testing.T, body []byte, framing uint8, cuts uint64) {
		if bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > 9000 {
			return // encoding/json refuses 10,000 levels
		}
		compare(t, paths, mediaTypes[framing%3], string(body), rand.New(rand.NewPCG(cuts, 3)))
	})
}
