package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// TestProblems checks the errors and warnings of the documents in testdata/problems.txt.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, section := range testkit.Sections(t, "testdata/problems.txt") {
		for _, row := range section.Rows(t) {
			text := strings.ReplaceAll("version: 1 + "+strings.Replace(section.Name, "…", row.In, 1), " + ", "\n")
			p, err := Parse("test.yaml", []byte(text+"\n"))
			if got := problemsOf(p, err, row.Want); got != "" {
				t.Errorf("line %d: %s\ngot %s\nwant %s", row.Line, text, got, row.Want)
			}
		}
	}
}

// problemsOf returns the error or the warnings of a policy, or an empty text if they are as wanted.
func problemsOf(p *Policy, err error, want string) string {
	kind, text, found := strings.Cut(want, ": ")
	if !found {
		kind = strings.TrimSuffix(want, ":")
	}
	fits := false
	switch kind {
	case "ok":
		fits = err == nil && len(p.Warnings()) == 0
	case "warning":
		fits = err == nil && len(p.Warnings()) == 1 && strings.Contains(p.Warnings()[0].Message+"; "+p.Warnings()[0].Hint, text)
	case "no warning":
		fits = err == nil && !strings.Contains(fmt.Sprint(p.Warnings()), text)
	case "idle":
		fits = err == nil && slices.Equal(idleLimits(p), strings.FieldsFunc(text, func(r rune) bool { return r == ',' }))
	default:
		fits = err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "\n")
	}
	switch {
	case fits:
		return ""
	case err != nil:
		return err.Error()
	}
	return fmt.Sprint("warnings: ", p.Warnings())
}

// idleLimits returns the limits that never deny, according to a warning.
func idleLimits(p *Policy) (all []string) {
	for _, w := range p.Warnings() {
		if limit, found := strings.CutPrefix(w.Message, "the limit "); found {
			limit, _, _ = strings.Cut(limit, " never denies")
			all = append(all, limit)
		}
	}
	return all
}

// TestDocumentProblems checks documents that a program can make, but that no file can contain.
func TestDocumentProblems(t *testing.T) {
	t.Parallel()
	clients := func(l List) Document {
		return Document{Lists: map[string]List{"abusers": l}, Rules: []Rule{{Name: "a", Clients: []string{"abusers"}, Block: true}}}
	}
	for _, tt := range []struct {
		doc  Document
		want string
		n    int
	}{
		{clients(List{File: "abusers.txt", Networks: []string{}}), "", 0},
		{clients(List{File: "abusers.txt"}), `list "abusers" is in the file "abusers.txt", which has not been loaded`, 1},
		{clients(List{Networks: slices.Repeat([]string{"nonsense"}, 1000)}), "nonsense", maxBadEntries},
		{Document{Tiers: Tiers{From: "method"}, Rules: []Rule{{Name: "a", Limit: "1/day", Tiers: map[string]Limits{"x": {}}}}}, `the tier "x" has no limit`, 1},
		{Document{Rules: []Rule{{Name: "a", Exempt: true, Penalty: Penalty{First: "1m"}}}}, "an exempt rule counts nothing and has no penalty", 1},
		{Document{Shadow: "true"}, `"always"`, 1},
	} {
		_, err := Compile(tt.doc)
		if all, _ := err.(Errors); len(all) != tt.n || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.doc, err, tt.want)
		}
	}
}

// Fields with two forms have both of them in JSON.
func TestJSON(t *testing.T) {
	t.Parallel()
	for text, value := range map[string]any{
		`"10m"`: Penalty{First: "10m"},
		`{"first":"1m","factor":2,"most":"1h","forget":"1d"}`: Penalty{First: "1m", Factor: 2, Most: "1h", Forget: "1d"},
		`"1/day"`:            Limits{"1/day"},
		`["1/day","2/hour"]`: Limits{"1/day", "2/hour"},
		`[]`:                 List{Networks: []string{}},
		`["10.0.0.0/8"]`:     List{Networks: []string{"10.0.0.0/8"}},
		`{"file":"a.txt"}`:   List{File: "a.txt"},
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != text {
			t.Errorf("%+v: %s, %v", value, got, err)
		}
		back := reflect.New(reflect.TypeOf(value))
		if err := json.Unmarshal([]byte(text), back.Interface()); err != nil || fmt.Sprint(back.Elem()) != fmt.Sprint(value) {
			t.Errorf("%s: %+v, %v", text, back.Elem(), err)
		}
	}
	for _, wrong := range []struct {
		text string
		into any
	}{
		{"7", new(Penalty)}, {`{"a": 1}`, new(Limits)},
		{`{}`, new(List)}, {`{"file":""}`, new(List)}, {`"10.0.0.0/8"`, new(List)}, {`[1]`, new(List)},
	} {
		if err := json.Unmarshal([]byte(wrong.text), wrong.into); err == nil {
			t.Errorf("%s was read as a %T", wrong.text, wrong.into)
		}
	}
}
