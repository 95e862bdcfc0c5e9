package fields

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// FuzzJSON compares the JSON reader with the standard library's: it accepts only JSON, and reads the same members.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":"b"}`, `{"a":-1.5e+3,"b":[1,{"c":[]}],"d":{"e":null}}`, `{"a":01}`, `{"\u00e9\n":"\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":tru}`,
		`{"a" : { } }`, `{"a":1,}`, `{"a":1}x`, `{"a":"` + "\n" + `"}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":"\x"}`, `{`, `{}`, `{"\ud800":""}`, `{"a":"\u12`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Members
		ok := m.addJSON(data, false)
		var want map[string]json.RawMessage
		err := json.Unmarshal(data, &want)
		if ok && !m.garbled && err != nil {
			t.Fatalf("%q is not JSON: %v", data, err)
		}
		if !ok && !m.garbled && err == nil && want != nil && utf8.Valid(data) && !deep(data) {
			t.Fatalf("%q is an object", data)
		}
		if !ok || m.garbled {
			return
		}
		for _, e := range m.list {
			raw, found := want[e.name]
			if !found {
				t.Fatalf("%q has no member %q", data, e.name)
			}
			var s string
			if e = e.read(); e.kind == textMember && raw[0] == '"' && m.count(e.name) == 1 && (json.Unmarshal(raw, &s) != nil || s != e.Text) {
				t.Fatalf("%q: %q is %q, want %q", data, e.name, e.Text, s)
			}
		}
		if len(want) > len(m.list) {
			t.Fatalf("%q: %d of %d", data, len(m.list), len(want))
		}
	})
}

func deep(data []byte) bool {
	return bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > jsonscan.MaxDepth
}

func (m *Members) count(name string) (n int) {
	for _, e := range m.list {
		if e.name == name {
			n++
		}
	}
	return n
}
