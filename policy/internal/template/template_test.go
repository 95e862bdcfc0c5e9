package template

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// values are the values of the templates in this test.
type values struct {
	Rule, Title, Detail, Error string
	Status                     int
	ViolatedPolicies           []string `json:"violated-policies"`
	Limit, RetryAfter          int64
}

func compile(t testing.TB, media, text string) *Template {
	t.Helper()
	o, err := New(media, text, &values{Rule: "rule", ViolatedPolicies: []string{"rule", "rule-1h"}, Limit: 100}, &values{})
	if err != nil {
		t.Fatal(err.Message)
	}
	return o
}

// hostile has values as an attacker would choose them.
var hostile = []string{
	`</p><script>alert(1)</script>`, `" onmouseover="alert(1)`, `' onmouseover='alert(1)`, `javascript:alert(1)`, `"}, {"admin": true, "x": "`, `\`, `\"`,
	"a\r\nSet-Cookie: b", "\x00\x1b[2J", "\u2028\u2029", "]]>", "<!--", "-->", "&lt;b&gt;", `{{.Error}}`, "${alert(1)}", "`", "é\xff",
}

const page = `<!doctype html><html><head><title>{{.Title}}</title></head><body class="{{.Rule}}"><p title='{{.Rule}}'>{{.Detail}}</p><a href="{{.Rule}}">a</a><script>const told = {{.}}, rule = "{{.Rule}}"</script><!-- {{.Rule}} --></body></html>`

// FuzzHTMLAnswer: with any value, a page has only the elements and attributes of its template.
func FuzzHTMLAnswer(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	o := compile(f, "text/html", page)
	f.Fuzz(func(t *testing.T, s string) {
		text, err := o.Append(nil, &values{Rule: s, Title: s, Detail: s, Error: s, ViolatedPolicies: []string{s}})
		if err != nil {
			t.Fatal(err)
		}
		root, err := html.Parse(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		var shape, detail, href string
		for n := range root.Descendants() {
			if n.Type == html.ElementNode {
				shape += n.Data + " "
				for _, a := range n.Attr {
					shape += a.Key + " "
					if a.Key == "href" {
						href = a.Val
					}
				}
			}
			if n.Type == html.TextNode && n.Parent.Data == "p" {
				detail = n.Data
			}
		}
		if want := "html head title body class p title a href script "; shape != want {
			t.Errorf("%q becomes elements %q, want %q:\n%s", s, shape, want, text)
		}
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(href)), "javascript:") {
			t.Errorf("%q becomes the link %q", s, href)
		}
		// HTML parsers change texts with these characters.
		if utf8.ValidString(s) && !strings.ContainsAny(s, "\x00\r") && detail != s {
			t.Errorf("%q is read as %q", s, detail)
		}
	})
}

// FuzzJSONAnswer: any value is the same after decoding.
func FuzzJSONAnswer(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	o := compile(f, "application/vnd.api+json", `{"a": "{{.Rule}}", "b": {{json .Rule}}, "c": {{json .ViolatedPolicies}}, "d": "{{range .ViolatedPolicies}}{{with .}}{{.}}{{end}}{{end}}",
		"e": "{{if .Rule}}{{$x := .Rule}}{{$x}}{{end}}", "f": {{.Status}}, "g": {{json .}}, {{define "h"}}"h": "{{.}}"{{end}}{{template "h" .Rule}}}`)
	f.Fuzz(func(t *testing.T, s string) {
		text, err := o.Append(nil, &values{Rule: s, Status: 429, ViolatedPolicies: []string{s}})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			A, B, D, E, H string
			C             []string
			F             int
			G             values
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%q: %v\n%s", s, err, text)
		}
		want := strings.ToValidUTF8(s, "\uFFFD")
		if strings.Count(want, "\uFFFD") != strings.Count(got.A, "\uFFFD") {
			want = string([]rune(s)) // one replacement for each invalid byte
		}
		for _, g := range []string{got.A, got.B, got.C[0], got.D, got.E, got.H, got.G.Rule} {
			if g != want || got.F != 429 {
				t.Errorf("%q is read as %q in %s", s, g, text)
			}
		}
	})
}

// FuzzXMLAnswer: with any value, a document has only the elements of its template.
func FuzzXMLAnswer(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	o := compile(f, "application/xml", `<?xml version="1.0"?><wait rule="{{.Rule}}" other='{{.Rule}}'>{{.Rule}}</wait>`)
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0xFFFE || r == 0xFFFF }) {
			return // XML cannot contain these characters
		}
		text, err := o.Append(nil, &values{Rule: s})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			XMLName xml.Name   `xml:"wait"`
			Attrs   []xml.Attr `xml:",any,attr"`
			Text    string     `xml:",chardata"`
			Inner   []struct{} `xml:",any"`
		}
		d := xml.NewDecoder(strings.NewReader(string(text)))
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%q: %v\n%s", s, err, text)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) || len(got.Attrs) != 2 || got.Attrs[0].Value != s || got.Attrs[1].Value != s || got.Text != s || len(got.Inner) != 0 {
			t.Errorf("%q is read as %+v", s, got)
		}
	})
}

