package e2e

import (
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policyfile"
)

var update = flag.Bool("update", false, "write docs/metrics.md; review it before you commit it")

// pages returns the pages of docs. TestLongNewcomer tests the README.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("docs has no pages (%v)", err)
	}
	return files
}

// blocksOf returns a document's code blocks of a language, also those in lists.
func blocksOf(t *testing.T, file, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[2], ""))
	}
	return all
}

// blocks returns the code blocks of a language in all documents.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	for _, file := range append(pages(t), "../../README.md") {
		all = append(all, blocksOf(t, file, language)...)
	}
	if len(all) == 0 {
		t.Fatalf("no document has a block of %s", language)
	}
	return all
}

// passing matches the parts of an answer that change with time, and the spaces that follow them in tables.
var passing = regexp.MustCompile(`(?m)(^Date: |^X-Request-Id: ).*|(^X-Ratelimit-Reset: |^Retry-After: |;t=|Retry in |"retry_after":|"reset":|"X-Ratelimit-Reset":")\d+|(  in )[\dhms]+ +|(FULL AGAIN) +|(until the end of )[\d-]+`)

func timeless(s string) string {
	return passing.ReplaceAllString(strings.ReplaceAll(s, "\r\n", "\n"), "${1}${2}${3}${4}${5}…")
}

// policiesOfPages are the policies that documents use, by their names in the documents.
var policiesOfPages = map[string]string{"api.yaml": "../../examples/api.yaml", "llm.yaml": "../../examples/llm/llm.yaml", "overload.yaml": "../../examples/overload/overload.yaml"}

// After the first "sluice serve" of a document has started, its commands print the output that the document shows.
func TestReadmeConsole(t *testing.T) {
	t.Parallel()
	for _, file := range pages(t) {
		examples := blocksOf(t, file, "console")
		if len(examples) == 0 {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, file := range policiesOfPages {
				policy, err := filepath.Abs(file)
				if err == nil {
					err = os.Symlink(policy, filepath.Join(dir, name))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			first := regexp.MustCompile(`(?m)^sluice serve (.+)$`).FindStringSubmatch(strings.Join(blocksOf(t, file, "sh"), "\n"))
			if first == nil {
				t.Fatal("the page has no command sluice serve")
			}
			g := testkit.StartWith(t, func(c *exec.Cmd) { c.Dir = dir }, nil, strings.Fields(strings.ReplaceAll(first[1], ":8081", ":0"))...)
			g.AwaitStatus(g.Admin+"/readyz", http.StatusOK)
			here := strings.NewReplacer("localhost:8080", g.Addr, "localhost:8081", g.Check, "http://127.0.0.1:9090", g.Admin, "curl ", "curl --silent --show-error --noproxy '*' ")
			for _, example := range strings.Split("\n"+strings.Join(examples, "\n"), "\n$ ")[1:] {
				command, want, _ := strings.Cut(example, "\n")
				c := exec.CommandContext(t.Context(), "bash", "-c", here.Replace(command))
				c.Dir = dir
				c.Env = append(testkit.Environ(), "PATH="+filepath.Dir(testkit.Binary(t))+":"+os.Getenv("PATH"), "SLUICE_ADMIN_URL="+g.Admin)
				types(t, c, command, want)
			}
		})
	}
}

// types runs a command of a document, and compares its output with the output in the document. Only the parts that
// passing matches may differ: dates, and remaining seconds.
func types(t *testing.T, c *exec.Cmd, command, want string) {
	t.Helper()
	got, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("$ %s\n%v\n%s", command, err, got)
	}
	if got, want := strings.TrimSpace(timeless(string(got))), strings.TrimSpace(timeless(want)); got != want {
		t.Errorf("$ %s\n%s\n\nand the document has\n\n%s", command, got, want)
	}
}

// The commands in sh blocks exist, and so do their flags. The tests do not run these commands, which do not end by
// themselves, or need a machine of their own. Commands of other programs are not checked.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	more, err := filepath.Glob("../../deploy/*.md")
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{} // by command
	for _, file := range append(pages(t), more...) {
		for _, block := range blocksOf(t, file, "sh") {
			const shell = "command_not_found_handle() { :; }\nsluice() { printf '%s\\0' \"$@\" $'\\n' >>calls; }\n"
			c := exec.CommandContext(t.Context(), "bash", "-euc", shell+block)
			c.Dir, c.Env = t.TempDir(), append(testkit.Environ(), "PATH=/nowhere")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", file, err, out)
			}
			calls, _ := os.ReadFile(filepath.Join(c.Dir, "calls"))
			for call := range strings.SplitSeq(strings.TrimSuffix(string(calls), "\x00\n\x00"), "\x00\n\x00") {
				name, args := commandOf(strings.Split(call, "\x00"))
				if help[name] == "" {
					help[name] = output(t, "", testkit.Binary(t), append(strings.Fields(name), "--help")...)
				}
				for _, arg := range args {
					flag, _, _ := strings.Cut(arg, "=")
					if strings.HasPrefix(flag, "--") && flag != "--help" && !regexp.MustCompile(flag+`\b`).MatchString(help[name]) {
						t.Errorf("%s: sluice %s has no %s", file, name, flag)
					}
				}
			}
		}
	}
}

// commandOf returns the name of a command, of one word or two, and its arguments.
func commandOf(call []string) (name string, args []string) {
	if len(call) > 1 && slices.Contains([]string{"set", "list", "delete", "create", "envoy", "nginx"}, call[1]) {
		return call[0] + " " + call[1], call[2:]
	}
	return call[0], call[1:]
}

func TestReadmePolicies(t *testing.T) {
	t.Parallel()
	for _, block := range blocks(t, "yaml") {
		if _, err := policyfile.Parse("policy.yaml", []byte(block)); err != nil {
			t.Errorf("%v\n%s", err, block)
		}
	}
	for name, file := range policiesOfPages {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = policyfile.Parse(name, text)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// The code in docs and in the README is part of programs that are run, apart from its indentation.
func TestReadmeCode(t *testing.T) {
	t.Parallel()
	for language, places := range map[string][]string{
		"go":     {"../../examples/*/*.go", "../../bench/migrate/*.go"},
		"python": {"../../examples/clients/python/*.py"},
		"js":     {"../../examples/clients/node/*.mjs", "../../clients/node/examples/*.mjs"},
	} {
		margin := regexp.MustCompile(`(?m)^\s+`)
		var sources strings.Builder
		for _, place := range places {
			files, err := filepath.Glob(place)
			if err != nil || len(files) == 0 {
				t.Fatalf("no files match %s (%v)", place, err)
			}
			for _, name := range files {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				sources.Write(margin.ReplaceAll(text, nil))
			}
		}
		for _, block := range append(blocks(t, language), blocksOf(t, "../../README.md", language)...) {
			if !strings.Contains(sources.String(), margin.ReplaceAllString(block, "")) {
				t.Errorf("none of %v has\n%s", places, block)
			}
		}
	}
}
