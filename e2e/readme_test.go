package e2e

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/metrics.md, to be read before it is kept")

// blocks returns the README's code blocks of a language, and those of docs.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no docs (%v)", err)
	}
	fence := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
	if language != "console" { // TestNewcomer has those
		files = append(files, "../README.md")
	}
	for _, file := range files {
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

// Whoever types what the documents say gets what the documents say.
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
				t.Errorf("$ %s\n%s\n\nand the document has\n\n%s", command, got, want)
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

// The Go of the README and of docs is part of the examples, which are compiled.
func TestReadmeGo(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/*/*.go")
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
		if !strings.Contains(sources.String(), block) && !strings.Contains(sources.String(), indented) {
			t.Errorf("none of %v has\n%s", files, block)
		}
	}
}

const metricsReference = "../docs/metrics.md"

// The reference of metrics is what /metrics has.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	g := withAllMetrics(t)
	_, page := get(t, g.admin+"/metrics")
	help := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (\w+) (.*)$`).FindAllStringSubmatch(page, -1) {
		help[m[1]] = m[2]
	}
	labels := map[string]map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(sluice_\w+)\{(.*)\} `).FindAllStringSubmatch(page, -1) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if of := strings.TrimSuffix(name, suffix); help[name] == "" && help[of] != "" {
				name = of
			}
		}
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if labels[name] == nil {
				labels[name] = map[string]bool{}
			}
			if label[1] != "le" {
				labels[name][label[1]] = true
			}
		}
	}
	want := "# Metrics\n\nWhat `/metrics` has besides the metrics of the Go runtime and the process. Made by `go test -run MetricsReference ./e2e -update`.\n\n| metric | type | labels | |\n|---|---|---|---|\n"
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (sluice_\w+) (\w+)$`).FindAllStringSubmatch(page, -1) {
		var of []string
		for _, label := range slices.Sorted(maps.Keys(labels[m[1]])) {
			of = append(of, "`"+label+"`")
		}
		want += fmt.Sprintf("| `%s` | %s | %s | %s |\n", m[1], m[2], strings.Join(of, ", "), help[m[1]])
	}
	if *update {
		if err := os.WriteFile(metricsReference, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(metricsReference); err != nil || string(got) != want {
		t.Errorf("%s is old: go test -run MetricsReference ./e2e -update (%v)", metricsReference, err)
	}
}
