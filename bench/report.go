package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type report struct {
	works   []work
	results results
	took    time.Duration
}

// markdown writes the figures to reach, with what notes says about those that are missed,
// and a table a work.
func (r report) markdown(notes string) string {
	var b strings.Builder
	rounds := 0
	for _, res := range r.results {
		rounds = max(rounds, len(res.samples))
	}
	fmt.Fprintf(&b, `# Results

Made by `+"`make bench`"+` in %v: medians of %d rounds, ± half the distance of the quartiles. In every round the contenders of a work run one after the other, in an order that changes, each in a process of its own that measures for 0.3 seconds and more. Bytes and instructions hardly vary and are taken once. Ratios are those of one round, and then their median.

CPU time is what the operating system has counted for the process, that of servers included where they are named. It holds on a busy machine; times and p99 need an idle one.

%s
`, r.took.Round(time.Second), rounds, machine())
	b.WriteString("\n## Figures to reach\n\n")
	r.figures(&b, notes)
	for _, w := range r.works {
		table(&b, w, r.results.of(w.name))
		if p, ok := pictures[w.name]; ok {
			fmt.Fprintf(&b, "\n![%s](%s)\n", p.title, p.file)
		}
	}
	return b.String()
}

func (r report) figures(b *strings.Builder, notes string) {
	b.WriteString("| figure | to reach | measured | |\n|---|---|---|---|\n")
	var why strings.Builder
	for _, t := range targets() {
		mid, spread := middle(t.measured(r.results))
		goal := "at most " + number(t.goal)
		if t.least {
			goal = "at least " + number(t.goal)
		}
		if len(t.measured(r.results)) == 0 {
			fmt.Fprintf(b, "| %s | %s | – | not measured |\n", t.name, goal)
			continue
		}
		verdict := t.verdict(mid)
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", t.name, goal, plusMinus(mid, spread), verdict)
		if verdict != "met" {
			fmt.Fprintf(&why, "\n**%s.** %s\n", t.name, note(notes, t.name))
		}
	}
	if why.Len() > 0 {
		b.WriteString("\n### What is missed, and what limits it\n" + why.String())
	}
}

// note returns the text under the heading of a figure.
func note(notes, name string) string {
	for section := range strings.SplitSeq("\n"+notes, "\n## ") {
		if head, text, _ := strings.Cut(section, "\n"); head == name {
			return strings.TrimSpace(text)
		}
	}
	return "Not explained yet."
}

func table(b *strings.Builder, w work, rs results) {
	first := w.columns[0]
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n| who | %s |\n|---|%s\n", strings.ToUpper(w.name[:1])+w.name[1:], w.about, strings.Join(w.columns, " | "), strings.Repeat("---|", len(w.columns)))
	for _, of := range []role{floor, ours, other, rival} {
		ordered := byRole(rs, of, first)
		if strings.HasPrefix(w.name, "growth") {
			ordered = slices.DeleteFunc(slices.Clone(rs), func(r result) bool { return r.role != of || !r.measured() })
		}
		for _, r := range ordered {
			name := r.name
			if of == ours {
				name = "**" + name + "**"
			}
			fmt.Fprintf(b, "| %s |", name)
			for _, c := range w.columns {
				fmt.Fprintf(b, " %s |", plusMinus(r.median(c)))
			}
			b.WriteByte('\n')
		}
	}
	for _, r := range rs {
		if r.err != nil {
			fmt.Fprintf(b, "\n%s did not finish every round: %v.\n", r.name, r.err)
		}
	}
	if !strings.HasPrefix(w.name, "growth") {
		ratios(b, w, rs)
	}
}

// compared are the columns whose ratios mean something.
var compared = []string{"ns", "CPU ns", "2 threads ns", "per second", "CPU µs", "proxy CPU µs", "p50 µs", "p99 µs", "bytes", "instructions"}

// ratios writes how ours compares with the best rival of each column, and with the floors.
func ratios(b *strings.Builder, w work, rs results) {
	var lines [][]string
	var heads []string
	for _, c := range w.columns {
		if !slices.Contains(compared, c) {
			continue
		}
		heads = append(heads, c)
		i := 0
		for _, u := range byRole(rs, ours, w.columns[0]) {
			against := byRole(rs, floor, w.columns[0])
			if best := byRole(rs, rival, c); len(best) > 0 {
				against = append([]result{best[0]}, against...)
			}
			for _, a := range against {
				if i == len(lines) {
					lines = append(lines, []string{u.name + " / " + against[0].name})
				}
				x, _ := middle(over(w.name, c, u.name, a.name)(rs))
				cell := number(x)
				if a.role == rival {
					lines[i][0] = u.name + " / best rival"
					cell += " (" + a.name + ")"
				} else {
					lines[i][0] = u.name + " / " + a.name
				}
				lines[i] = append(lines[i], cell)
				i++
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| ratio | %s |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, l := range lines {
		fmt.Fprintf(b, "| %s |\n", strings.Join(l, " | "))
	}
}

func plusMinus(mid, spread float64) string {
	if spread == 0 {
		return number(mid)
	}
	return number(mid) + " ± " + number(spread)
}

func number(x float64) string {
	switch {
	case x > -0.001 && x < 0.001:
		return "0"
	case x < 1:
		return fmt.Sprintf("%.3f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
