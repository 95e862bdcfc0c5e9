package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var jsonPaths = []string{"a", "b.c", "b.d.e", "f", "é\n"}

// naive returns the last value that is not null at each of the paths, as encoding/json reads it: the
// text of a string, what is written of a number, a word for an array. It returns false for what is no
// object or too deep.
func naive(line []byte) (map[string]string, bool) {
	if !json.Valid(line) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	found := map[string]string{}
	deepestSeen := 0
	// walk reads the value that begins with a token, under the ways in which dots can stand before it.
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
	return found, ok && err == io.EOF && deepestSeen <= deepest
}

// FuzzJSON compares with encoding/json: the same lines are read, and the same is read of them.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, ` {"a" : 1 , "b":{"c":"x\u00fc\ud83d\ude00\n","d":{"e":[1,{"x":[]}]}}}`, `{"b.c":true,"b":{"d.e":null}}`,
		`{"a":1,"a":"2","a":null}`, `{"\u0061":-0.1e+5,"f":01}`, `{"a":"\ud800\u0041","f":"\udc00\ud800"}`, "{\"a\":\"\xff\xfe\"}",
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"a":` + strings.Repeat(`{"a":`, 63) + `1` + strings.Repeat("}", 64),
		`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, `{"b":` + strings.Repeat(`{"a":`, 62) + `[{}]` + strings.Repeat("}", 63),
		`{"a":"\u00`, `{"a":tru}`, `{"a":1}x`, `{"a":1,}`, `{,}`, `{"a":[1,]}`, `{"a":[,]}`, `{"a" 1}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`,
		"{\"a\":\"\x1f\"}", "{\"a\":\"\x7f\"}", `{"b":1,"b":{"c":2},"b":3}`, `{"b":{"c":1,"d":[{"e":5}]}}`, `{"é\n":"\/"}`, `{"a":"01234567\"","f":"0123456\\"}`,
		`{"a":[]}`, `{"a":[ ]}`, `{"a":{ }}`, `{"a":[{]}`, `{"a":[1}`, `[{}]`, `{"a":nul}`, `{"a":1e5,"f":-1E-7}`, ``, ` `, `{`, `"`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":"`,
	} {
		f.Add([]byte(s))
	}
	p := &paths{}
	for slot, path := range jsonPaths {
		p.add(path, slot, 0)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		want, wantOK := naive(line)
		values := make([]value, len(jsonPaths))
		ok := p.read(line, values)
		if ok != wantOK {
			t.Fatalf("%q: read is %v", line, ok)
		}
		if !ok {
			return
		}
		for slot, path := range jsonPaths {
			got, some := "", false
			if raw := values[slot].raw; raw != nil && raw[0] != 'n' {
				some = true
				switch raw[0] {
				case '"':
					var e Entry
					got = "string " + string([]rune(string(e.unquoted(raw)))) // encoding/json makes U+FFFD of what is no UTF-8
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
				t.Errorf("%q: %s is %q, not %q", line, path, got, w)
			}
		}
	})
}

// Lines that are made at random, with every structure that there is, cut and changed at every place.
func TestJSONRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	texts := []string{"", "a", "b", "c", "d", "e", "f", "é\n", "b.c", "\x00\x1f", "\u2028\U0001F600", "quote\"\\slash", strings.Repeat("long ", 20)}
	var random func(depth int) any
	random = func(depth int) any {
		switch n := rng.IntN(9); {
		case n < 2 && depth < 6:
			m := map[string]any{}
			for range rng.IntN(5) {
				m[texts[rng.IntN(len(texts))]] = random(depth + 1)
			}
			return m
		case n == 2 && depth < 6:
			l := []any{}
			for range rng.IntN(4) {
				l = append(l, random(depth+1))
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
	p := &paths{}
	for slot, path := range jsonPaths {
		p.add(path, slot, 0)
	}
	values := make([]value, len(jsonPaths))
	read := 0
	for range 600 {
		m := map[string]any{}
		for _, k := range texts {
			if rng.IntN(3) == 0 {
				m[k] = random(1)
			}
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := naive(line)
		if !ok || !p.read(line, values) {
			t.Fatalf("%s is not read", line)
		}
		for slot, path := range jsonPaths {
			var e Entry
			if raw := values[slot].raw; raw != nil && raw[0] == '"' {
				read++
				if got := "string " + string(e.unquoted(raw)); got != want[path] {
					t.Fatalf("%s: %s is %q, not %q", line, path, got, want[path])
				}
			}
		}
		for i := range line {
			if p.read(line[:i], values) {
				t.Fatalf("%s is read, although it is cut off", line[:i])
			}
		}
		changed := bytes.Clone(line)
		changed[rng.IntN(len(changed))] = "{}[]\",:\\u0e-+. "[rng.IntN(15)]
		if _, ok := naive(changed); ok != p.read(changed, values) {
			t.Fatalf("%s: read is %v", changed, !ok)
		}
	}
	if read < 100 {
		t.Error("only", read, "values were compared")
	}
}

// Bytes that are no UTF-8 stay what the client has sent.
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

// Numbers are those that strconv reads, times a power of ten.
func TestScaled(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 100_000 {
		x := rng.Float64() * []float64{1e-6, 1, 1e3, 1e9, 1e12}[rng.IntN(5)]
		for _, format := range []byte{'f', 'e', 'g'} {
			s := strconv.FormatFloat(x, format, -1, 64)
			shift := rng.IntN(10) - 3
			want := x
			for range max(shift, 0) {
				want *= 10
			}
			for range max(-shift, 0) {
				want /= 10
			}
			if got, ok := scaled([]byte(s), shift); want < 1e18 && (!ok || float64(got) > want*(1+1e-12)+1e-6 || float64(got) < want*(1-1e-12)-1.000001) {
				t.Fatalf("%s times 1e%d is %d, not %v", s, shift, got, want)
			}
		}
	}
	for _, s := range []string{"", "-", ".", "e5", "1e", "1e1.5", "1e1e1", "9e99", "1 ", "0x1", "1e9999999999999999999", "--1", "1-"} {
		if n, ok := scaled([]byte(s), 0); ok {
			t.Errorf("%q is %d", s, n)
		}
	}
}

// Durations are those that package time writes.
func TestLasting(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 100_000 {
		d := time.Duration(rng.Int64N(int64(10*time.Hour)) >> rng.IntN(45))
		got, ok := lasting([]byte(d.String()), 0)
		if d == 0 {
			continue // "0s" stands in the golden files
		}
		if !ok || got != d.Microseconds() && got != d.Microseconds()-1 { // each part is cut
			t.Fatalf("%v is %d µs", d, got)
		}
	}
	for _, s := range []string{"", "ms", "1x", "1m-2s", "-1s", "9999999h", "1s 2s", "1.2.3s", "9223372036854775807s9223372036854775807s"} {
		if n, ok := lasting([]byte(s), 0); ok {
			t.Errorf("%q is %d", s, n)
		}
	}
}

// Times since the epoch are told by their size.
func TestAnyTime(t *testing.T) {
	want := time.Date(2026, 11, 20, 10, 15, 32, 524_102_000, time.UTC)
	for _, s := range []string{
		"1795169732.524102", "1795169732524.102", "1795169732524102", "1795169732524102400", "1.795169732524102e9", "1.7951697325241024e+18",
		"2026-11-20T10:15:32.524102Z", "2026-11-20 10:15:32.524102", "2026-11-20T11:15:32.524102+01:00", "2026-11-20T11:15:32,524102+0100",
		"2026/11/20 10:15:32.5241024", "2026-11-20 10:15:32.524102 +0000", "2026-11-20 10:15:32.524102 UTC",
	} {
		if got, ok := anyTime([]byte(s), nil); !ok || got != want.UnixMicro() {
			t.Errorf("%s is %v", s, time.UnixMicro(got).UTC())
		}
	}
	for _, s := range []string{"", "x", "-1", "2026", "1e400", "20/Nov/2026", "2026-11-20", "2026/11-20 10:15:32", "2026-11-20 10:15:32 CEST", "2026-11-20T10:15:32" + strings.Repeat(" ", 50)} {
		if got, ok := anyTime([]byte(s), nil); ok && s != "2026" {
			t.Errorf("%s is %v", s, time.UnixMicro(got).UTC())
		}
	}
}
