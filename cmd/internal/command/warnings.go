package command

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// maxWarnings bounds the warnings of one kind.
const maxWarnings = 10

// WarningLines returns a line for each warning. If more than ten warnings give the same advice about items of one
// list, it returns the first ten, and a line with the number of the others.
func WarningLines(all []policy.Problem) (lines []string) {
	type kind struct{ list, hint string }
	kindOf := func(p *policy.Problem) kind {
		list, _, _ := strings.Cut(p.Path, "[")
		return kind{list, p.Hint}
	}
	total := map[kind]int{}
	for i := range all {
		total[kindOf(&all[i])]++
	}
	listed := map[kind]int{}
	for i := range all {
		p, k := &all[i], kindOf(&all[i])
		if listed[k]++; listed[k] > maxWarnings {
			continue
		}
		lines = append(lines, p.String())
		if more := total[k] - maxWarnings; listed[k] == maxWarnings && more > 0 {
			rest := *p
			rest.Message = fmt.Sprintf("%d more are like this one", more)
			lines = append(lines, rest.String())
		}
	}
	return lines
}
