package words

import (
	"fmt"
	"strings"
)

// Comment returns a text as lines of a YAML comment, each with a line break at its end.
func Comment(indent, text string) string {
	b := &strings.Builder{}
	for _, line := range Wrap(inComment(text), 100-len(indent)) {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
	return b.String()
}

// inComment returns what a comment of YAML can hold of a text.
func inComment(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffd {
			return ' '
		}
		return c
	}, text)
}