// An answer that fails, or is too long, appends nothing.
func TestAnswerThatFails(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`some text {{if eq .Rule "other"}}{{index .ViolatedPolicies 5}}{{end}}`,
		`some text {{if eq .Rule "other"}}{{range 70000}}x{{end}}{{end}}`,
		`some text {{range .Limit}}{{end}}`,
	} {
		got, err := compile(t, "text/plain", text).Append([]byte("before"), &values{Rule: "other", Limit: 1 << 62})
		if err == nil || string(got) != "before" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A template that runs for too many steps and writes little or nothing is rejected, whatever it repeats.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	for i, text := range []string{
		`{{range 1000000000000}}{{end}}`,
		`{{range 1000000000000}}{{continue}}x{{end}}`,
		`{{range 1000000000000}}{{if false}}x{{end}}{{end}}`,
		`{{range 1000000000000}}{{""}}{{end}}`,
		`{{with 1000000}}{{if .}}{{range .}}{{range 1000000}}{{end}}{{end}}{{end}}{{end}}`,
		`{{define "a"}}{{range 1000000000000}}{{end}}{{end}}{{template "a"}}`,
		// A long pipeline is many steps.
		`{{range 60000}}{{if and ` + strings.Repeat("true ", 3000) + `}}{{end}}{{end}}`,
	} {
		for _, media := range []string{"text/html", "application/json"}[min(i, 1):] { // the first text with both types
			_, err := New(media, text, &values{})
			if want := "the template fails: it takes more than 262144 steps"; err == nil || err.Message != want || !strings.HasPrefix(err.Hint, "repeat less") {
				t.Errorf("%s, %s: %v", media, text, err)
			}
		}
	}
	// A template that writes as much as it may is accepted.
	text, err := compile(t, "text/html", `{{range 65536}}{{if true}}x{{end}}{{end}}`).Append(nil, &values{})
	if err != nil || string(text) != strings.Repeat("x", 65536) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// A template cannot make an answer expensive by including itself, or by making longer texts from texts. The second kind
// is in a branch that the samples of New do not run. The test is not parallel, because it measures the allocations of
// the process.
func TestExpensiveAnswer(t *testing.T) {
	const long = `{{$a := "0123456789abcdef"}}`
	double := strings.Repeat(`{{$a = printf "%s%s" $a $a}}`, 20)
	for text, want := range map[string]string{
		`{{define "a"}}{{if .}}{{template "a" slice . 1}}{{end}}{{end}}{{if eq .Rule "x"}}{{template "a" "xyz"}}{{end}}`:                              `a template includes itself: "a"; use {{range}}`,
		`{{define "a"}}{{with 1}}{{else}}{{template "b"}}{{end}}{{end}}{{define "b"}}{{range 3}}{{block "c" .}}{{template "a"}}{{end}}{{end}}{{end}}`: "a template includes itself",
	} {
		for _, media := range []string{"text/html", "application/json"} {
			_, err := New(media, text, &values{})
			if err == nil || !strings.Contains(err.Message+"; "+err.Hint, want) {
				t.Errorf("%s, %s: %v", media, text, err)
			}
		}
	}
	for _, text := range []string{
		long + double,
		long + strings.ReplaceAll(double, `printf "%s%s"`, "print"),
		long + strings.ReplaceAll(double, `printf "%s%s"`, "html"),
		long + strings.ReplaceAll(double, `printf "%s%s"`, "urlquery"),
		`{{$a := printf "%999999d` + strings.Repeat("%999999d", 60) + `" 1}}`,
		`{{$a := printf "%0*d" 999999 1}}`,
		`{{$a := printf "` + strings.Repeat("%[1]s", 1000) + `" "0123456789abcdef"}}`,
	} {
		for _, media := range []string{"text/html", "text/plain"} {
			answer := compile(t, media, `{{if eq .Rule "other"}}`+text+`{{end}}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := answer.Append(nil, &values{Rule: "other"})
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 2<<20 {
				t.Errorf("%s, %.100s: %v, %d bytes", media, text, err, n)
			}
		}
	}
	text, err := compile(t, "text/plain", `{{printf "%-8s|%5.2f|%03d" .Rule 1.5 .RetryAfter}}{{html "<"}}{{print 1 2}}`).Append(nil, &values{Rule: "r", RetryAfter: 7})
	if err != nil || string(text) != "r       | 1.50|007&lt;1 2" {
		t.Errorf("%s, %v", text, err)
	}
}
