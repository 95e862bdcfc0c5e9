package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type report struct {
	command string
	works   []work
	results results
	took    time.Duration
}

// markdown writes the targets, with the notes about missed ones, and a table for each work.
func (r report) markdown(notes string) string {
	var b strings.Builder
	rounds := 0
	for _, res := range r.results {
		rounds = max(rounds, len(res.samples))
	}
	fmt.Fprintf(&b, `# Results

Made by %s in %v: medians of %d rounds, ± half the distance between the quartiles. In every round, the contenders of a work run one after the other, in a changing order, each in a separate process that measures for at least 0.3 seconds. Bytes and instructions hardly vary, and are measured once. Ratios are computed for each round; the table has their median.

CPU time is the time that the operating system has counted for the process, including servers where these are named. It can be measured on a busy machine; times and p99 need an idle one.

%s
`, "`"+r.command+"`", r.took.Round(time.Second), rounds, machine())
	b.WriteString("\n## Figures to reach\n\n")
	r.figures(&b, notes)
	for _, w := range r.works {
		if rs := r.results.of(w.name); isGrown(w) {
			growth(&b, w, rs)
		} else {
			table(&b, w, rs)
		}
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
		verdict := t.verdict(mid, spread)
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", t.name, goal, plusMinus(mid, spread), verdict)
		if strings.Contains(verdict, "missed") {
			fmt.Fprintf(&why, "\n**%s.** %s\n", t.name, note(notes, t.name))
		}
	}
	if why.Len() > 0 {
		b.WriteString("\n### What is missed, and what limits it\n" + why.String())
	}
}

// note returns the text under the heading of a figure in notes.
func note(notes, name string) string {
	for section := range strings.SplitSeq("\n"+notes, "\n## ") {
		if head, text, _ := strings.Cut(section, "\n"); head == name {
			return strings.TrimSpace(text)
		}
	}
	return "Not explained yet."
}

func heading(b *strings.Builder, w work) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", strings.ToUpper(w.name[:1])+w.name[1:], w.about)
}

func isGrown(w work) bool {
	switch w.contenders[0].start.(type) {
	case grown, stored:
		return true
	}
	return false
}

// growth writes a line for each size.
func growth(b *strings.Builder, w work, rs results) {
	heading(b, w)
	fmt.Fprintf(b, "\n| | %s |\n|---|%s\n", strings.Join(w.columns, " | "), strings.Repeat("---|", len(w.columns)))
	for _, r := range rs {
		line(b, r.name, r, w.columns)
	}
	failures(b, rs)
}

func line(b *strings.Builder, name string, r result, columns []string) {
	if !r.measured() {
		return
	}
	fmt.Fprintf(b, "| %s |", name)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", plusMinus(r.median(c)))
	}
	b.WriteByte('\n')
}

func failures(b *strings.Builder, rs results) {
	for _, r := range rs {
		if r.err != nil {
			fmt.Fprintf(b, "\n%s did not finish every round: %v.\n", r.name, r.err)
		}
	}
}

func table(b *strings.Builder, w work, rs results) {
	heading(b, w)
	fmt.Fprintf(b, "\n| contender | %s |\n|---|%s\n", strings.Join(w.columns, " | "), strings.Repeat("---|", len(w.columns)))
	for _, of := range []role{floor, ours, other, rival} {
		for _, r := range byRole(rs, of, w.columns[0]) {
			name := r.name
			if of == ours {
				name = "**" + name + "**"
			}
			line(b, name, r, w.columns)
		}
	}
	failures(b, rs)
	ratios(b, w, rs)
}

// compared has the columns for which ratios are meaningful.
var compared = []string{"ns", "added CPU ns", "CPU ns", "2 threads ns", "per second", "CPU µs", "proxy CPU µs", "door CPU µs", "p50 µs", "p99 µs", "bytes", "instructions"}

// ratios writes the ratios of our contenders to the best rival in each column, and to the floors.
func ratios(b *strings.Builder, w work, rs results) {
	columns := slices.DeleteFunc(slices.Clone(w.columns), func(c string) bool { return !slices.Contains(compared, c) })
	us, floors := byRole(rs, ours, w.columns[0]), byRole(rs, floor, w.columns[0])
	hasRivals := len(byRole(rs, rival, w.columns[0])) > 0
	if len(columns) == 0 || len(us) == 0 || len(floors) == 0 && !hasRivals {
		return
	}
	fmt.Fprintf(b, "\n| ratio | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, u := range us {
		if hasRivals {
			row(b, u, "best rival", columns, func(c string) (result, string) {
				best := byRole(rs, rival, c)[0]
				return best, " (" + best.name + ")"
			})
		}
		for _, f := range floors {
			row(b, u, f.name, columns, func(string) (result, string) { return f, "" })
		}
	}
}

// row writes the ratios of u to the result that the function against returns for each column.
func row(b *strings.Builder, u result, than string, columns []string, against func(column string) (r result, remark string)) {
	fmt.Fprintf(b, "| %s / %s |", u.name, than)
	for _, c := range columns {
		r, remark := against(c)
		x, _ := middle(over(u.work, c, u.name, r.name)(results{u, r}))
		fmt.Fprintf(b, " %s%s |", number(x), remark)
	}
	b.WriteByte('\n')
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
