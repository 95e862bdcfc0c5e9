package words

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
)

// Comment returns a text as lines of a YAML comment, each with a line break at its end. Characters that do not print
// become "�", and white space one space.
func Comment(indent, text string) string {
	b := &strings.Builder{}
	text = printable.Line(strings.Join(strings.Fields(text), " "))
	for _, line := range Wrap(text, 100-len(indent)) {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
	return b.String()
}

// CommentRules returns the YAML of a policy, as policyfile encodes it, with a comment before each rule. Comments are in
// the order of the rules, and end in a line break unless they are empty.
func CommentRules(policy []byte, comments []string) string {
	b := &strings.Builder{}
	section := ""
	for line := range strings.Lines(string(policy)) {
		if line[0] != ' ' {
			section = line
		}
		if strings.HasPrefix(section, "rules:") && strings.HasPrefix(line, "  - ") && len(comments) > 0 {
			b.WriteString(comments[0])
			comments = comments[1:]
		}
		b.WriteString(line)
	}
	return b.String()
}
