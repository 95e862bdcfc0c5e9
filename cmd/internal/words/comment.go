package words

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
)

// Comment returns a text as lines of a YAML comment, each of which ends in a line break. It replaces unprintable
// characters with "�", and white space with a single space.
func Comment(indent, text string) string {
	b := &strings.Builder{}
	text = printable.Line(strings.Join(strings.Fields(text), " "))
	for _, line := range Wrap(text, 100-len(indent)) {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
	return b.String()
}

// CommentRules adds a comment before each rule in the YAML of a policy, which policyfile has encoded. The parameter
// comments has the order of the rules. Each comment is empty or ends in a line break.
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
