package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

var jsonPaths = []string{"a", "b.c", "b.d.e", "f", "é\n"}

// naive returns the last value that is not null at each of the paths, as encoding/json reads it: the text of a string,
// a number as it is written, or a word for an array or object. It returns false if the line is not an object, or too
// deep.
func naive(line []byte) (map[string]string, bool) {
	if !json.Valid(line) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	found := map[string]string{}
	deepestSeen := 0
	// walk reads the next value. The names of the members that lead to it, joined by dots, may equal a path.
	var walk func(prefix []string, depth int) bool
	walk = func(names []string, depth int) bool {
		deepestSeen = max(deepestSeen, depth)
		token, err := d.Token()
		if err != nil {
			return false
		}
		at := strings.Join(names, ".")
		wanted := false
		for _, p := range jsonPaths {
			wanted = wanted || names != nil && p == at
		}
		set := func(s string) {
			if wanted {
				found[at] = s
			}
		}
		switch v := token.(type) {
		case json.Delim:
			deepestSeen = max(deepestSeen, depth+1)
			if v == '[' {
				set("array")
				for d.More() {
					if !walk(nil, depth+1) {
						return false
					}
				}
			} else {
				below := false
				for _, p := range jsonPaths {
					below = below || names != nil && strings.HasPrefix(p, at+".")
				}
				if !below {
					set("object")
				}
				for d.More() {
					key, err := d.Token()
					if err != nil {
						return false
					}
					var deeper []string
					if names != nil || depth == 0 {
						deeper = append(append([]string{}, names...), key.(string))
					}
					if !walk(deeper, depth+1) {
						return false
					}
				}
			}
			d.Token()
		case string:
			set("string " + v)
		case json.Number:
			set("number " + string(v))
		case bool:
			set(fmt.Sprint(v))
		}
		return true
	}
	if first := bytes.TrimLeft(line, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return nil, false
	}
	ok := walk([]string{}, 0)
	_, err := d.Token()
	return found, ok && err == io.EOF && deepestSeen <= jsonscan.MaxDepth
}

// The reader accepts the same lines as encoding/json, with the same values.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, ` {"a" : 1 , "b":{"c":"x\u00fc\ud83d\ude00\n","d":{"e":[1,{"x":[]}]}}}`, `{"b.c":true,"b":{"d.e":null}}`,
		`{"a":1,"a":"2","a":null}`, `{"\u0061":-0.1e+5,"f":01}`, `{"a":"\ud800\u0041","f":"\udc00\ud800"}`, "{\"a\":\"\xff\xfe\"}",
		`{"a":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`, `{"a":` + strings.Repeat(`{"a":`, 63) + `1` + strings.Repeat("}", 64),
		`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, `{"b":` + strings.Repeat(`{"a":`, 62) + `[{}]` + strings.Repeat("}", 63),
		`{"a":"\u00`, `{"a":tru}`, `{"a":1}x`, `{"a":1,}`, `{,}`, `{"a":[1,]}`, `{"a":[,]}`, `{"a" 1}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`,
		"{\"a\":\"\x1f\"}", "{\"a\":\"\x7f\"}", `{"b":1,"b":{"c":2},"b":3}`, `{"b":{"c":1,"d":[{"e":5}]}}`, `{"é\n":"\/"}`, `{"a":"01234567\"","f":"0123456\\"}`,
		`{"a":[]}`, `{"a":[ ]}`, `{"a":{ }}`, `{"a":[{]}`, `{"a":[1}`, `[{}]`, `{"a":nul}`, `{"a":1e5,"f":-1E-7}`, ``, ` `, `{`, `"`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) { compareJSON(t, line) })
}

// compareJSON compares the values of a line with those that encoding/json reads. It reports whether the line is
// accepted.
func compareJSON(t *testing.T, line []byte) bool {
	t.Helper()
	p := paths{}
	for slot, path := range jsonPaths {
		p.add(path, slot, 0)
	}
	want, wantOK := naive(line)
	values := make([]value, len(jsonPaths))
	if ok := p.read(line, values); ok != wantOK {
		t.Fatalf("%q: accepted: %v", line, ok)
	}
	if !wantOK {
		return false
	}
	for slot, path := range jsonPaths {
		got, some := "", false
		if raw := values[slot].raw; raw != nil && raw[0] != 'n' {
			some = true
			switch raw[0] {
			case '"':
				var e Entry
				got = "string " + string([]rune(string(e.unescaped(raw[1:len(raw)-1])))) // encoding/json replaces invalid UTF-8 with U+FFFD
			case '[':
				got = "array"
			case '{':
				got = "object"
			case 't', 'f':
				got = string(raw)
			default:
				got = "number " + string(raw)
			}
		}
		if w, there := want[path]; got != w || some != there {
			t.Errorf("%q: %s is %q, want %q", line, path, got, w)
		}
	}
	return true
}

