package policyfile_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// names has a file name for each format.
var names = []string{"p.yaml", "p.json"}

// roundTrip checks that a document is the same after encoding and decoding, in both formats and by encoding/json.
func roundTrip(t *testing.T, doc policy.Document) {
	t.Helper()
	for _, name := range names {
		text, err := policyfile.Encode(name, doc)
		if err != nil {
			t.Fatal(err)
		}
		got, err := policyfile.Decode(name, text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !reflect.DeepEqual(got, doc) {
			t.Fatalf("%#v\nbecame %#v\n%s", doc, got, text)
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var got policy.Document
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, doc) {
		t.Fatalf("%#v\nbecame %#v by encoding/json: %v\n%s", doc, got, err, text)
	}
}

func TestEncode(t *testing.T) {
	roundTrip(t, policy.Document{})
	for _, file := range files(t, "testdata/good/*.yaml") {
		doc, err := policyfile.Decode(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, doc)
		for _, name := range names {
			text, _ := policyfile.Encode(name, doc)
			p, err := policyfile.Parse(name, text)
			was, _ := policyfile.Load(file)
			if err != nil || len(p.Warnings()) != len(was.Warnings()) {
				t.Errorf("%s as %s: %v\n%s", file, name, err, text)
			}
		}
	}
}

// Encode writes YAML that is easy to read.
func TestEncodeText(t *testing.T) {
	doc := policy.Document{
		Tiers: policy.Tiers{From: "header:X-Plan"},
		Rules: []policy.Rule{{
			Name: "login", Match: []string{"POST /login"}, Key: []string{"client_ip", "body:username"}, Limit: "5/minute",
			Headers: map[string]string{"X-B": "true", "X-A": "*"}, Cost: policy.Cost{Default: 2}, Shadow: true,
		}},
		Overrides: []policy.Override{{Rule: "login", Key: map[string]string{"client_ip": "2001:db8::"}, Limit: "9/day", Until: "2030-01-01", Reason: "Größe: 1"}},
	}
	want := `version: 1
tiers: {from: 'header:X-Plan'}
rules:
  - name: login
    match: [POST /login]
    headers: {X-A: '*', X-B: "true"}
    key: [client_ip, 'body:username']
    limit: 5/minute
    cost: 2
    shadow: true
overrides:
  - rule: login
    key: {client_ip: '2001:db8::'}
    limit: 9/day
    until: "2030-01-01"
    reason: "Größe: 1"
`
	text, err := policyfile.Encode("p.yaml", doc)
	if err != nil {
		t.Fatal(err)
	}
	diff(t, string(text), want)
}

// Invisible characters, and characters that reverse the direction of text, are escaped.
func TestEncodeVisible(t *testing.T) {
	doc := policy.Document{
		Rules:     []policy.Rule{{Name: "per-key", Key: []string{"api_key"}, Limit: "5/minute"}},
		Overrides: []policy.Override{{Rule: "per-key", Key: map[string]string{"api_key": "k\u202eevil"}, Limit: "9/day", Reason: "Größe \u2066\u200b\u009b\U000e0041 東京"}},
	}
	for name, want := range map[string]string{
		"p.yaml": `reason: "Größe \u2066\u200B\x9B\U000E0041 東京"`,
		"p.json": `"reason": "Größe \u2066\u200B\u009B\uDB40\uDC41 東京"`,
	} {
		text, err := policyfile.Encode(name, doc)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) || !strings.Contains(string(text), `"k\u202Eevil"`) {
			t.Errorf("%s has no %s:\n%s", name, want, text)
		}
	}
	roundTrip(t, doc)
}

// Without quotes, parsers of YAML 1.1 do not read these words and numbers of base 60 as text (https://yaml.org/type/).
// Encode quotes them, in blocks and in single lines.
func TestEncodeForYAML1(t *testing.T) {
	for _, text := range []string{"y", "N", "yes", "No", "ON", "off", "tRue", "FALSE", "=", "12:30", "-1:30:15", "190:20:30.15", "1_0:00"} {
		doc := policy.Document{
			Rules:    []policy.Rule{{Name: "api", Match: []string{"/"}, Description: text, Limit: "9/day"}},
			Subjects: []policy.TierSubject{{Subject: text, Tier: "pro"}},
		}
		roundTrip(t, doc)
		got, err := policyfile.Encode("p.yaml", doc)
		if err != nil || !strings.Contains(string(got), `description: "`+text+`"`) || !strings.Contains(string(got), `{subject: "`+text+`", `) {
			t.Errorf("%s: %v\n%s", text, err, got)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for want, doc := range map[string]policy.Document{
		`Document.Rules[0].Name is not UTF-8`:                   {Rules: []policy.Rule{{Name: "\xff"}}},
		`Document.Rules[0].Match[1] is empty`:                   {Rules: []policy.Rule{{Match: []string{"/", ""}}}},
		`Document.Overrides[0].Key["api_key"] is empty`:         {Overrides: []policy.Override{{Key: map[string]string{"api_key": ""}}}},
		`Document.Rules[0].Headers["\xff"] is not UTF-8: "\xff`: {Rules: []policy.Rule{{Headers: map[string]string{"\xff": "x"}}}},
	} {
		for _, name := range names {
			if _, err := policyfile.Encode(name, doc); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// source makes values from the bytes of a fuzzer.
type source []byte

func (s *source) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *source) text() string {
	n := min(int(s.byte()%24), len(*s))
	text := string((*s)[:n])
	*s = (*s)[n:]
	return strings.ToValidUTF8(text, "\u2028") // other texts cannot be encoded
}

// fill sets v and all fields in it. Some of the values are zero.
func (s *source) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s.text())
	case reflect.Bool:
		v.SetBool(s.byte()&1 == 1)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(int8(s.byte())) << (s.byte() % 24))
	case reflect.Slice:
		if n := int(s.byte() % 4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			s.fill(v.Index(i))
		}
	case reflect.Map:
		for range s.byte() % 4 {
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			name, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			s.fill(name)
			s.fill(value)
			if value.CanInt() && value.Int() == 0 { // a weight of 0 is an error
				value.SetInt(1)
			}
			v.SetMapIndex(name, value)
		}
	case reflect.Struct:
		s.fillStruct(v)
	default:
		panic("fill does not know " + v.Type().String())
	}
}

// fillStruct is fill for the fields of a struct that are encoded. Of fields that exclude each other, it sets only one.
func (s *source) fillStruct(v reflect.Value) {
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "Source" {
			s.fill(v.Field(i))
		}
	}
	if l, isList := v.Addr().Interface().(*policy.List); isList && l.File != "" {
		l.Networks = nil
	}
	if e, isEstimate := v.Addr().Interface().(*policy.Estimate); isEstimate && e.Bytes|e.Output != 0 {
		e.Units = 0
	}
	if p, isPrices := v.Addr().Interface().(*policy.Prices); isPrices && p.File != "" {
		p.Models = nil
	}
}

