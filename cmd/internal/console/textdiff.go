package console

import (
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// diffLine is a line of the difference between two texts.
type diffLine struct {
	Sign string // "+", "-" or " "; "…" stands for omitted lines
	Text string
}

// diffLines returns the lines in which two texts differ, with a few lines of context.
func diffLines(before, after string) (all []diffLine) {
	unified := string(diff.Diff("", ended(before), "", ended(after)))
	for i, line := range strings.Split(strings.TrimSuffix(unified, "\n"), "\n") {
		switch {
		case i < 3: // the lines with the names of the texts
		case strings.HasPrefix(line, "@@ -0,"), strings.HasPrefix(line, "@@ -1,"):
		case strings.HasPrefix(line, "@@ "):
			all = append(all, diffLine{"…", ""})
		default:
			all = append(all, diffLine{line[:1], line[1:]})
		}
	}
	return all
}

// ended returns a text that ends in a line feed, unless the text is empty.
func ended(text string) []byte {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text)
}
