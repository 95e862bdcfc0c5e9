package policyfile_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Each testdata/bad/NAME.yaml or NAME.json is rejected with the errors in NAME.txt.
func TestBadDocuments(t *testing.T) {
	for _, file := range append(files(t, "testdata/bad/*.yaml"), files(t, "testdata/bad/*.json")...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := policyfile.Parse(filepath.Base(file), read(t, file))
			if err == nil || p != nil {
				t.Fatal("the document was accepted")
			}
			var all policy.Errors
			if !errors.As(err, &all) {
				t.Fatalf("the error is a %T", err)
			}
			golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want := string(read(t, golden))
			diff(t, err.Error()+"\n", want)
		})
	}
}

// An error of the compiler that is not of type [policy.Errors] is kept, even if the document has problems as well.
func TestParseToError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for document, want := range map[string]string{"version: 1\nrules: []": "broken", "version: 1\nrules: x": "p.yaml:2: rules"} {
		_, err := policyfile.ParseTo("p.yaml", []byte(document), nil, func(policy.Document, func(string) (string, int)) (*policy.Policy, error) {
			return nil, broken
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", document, err)
		}
	}
}

// Each testdata/good/NAME.yaml is accepted, with the warnings in NAME.txt, if that file exists.
func TestGoodDocuments(t *testing.T) {
	for _, file := range files(t, "testdata/good/*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := policyfile.Parse(filepath.Base(file), read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".txt")
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, w := range p.Warnings() {
				fmt.Fprintln(&got, w)
			}
			diff(t, got.String(), string(want))
		})
	}
}

func files(t *testing.T, glob string) []string {
	t.Helper()
	all, err := filepath.Glob(glob)
	if err != nil || len(all) == 0 {
		t.Fatalf("no files %s: %v", glob, err)
	}
	return all
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func diff(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, a, b)
		}
	}
}

// The document in the package's documentation is valid.
func TestDocumentOfDoc(t *testing.T) {
	_, text, _ := strings.Cut(string(read(t, "doc.go")), "JSON tags:\n//\n")
	var b strings.Builder
	for line := range strings.Lines(text) {
		code, found := strings.CutPrefix(line, "//\t")
		if !found {
			break
		}
		b.WriteString(code)
	}
	doc, err := policyfile.Decode("doc.go", []byte(b.String()))
	if err != nil || len(doc.Rules) != 3 || len(doc.Overrides) != 2 || len(doc.Subjects) != 1 {
		t.Errorf("%v\n%s", err, b.String())
	}
	if _, err := policy.Compile(doc); err != nil {
		t.Error(err)
	}
}

func TestDocumentTooLarge(t *testing.T) {
	for size, want := range map[int]string{policyfile.MaxDocument: "not YAML", policyfile.MaxDocument + 1: "the maximum is"} {
		file := filepath.Join(t.TempDir(), "large.yaml")
		if err := os.WriteFile(file, append([]byte("]"), make([]byte, size-1)...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := policyfile.Load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: got %v, want %q", size, err, want)
		}
	}
}

func TestLoadNoFile(t *testing.T) {
	_, err := policyfile.Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v", err)
	}
}

// Nesting that would exhaust the stack or the memory is an error.
func TestDeepDocument(t *testing.T) {
	_, err := policyfile.Parse("p.json", []byte(strings.Repeat("[", 1<<20)))
	if err == nil || !strings.Contains(err.Error(), "p.json:1: this is not JSON: its values are nested more than 100") {
		t.Error(err)
	}
	for _, open := range []string{"[", "{a: ", "- "} {
		data := "version: 1\nrules: \n  " + strings.Repeat(open, 1<<17)
		if _, err := policyfile.Parse("deep.yaml", []byte(data)); err == nil {
			t.Errorf("nested %q was accepted", open)
		}
	}
}

// An error that the YAML parser reports without a line, or with a wrong one, has the right line.
func TestSyntaxLines(t *testing.T) {
	for _, row := range testkit.SectionOf(t, "testdata/lines.txt", "lines").Rows(t) {
		_, err := policyfile.Parse("f.yaml", []byte(row.In))
		var all policy.Errors
		if !errors.As(err, &all) || !strings.HasPrefix(all[len(all)-1].String(), "f.yaml:"+row.Want+": ") {
			t.Errorf("%q: %v, want line %s", row.In, err, row.Want)
		}
	}
}

// The text of an error with ten thousand problems contains the first hundred, in order.
func TestManyProblems(t *testing.T) {
	const n = 10_000
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: r%d, limit: nonsense}\n", i)
	}
	_, err := policyfile.Parse("many.yaml", []byte(b.String()))
	var all policy.Errors
	if !errors.As(err, &all) || len(all) != n {
		t.Fatalf("got %d problems", len(all))
	}
	for i, p := range all {
		if want := fmt.Sprintf("r%d", i); p.Line != i+3 || p.Rule != want {
			t.Fatalf("problem %d is %v", i, p)
		}
	}
	reported := strings.Split(err.Error(), "\n")
	if last := reported[len(reported)-1]; len(reported) != 101 || last != "… and 9900 more" || reported[99] != all[99].String() {
		t.Errorf("%d lines, at the end: %s", len(reported), last)
	}
}

