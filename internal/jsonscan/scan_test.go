package jsonscan

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// seeds are texts that are JSON, or nearly JSON.
var seeds = []string{
	`{"a":"b"}`, `{"a":-1.5e+3,"b":[1,{"c":[]}],"d":{"e":null}}`, `{"a":01}`, `{"\u00e9\n":"\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":tru}`,
	`{"a" : { } }`, `{"a":1,}`, `{"a":1}x`, `{"a":"` + "\n" + `"}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":"\x"}`, `{`, `{}`, `{"a":"\u12`,
	` {"a" : 1 , "b":{"c":"x\u00fc\ud83d\ude00\n","d":{"e":[1,{"x":[]}]}}}`, "{\"a\":\"\xff\xfe\"}", `[1,]`, `[,]`, `{"a" 1}`, `[.5]`, `[{]}`, `[1}`,
	"\"\x1f\"", "\"\x7f\"", `"01234567\""`, `"0123456\\"`, `"0123456` + "\x01" + `"`, `nul`, `[ ]`, `-0.1E-7`, ``, ` `, `"`, `"\ud800\u0041"`, `"\udc00\ud800"`,
	strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth), "+1", "1e+", "TRUE", `"\/\b\f\r\t"`,
}

// FuzzValue compares Value with encoding/json: it accepts the same texts, as strings and as bytes, and finds the same
// values in them. For a text that is cut off, it reports this.
func FuzzValue(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := Space(data, 0)
		end := Value(data, begin, 0)
		if of := Value(string(data), begin, 0); of != end {
			t.Fatalf("%q: as a string, the value ends at %d, as bytes at %d", data, of, end)
		}
		ok := end >= 0 && Space(data, end) == len(data)
		if want := json.Valid(data) && !deep(data); ok != want {
			t.Fatalf("%q is accepted: %v, want %v", data, ok, want)
		}
		if !ok {
			return
		}
		for n := begin; n < end; n++ {
			if got := Value(data[:n], begin, 0); got != ^n && !number(data[begin]) {
				t.Fatalf("%q, cut off at %d: %d", data, n, got)
			}
		}
		compare(t, data[begin:end])
	})
}

func number(c byte) bool { return c == '-' || c-'0' <= 9 }

// deep reports whether JSON is nested more deeply than MaxDepth.
func deep(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	for depth := 0; ; {
		token, err := d.Token()
		switch {
		case err != nil:
			return false
		case token == json.Delim('{') || token == json.Delim('['):
			depth++
		case token == json.Delim('}') || token == json.Delim(']'):
			depth--
		}
		if depth > MaxDepth {
			return true
		}
	}
}

// compare compares the elements, members and strings of a value with those that encoding/json finds.
func compare(t *testing.T, raw []byte) {
	t.Helper()
	switch raw[0] {
	case '"':
		var want string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		got, _ := Unescape(nil, raw[1:len(raw)-1])
		if utf8.Valid(raw) && string(got) != want {
			t.Fatalf("%q is unescaped to %q, want %q", raw, got, want)
		}
	case '[':
		var want []json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		got := []json.RawMessage{}
		for one := range Elements(raw) {
			got = append(got, one)
			compare(t, one)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q has %q, want %q", raw, got, want)
		}
	case '{':
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		for name, value := range Members(raw) {
			text, _ := Unescape(nil, name)
			got[strings.ToValidUTF8(string(text), "\uFFFD")] = value
			compare(t, value)
		}
		if utf8.Valid(raw) && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q has %q, want %q", raw, got, want)
		}
	}
}

// Unescape reports that text with half of a surrogate pair is not whole.
func TestHalfOfAPair(t *testing.T) {
	for s, want := range map[string]bool{
		`a`: true, `\ud83d\ude00`: true, `\uD83D\uDE00x`: true, `\ufffd`: true, `\ud83d`: false, `\ude00`: false, `\ud83d\u0041`: false,
		`\ud83dx`: false, `\ud83d\n`: false, `\ude00\ud83d`: false, `\ud83d\ud83d\ude00`: false,
	} {
		if text, whole := Unescape(nil, s); whole != want {
			t.Errorf("%s: %q is whole: %v", s, text, whole)
		}
	}
}