// FuzzEncode checks that every document that can be encoded is the same after decoding.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("\x02\x03a: \x05- b\n\x00\x40\x01\x06refuse\x01\x01*\x01\x05count\x09header:X \x04free\x02\x04name\x02\t\n\x01\x03'\"\\\x00\x02\x01y\x01n\x04null"))
	f.Add([]byte("\x01\x04\xe2\x80\xa8x\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := source(data)
		var doc policy.Document
		s.fill(reflect.ValueOf(&doc).Elem())
		if _, err := policyfile.Encode("p.yaml", doc); err != nil {
			if !strings.Contains(err.Error(), "is empty") {
				t.Fatal(err)
			}
			return
		}
		roundTrip(t, doc)
	})
}

// Every field of a document is encoded and decoded: a field that the decoder does not know fails this test.
func TestEveryField(t *testing.T) {
	var doc policy.Document
	s := source(strings.Repeat("e", 1<<16)) // no value from it is zero
	if s.fill(reflect.ValueOf(&doc).Elem()); len(s) == 0 {
		t.Fatal("the source is used up: some fields are zero")
	}
	doc.Lists = map[string]policy.List{"file": {File: "text"}, "networks": {Networks: []string{"text"}}} // a list has one of them
	doc.Prices.File = ""
	roundTrip(t, doc)
}
