package main

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// maxOfKind is how many warnings of one kind are told one by one.
const maxOfKind = 10

// warningLines puts warnings into lines. Of more than ten that advise the same about items of the
// same list, the last line says how many more there are.
func warningLines(all []policy.Problem) (lines []string) {
	type kind struct{ list, hint string }
	kindOf := func(p *policy.Problem) kind {
		list, _, _ := strings.Cut(p.Path, "[")
		return kind{list, p.Hint}
	}
	of := map[kind]int{}
	for i := range all {
		of[kindOf(&all[i])]++
	}
	told := map[kind]int{}
	for i := range all {
		p, k := &all[i], kindOf(&all[i])
		if told[k]++; told[k] > maxOfKind {
			continue
		}
		lines = append(lines, p.String())
		if more := of[k] - maxOfKind; told[k] == maxOfKind && more > 0 {
			like := *p
			like.Message = fmt.Sprintf("%d more are like this one", more)
			lines = append(lines, like.String())
		}
	}
	return lines
}
