package policy

import (
	"strings"
	"testing"
)

// In a document that a program makes, an error has the path of its field. In a template, the path ends in the line as
// an index.
func TestBadAnswerOfProgram(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]Answer{
		`answers["429"].body[1]: the template fails: unknown value .Waits; did you mean ".Wait"?`:                              {Body: Body{Type: "text/html", Text: "<p>\n{{.Waits}}"}},
		`answers["429"].bodies[0].file[2]: the template fails: unknown function "x"`:                                           {Bodies: []Body{{Type: "text/plain", File: "f", Text: "\n\n{{x}}"}}},
		`answers["429"].file: the body is in the file "f", which has not been loaded; load the policy with package policyfile`: {Body: Body{Type: "text/plain", File: "f"}},
		`answers["429"].body: the body has 65537 bytes, the maximum is 65536`:                                                  {Body: Body{Type: "text/plain", Text: strings.Repeat("a", 65537)}},
		`answers["429"].body: the body is not UTF-8`:                                                                           {Body: Body{Type: "text/plain", Text: "a\xff"}},
		`answers["429"].headers["X-A"]: "a\nb" is not a value of the header X-A`:                                               {Headers: map[string]string{"X-A": "a\nb"}},
		`answers["429"].status: the status in place of 429 is 600; use a number from 400 to 599`:                               {Status: 600},
		`answers["429"].body[0]: the template fails: no such template "other"`:                                                 {Body: Body{Type: "text/html", Text: `{{template "other"}}`}},
	} {
		_, err := Compile(Document{Answers: map[string]Answer{"429": a}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
