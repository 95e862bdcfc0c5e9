package openapi

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policyfile"
)

// summarize adds the comments at the start of the policy.
func (b *builder) summarize() {
	from := b.d.File
	if b.d.Title != "" {
		from += ", " + b.d.Title
	}
	b.head = append(b.head, fmt.Sprintf("Made of %s: %s.", from, words.Counted(len(b.d.Operations), "operation")))
	if b.proposed > 0 {
		b.head = append(b.head, fmt.Sprintf("%s without a readable limit: the rules marked \"Proposed\" are in shadow mode. They deny nothing until you remove \"shadow: true\". \"sluice recommend\" proposes limits from access logs.", words.Counted(b.proposed, "operation")))
	}
	if len(b.unlimited) > 0 {
		b.head = append(b.head, "Extensions switch limits off for "+list(b.unlimited)+".")
	}
	b.head = append(b.head, b.schemes...)
}

// WriteYAML writes the policy with its comments.
func (p *Policy) WriteYAML(w io.Writer) error {
	text, err := policyfile.Encode("policy.yaml", p.Document)
	if err != nil {
		return err
	}
	b := &strings.Builder{}
	for _, line := range p.head {
		b.WriteString(words.Comment("", line))
	}
	comments := make([]string, len(p.comments))
	for i, lines := range p.comments {
		for _, line := range lines {
			comments[i] += words.Comment("  ", line)
		}
	}
	b.WriteString(words.CommentRules(text, comments))
	_, err = io.WriteString(w, b.String())
	return err
}
