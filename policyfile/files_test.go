package policyfile_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
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

// An error in a body has the file and line of the body. The errors of all files are reported at once.
func TestBadBodyInFile(t *testing.T) {
	dir := writeAll(t, map[string]string{
		"p.yaml": answering + "  - {name: b, limt: 5/day}\n", "slow-down.html": "<p>\n{{if .Wait}}\n{{.Again}}{{end}}\n", "sub/blocked.html": "",
	})
	name := filepath.Join(dir, "p.yaml")
	_, err := policyfile.Load(name)
	if err == nil {
		t.Fatal("the policy was accepted")
	}
	diff(t, err.Error(), name+`:3: the body: `+filepath.Join(dir, "sub", "blocked.html")+` is empty; write the text of the body into it
`+name+`:7: rule "b": unknown key "limt" in a rule; did you mean "limit"?
`+filepath.Join(dir, "slow-down.html")+`:3: the template fails: unknown value .Again; use ".Type", ".Title", ".Status", ".Detail", ".ViolatedPolicies", ".Error", ".RetryAfter", ".Rule", ".Limit", ".Remaining", ".Reset" or ".Wait"`)
}

// A file that is too large for a body is rejected, even if it is larger than any policy may be.
func TestLargeBodyInFile(t *testing.T) {
	large := strings.Repeat("a", policyfile.MaxDocument+1)
	for _, size := range []int{64<<10 + 1, len(large)} {
		_, err := policyfile.ParseWith("p.yaml", []byte(answering), func(string) ([]byte, error) { return []byte(large[:size]), nil })
		if err == nil || !strings.Contains(err.Error(), "has more than") && !strings.Contains(err.Error(), "the maximum is 65536") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

const listed = `version: 1
lists: {abusers: {file: sub/abusers.txt}, none: {file: none.txt}}
rules:
  - {name: blocked, clients: [abusers, none], block: true}
`

// writeAll writes files in a new directory, and returns the directory.
func writeAll(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestListInFile(t *testing.T) {
	dir := writeAll(t, map[string]string{"p.yaml": listed, "none.txt": "# nobody\n",
		"sub/abusers.txt": "\ufeff# who\r\n\r\n192.0.2.0/24\r\n  198.51.100.7 # one\n#203.0.113.9\n2001:db8::/32"})
	p, err := policyfile.Load(filepath.Join(dir, "p.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e := policy.NewEngine(memory.New(), p)
	for client, blocked := range map[string]bool{"192.0.2.9": true, "198.51.100.7": true, "2001:db8::9": true, "203.0.113.9": false, "198.51.100.8": false} {
		if d := e.Decide(t.Context(), &policy.Request{Path: "/", Peer: netip.MustParseAddr(client)}); (d.Blocked != "") != blocked {
			t.Errorf("%s: %+v", client, d)
		}
	}
}

// An error in a list has the file and line of the list, and comes after the errors in the policy.
func TestBadListInFile(t *testing.T) {
	dir := writeAll(t, map[string]string{"p.yaml": listed + "  - {name: b, limt: 5/day}\n",
		"sub/abusers.txt": "# who\n\n192.0.2.7/24\n192.0.2.1\nnonsense # here\n"})
	_, err := policyfile.Load(filepath.Join(dir, "p.yaml"))
	if err == nil {
		t.Fatal("the policy was accepted")
	}
	name, sub := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "sub", "abusers.txt")
	diff(t, err.Error(), name+`:2: list "none": open `+filepath.Join(dir, "none.txt")+`: no such file or directory; the path is relative to the policy, unless it starts with "/"
`+name+`:5: rule "b": unknown key "limt" in a rule; did you mean "limit"?
`+sub+`:3: "192.0.2.7/24" is an address with the prefix length of a network; write "192.0.2.0/24" for the network, or "192.0.2.7" for the address
`+sub+`:5: "nonsense" is neither an address nor a CIDR; write it as in 10.0.0.0/8, 192.0.2.7 or "2001:db8::/32"`)
}