// Random objects are read as encoding/json reads them, also when a byte is changed. An object that is cut off anywhere
// is refused.
func TestJSONRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	texts := []string{"", "a", "b", "c", "d", "e", "f", "é\n", "b.c", "\x00\x1f", "\u2028\U0001F600", "quote\"\\slash", strings.Repeat("long ", 20)}
	var object func(depth int) any
	random := func(depth int) any {
		switch n := rng.IntN(9); {
		case n < 2 && depth < 6:
			return object(depth + 1)
		case n == 2 && depth < 6:
			l := []any{}
			for range rng.IntN(4) {
				l = append(l, object(depth+1))
			}
			return l
		case n < 5:
			return texts[rng.IntN(len(texts))]
		case n == 5:
			return nil
		case n == 6:
			return rng.IntN(2) == 0
		}
		return rng.NormFloat64() * 1e3
	}
	object = func(depth int) any {
		m := map[string]any{}
		for range rng.IntN(5) {
			m[texts[rng.IntN(len(texts))]] = random(depth)
		}
		return m
	}
	for range 600 {
		line, err := json.Marshal(object(0))
		if err != nil {
			t.Fatal(err)
		}
		if !compareJSON(t, line) {
			t.Fatalf("%s is refused", line)
		}
		for i := range line {
			if compareJSON(t, line[:i]) {
				t.Fatalf("%s is accepted, although it is cut off", line[:i])
			}
		}
		changed := bytes.Clone(line)
		changed[rng.IntN(len(changed))] = "{}[]\",:\\u0e-+. "[rng.IntN(15)]
		compareJSON(t, changed)
	}
}

// Bytes that are not UTF-8 are kept as the client sent them.
func TestJSONBytes(t *testing.T) {
	f := jsonFields(Options{})
	var e Entry
	if err := f.Parse([]byte("{\"ts\":1795169732,\"method\":\"GET\",\"url\":\"/\xff\\u0000\",\"user_agent\":\"\xe4\"}"), &e); err != nil {
		t.Fatal(err)
	}
	if string(e.Target) != "/\xff\x00" || string(e.UserAgent) != "\xe4" || utf8.Valid(e.Target) {
		t.Errorf("%q %q", e.Target, e.UserAgent)
	}
}

// A name of the maximum length is found, with or without escapes.
func TestLongNames(t *testing.T) {
	name := strings.Repeat("ä", longestField/2)
	p, values := paths{}, make([]value, 1)
	p.add(name, 0, 0)
	for _, written := range []string{name, `\u00e4` + name[len("ä"):], strings.Repeat(`\u00e4`, longestField/2)} {
		if !p.read([]byte(`{"`+written+`":1}`), values) || string(values[0].raw) != "1" {
			t.Errorf("%q is not found: %q", written, values[0].raw)
		}
	}
}

// A path may also name a member with dots in its name.
func TestPaths(t *testing.T) {
	for _, path := range []string{".", "..", "a.", ".a", "a..b", "a.b.c.d.e.f.g.h.i", `"`, "é"} {
		f, err := Lookup("json", Options{Fields: map[string]string{"client": path, "header:" + path + "x": path}})
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		line := `{"ts":1795169732,"method":"GET","` + strings.ReplaceAll(path, `"`, `\"`) + `":"here"}`
		if err := f.Parse([]byte(line), &e); err != nil || string(e.Client) != "here" {
			t.Errorf("%s: %q, %v", line, e.Client, err)
		}
	}
}

// Very long lines are read, and very deep ones refused. An entry does not keep the memory of a very long line.
func TestHuge(t *testing.T) {
	f := jsonFields(Options{})
	var e Entry
	long := strings.Repeat(`\u00e9`, 100_000)
	if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","url":"/`+long+`"}`), &e); err != nil || len(e.Target) != 200_001 {
		t.Fatal(len(e.Target), err)
	}
	if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","url":"/"}`), &e); err != nil || cap(e.own) > keep {
		t.Errorf("an entry keeps %d bytes: %v", cap(e.own), err)
	}
	many := `{"msg":"handled request","ts":1,"request":{"remote_ip":"192.0.2.1","headers":{"X-Forwarded-For":["\u0061"` +
		strings.Repeat(`,"\u0061"`, 100_000) + `],"X-A":[""` + strings.Repeat(`,"b"`, 100_000) + `]}}}`
	if err := caddy(Options{}).Parse([]byte(many), &e); err != nil || len(e.Forwarded) != 300_001 || len(e.Headers) != 100_001 {
		t.Fatal(len(e.Forwarded), len(e.Headers), err)
	}
	if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","url":"/"}`), &e); err != nil || cap(e.Headers) > keep {
		t.Errorf("an entry keeps %d fields: %v", cap(e.Headers), err)
	}
	for _, deep := range []string{strings.Repeat("[", 1e6), strings.Repeat(`{"a":`, 1e5), strings.Repeat(`{"request":`, 1e5)} {
		if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","request":`+deep), &e); err == nil {
			t.Error("a very deep line is accepted")
		}
	}
}
