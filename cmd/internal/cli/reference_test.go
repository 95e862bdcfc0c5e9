package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const cliReference = "../../../docs/cli.md"

// The reference of the command line is what --help says.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The command line\n\nWhat `--help` says of each command; `sluice completion SHELL --help` says how a shell completes them. Made by `go test -run Reference ./cmd/internal/cli -update`.\n")
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		words := strings.Fields(c.CommandPath())
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", c.CommandPath(), helpOf(t, words[1:]))
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add(rootCommand(Build{}))
	if *update {
		if err := os.WriteFile(cliReference, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(cliReference); err != nil || string(text) != b.String() {
		t.Errorf("%s is old: go test -run Reference ./cmd/internal/cli -update (%v)", cliReference, err)
	}
}

// helpOf returns what a command says with --help.
func helpOf(t *testing.T, words []string) string {
	t.Helper()
	var out bytes.Buffer
	root := rootCommand(Build{})
	root.SetOut(&out)
	root.SetArgs(append(words, "--help"))
	if err := root.Execute(); err != nil || out.Len() == 0 {
		t.Fatalf("sluice %s --help: %v", strings.Join(words, " "), err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
