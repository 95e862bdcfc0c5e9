package console

import (
	"slices"
	"strings"
)

// diffLine is a line of a text that has changed.
type diffLine struct {
	Sign string // "+", "-" or " "; "…" stands for lines that are the same in both
	Text string
}

const (
	// maxCompared bounds the work of a diff: larger ones say all of the old and all of the new.
	maxCompared = 4 << 20
	// around is how many lines are shown before and behind what has changed.
	around = 3
)

// diffLines returns by which lines two texts differ, with some of what is around them.
func diffLines(before, after string) []diffLine {
	a, b := linesOf(before), linesOf(after)
	var head, tail int
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var all []diffLine
	add := func(sign string, lines []string) {
		for _, l := range lines {
			all = append(all, diffLine{sign, l})
		}
	}
	add(" ", a[:head])
	all = append(all, compared(a[head:len(a)-tail], b[head:len(b)-tail])...)
	add(" ", a[len(a)-tail:])
	return folded(all)
}

func linesOf(text string) []string {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// compared finds a longest list of lines that both have.
func compared(a, b []string) (all []diffLine) {
	// common[i][j] is the length of that of a[i:] and b[j:].
	var common [][]int32
	if len(a)*len(b) <= maxCompared {
		common = make([][]int32, len(a)+1)
		for i := range common {
			common[i] = make([]int32, len(b)+1)
		}
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if a[i] == b[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, diffLine{" ", a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common == nil || common[i+1][j] >= common[i][j+1]):
			all = append(all, diffLine{"-", a[i]})
			i++
		default:
			all = append(all, diffLine{"+", b[j]})
			j++
		}
	}
	return all
}

// folded puts "…" in place of lines that are the same and far from what has changed.
func folded(all []diffLine) (out []diffLine) {
	near := make([]bool, len(all))
	for i, l := range all {
		if l.Sign != " " {
			for j := max(0, i-around); j < min(len(all), i+around+1); j++ {
				near[j] = true
			}
		}
	}
	for i, l := range all {
		switch {
		case near[i]:
			out = append(out, l)
		case slices.Contains(near, true) && (i == 0 || near[i-1]):
			out = append(out, diffLine{"…", ""})
		}
	}
	return out
}
