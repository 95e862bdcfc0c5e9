package policyfile_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const answering = `version: 1
answers:
  403: {type: text/html, file: sub/blocked.html}
  429: {bodies: [{type: text/html, file: slow-down.html}, {type: text/plain, body: slow down}]}
rules:
  - {name: blocked, clients: [192.0.2.7], block: true}
`

func TestBodyInFile(t *testing.T) {
	dir := writeAll(t, map[string]string{"p.yaml": answering, "slow-down.html": "\ufeff<p>{{.Rule}}\n", "sub/blocked.html": "<p>no"})
	p, err := policyfile.Load(filepath.Join(dir, "p.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]string{403: "<p>no", 429: "<p>a&lt;b\n"} {
		own := p.Answers().For(status)
		got, err := own.Append(nil, len(own.Types)-1, &policy.AnswerValues{Rule: "a<b"})
		if err != nil || string(got) != want {
			t.Errorf("%d: %q, %v; want %q", status, got, err, want)
		}
	}
}

// What is wrong with a body is told with its own file and line, and what is wrong with several at once.
func TestBadBodyInFile(t *testing.T) {
	dir := writeAll(t, map[string]string{
		"p.yaml": answering + "  - {name: b, limt: 5/day}\n", "slow-down.html": "<p>\n{{if .Wait}}\n{{.Again}}{{end}}\n", "sub/blocked.html": "",
	})
	name := filepath.Join(dir, "p.yaml")
	_, err := policyfile.Load(name)
	if err == nil {
		t.Fatal("it was accepted")
	}
	diff(t, err.Error(), name+`:3: the body: `+filepath.Join(dir, "sub", "blocked.html")+` is empty; write into it what is to be said
`+name+`:7: rule "b": unknown key "limt" in a rule; did you mean "limit"?
`+filepath.Join(dir, "slow-down.html")+`:3: the body cannot be made: there is no value .Again; use ".Type", ".Title", ".Status", ".Detail", ".ViolatedPolicies", ".Error", ".RetryAfter", ".Rule", ".Limit", ".Remaining", ".Reset" or ".Wait"`)
}

// A file that is no text of people's is refused, also where it is larger than any policy.
func TestLargeBodyInFile(t *testing.T) {
	large := strings.Repeat("a", policyfile.MaxDocument+1)
	for _, size := range []int{64<<10 + 1, len(large)} {
		_, err := policyfile.ParseWith("p.yaml", []byte(answering), func(string) ([]byte, error) { return []byte(large[:size]), nil })
		if err == nil || !strings.Contains(err.Error(), "which is the most") && !strings.Contains(err.Error(), "65536 are the most") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
