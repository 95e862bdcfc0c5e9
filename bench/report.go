package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// report writes the results as Markdown: a table a work, with the ratio of ours to the
// best rival and to the floor.
func report(works []work, results map[string][]result, rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results\n\nMade by `make bench`: medians of %d rounds, ± half the distance of the quartiles. Every contender ran in a process of its own, in turn with the others.\n\n", rounds)
	fmt.Fprintf(&b, "Machine: %s, %d processors, %s/%s, %s.\n\nVersions: %s.\n", cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), versions())
	for _, w := range works {
		if rs := results[w.name]; rs != nil {
			table(&b, w, rs)
		}
	}
	return b.String()
}

func table(b *strings.Builder, w work, rs []result) {
	first := w.columns[0]
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n| who | %s |\n|---|%s\n", w.name, w.about, strings.Join(w.columns, " | "), strings.Repeat("---|", len(w.columns)))
	for _, of := range []role{floor, ours, rival} {
		for _, r := range byRole(rs, of, first) {
			name := r.name
			if of == ours {
				name = "**" + name + "**"
			}
			fmt.Fprintf(b, "| %s |", name)
			for _, c := range w.columns {
				mid, spread := r.median(c)
				fmt.Fprintf(b, " %s ± %s |", number(mid), number(spread))
			}
			b.WriteByte('\n')
		}
	}
	for _, r := range rs {
		if r.err != nil {
			fmt.Fprintf(b, "\n%s did not finish every round: %v\n", r.name, r.err)
		}
	}
	b.WriteString(ratios(w, rs, first))
}

func ratios(w work, rs []result, column string) string {
	us, them, under := byRole(rs, ours, column), byRole(rs, rival, column), byRole(rs, floor, column)
	var b strings.Builder
	for _, u := range us {
		mine, _ := u.median(column)
		fmt.Fprintf(&b, "\n%s:", u.name)
		if len(them) > 0 {
			x, _ := them[0].median(column)
			fmt.Fprintf(&b, " %.2f of the best rival (%s)", mine/x, them[0].name)
		}
		for _, f := range under {
			x, _ := f.median(column)
			fmt.Fprintf(&b, ", %.2f of the floor (%s)", mine/x, f.name)
		}
		b.WriteString(".\n")
	}
	return b.String()
}

func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.0001:
		return fmt.Sprintf("%.1e", x)
	case x < 1:
		return fmt.Sprintf("%.4f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, model, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown processor"
}

func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var v []string
	for _, d := range info.Deps {
		if strings.Contains(versionsOf, d.Path) {
			v = append(v, d.Path+" "+d.Version)
		}
	}
	return strings.Join(v, ", ")
}

const versionsOf = "golang.org/x/time github.com/sethvargo/go-limiter github.com/throttled/throttled/v2 github.com/ulule/limiter/v3 github.com/go-chi/httprate github.com/didip/tollbooth/v8 go.uber.org/ratelimit github.com/go-redis/redis_rate/v10 github.com/redis/go-redis/v9 github.com/redis/rueidis"
