package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// blocks returns the README's code blocks of a language, and those of docs.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no docs (%v)", err)
	}
	fence := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
	for _, file := range append(files, "../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
	}
	if len(all) == 0 {
		t.Fatalf("there is no %s block", language)
	}
	return all
}

// passing are the parts of an answer that time changes, and nothing else.
var passing = regexp.MustCompile(`(?m)(^Date: ).*|(^X-Ratelimit-Reset: |^Retry-After: |;t=|Retry in |"retry_after":|"reset":|"X-Ratelimit-Reset":")\d+`)

func timeless(s string) string {
	return passing.ReplaceAllString(strings.ReplaceAll(s, "\r\n", "\n"), "${1}${2}…")
}

// Whoever types what the README says gets what the README says.
func TestReadmeConsole(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--check", "127.0.0.1:0") // as make run has it, and a door
	check := g.await("it serves", func(r record) bool { return r.Check != "" }).Check
	for _, block := range blocks(t, "console") {
		for _, example := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			command = strings.ReplaceAll(command, "curl ", "curl --silent --show-error --noproxy '*' ")
			c := exec.CommandContext(t.Context(), "bash", "-c", strings.NewReplacer("localhost:8080", g.addr, "localhost:8081", check).Replace(command))
			got, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("$ %s\n%v\n%s", command, err, got)
			}
			if got, want := strings.TrimSpace(timeless(string(got))), strings.TrimSpace(timeless(want)); got != want {
				t.Errorf("$ %s\n%s\n\nand the README has\n\n%s", command, got, want)
			}
		}
	}
}

func TestReadmePolicies(t *testing.T) {
	t.Parallel()
	for _, block := range blocks(t, "yaml") {
		if code, stderr := run(t, "validate", write(t, "policy.yaml", block)); code != 0 {
			t.Errorf("exit code %d, %s\n%s", code, stderr, block)
		}
	}
}

// The README's Go is part of the examples, which are compiled.
func TestReadmeGo(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	for _, block := range blocks(t, "go") {
		indented := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, "\t$1")
		if !strings.Contains(sources.String(), indented) {
			t.Errorf("none of %v has\n%s", files, block)
		}
	}
}

// The README's table of metrics is what /metrics has.
func TestReadmeMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	g := withAllMetrics(t)
	_, page := get(t, g.admin+"/metrics")
	said, there := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(sluice_\\w+)` \\| (\\w+) \\| .+ \\|$").FindAllStringSubmatch(string(text), -1) {
		said[m[1]+" "+m[2]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (sluice_.*)$`).FindAllStringSubmatch(page, -1) {
		there[m[1]] = true
	}
	if !maps.Equal(said, there) || len(there) == 0 {
		t.Errorf("the README has %v, /metrics has %v", said, there)
	}
}