// tenThousand returns a document with ten thousand rules.
func tenThousand() []byte {
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - {name: r%d, match: [\"POST /other/%d/{x}\", /more/%d/], key: [client_ip], limit: 5/minute}\n", i, i, i)
	}
	return []byte(b.String())
}

func TestTenThousandRules(t *testing.T) {
	p, err := policyfile.Parse("many.yaml", tenThousand())
	if err != nil {
		t.Fatal(err)
	}
	d := policy.NewEngine(memory.New(), p).Decide(t.Context(), &policy.Request{Path: "/more/9999/x"})
	if len(d.Results) != 1 || !d.Allowed || d.Results[0].Rule != "r9999" {
		t.Errorf("%d rules applied, allowed %v", len(d.Results), d.Allowed)
	}
}

func BenchmarkParse(b *testing.B) {
	data := tenThousand()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policyfile.Parse("many.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse checks that no document causes a panic, and that Explain and Decide agree about a request under an accepted
// document.
func FuzzParse(f *testing.F) {
	for _, glob := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml"} {
		all, _ := filepath.Glob(glob)
		for _, file := range all {
			f.Add(read(f, file))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policyfile.Parse("fuzz.yaml", data)
		if err != nil {
			for _, problem := range err.(policy.Errors) {
				if problem.Message == "" || problem.Line < 1 || problem.Line > 1+len(data) || len(problem.Message) > 2000 {
					t.Errorf("an incomplete or too long message: %+v", problem)
				}
			}
			return
		}
		e, req := policy.NewEngine(memory.NewSize(1<<20), p), &policy.Request{
			Method: "GET", Host: "api.example.com", Path: "/api/users/42", Peer: netip.MustParseAddr("203.0.113.9"),
			Header: http.Header{"X-Api-Key": {"k-0123456789abcdef"}, "X-Plan": {"pro"}, "Accept": {"*/*"}},
		}
		would := e.Explain(t.Context(), req).Decision
		is := e.Decide(t.Context(), req)
		if would.Allowed != is.Allowed || would.Missing != is.Missing || would.Exempt != is.Exempt || len(would.Results) != len(is.Results) {
			t.Errorf("explained as %+v, decided %+v", would, is)
		}
	})
}

const indented = `version: 1
trusted_proxies:
  - 10.0.0.0/8
tiers:
  from: header:X-Plan
rules:
  - name: health
    match: GET /health
    exempt: true
  # a comment
  - name: per-key
    description: >-
      what every
        key may
    key: [header:X-User,
      client_ip]
    headers:
      X-Plan: pro
      X-Tenant: "*"
    limit: 100/minute
    tiers:
      free: 5/minute
      pro: 1000/minute
  - name: login
    match:
    - POST /login
    - POST /sign-in
    key: client_ip
    limit: 5/minute
overrides:
  - rule: login
    key: {client_ip: 192.0.2.1}
    limit: 50/minute
`

// If a line is moved and the document is no longer YAML, the error is at this line, and its hint contains a column. If
// the line begins a block, the error may be at the next line.
func TestMovedLineIsBlamed(t *testing.T) {
	if _, err := policyfile.Parse("f.yaml", []byte(indented)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(indented, "\n")
	blamed := 0
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		column := len(line) - len(text)
		for _, move := range []int{-3, -2, -1, 1, 2, 3} {
			if text == "" || column+move < 0 || text == "what every" || text == "key may" {
				continue // text may begin in any column
			}
			if strings.HasPrefix(text, "- POST") && move == -2 {
				continue // the line then begins another rule
			}
			moved := append([]string(nil), lines...)
			moved[i] = strings.Repeat(" ", column+move) + text
			_, err := policyfile.Parse("f.yaml", []byte(strings.Join(moved, "\n")))
			all, _ := errors.AsType[policy.Errors](err)
			if len(all) != 1 || !strings.HasPrefix(all[0].Message, "this is not YAML") {
				continue // the document is YAML with another meaning
			}
			blamed++
			at, follows := all[0].Line-1, i < len(lines)-1 && all[0].Line-1 == i+1
			if at != i && !follows || !strings.HasPrefix(all[0].Hint, "begin ") {
				t.Errorf("line %d, %q, moved by %d: %v", i+1, text, move, all[0])
			}
		}
	}
	if blamed < 100 {
		t.Errorf("only %d of the moves cause an error", blamed)
	}
}
