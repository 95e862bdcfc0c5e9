package show

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

const (
	chartSteps = 120 // the maximum number of steps in a chart
	chartRules = 6   // the maximum number of rules with a line of their own
)

// drawn has a chart in two sizes, for wide and narrow pages, and its contents in words.
type drawn struct {
	Wide, Narrow template.HTML
	Text         string
	Legend       []legend
}

// legend describes a line of a chart.
type legend struct {
	Name string
	Ink  int // the number of one of the style's colors, --ink-0 to --ink-7
}

// requestsChart draws requests and denials.
func requestsChart(s replay.Series) *drawn {
	return draw(s, [][]int64{s.Requests, s.Refused}, []legend{{"requests", 0}, {"denied", 1}}, peaks(s))
}

// peaks describes the peaks of a series.
func peaks(s replay.Series) string {
	if len(s.Requests) == 0 {
		return ""
	}
	text := fmt.Sprintf("At most %s in %s.", words.Counted(slices.Max(s.Requests), "request"), words.Span(s.Step))
	if worst := slices.Max(s.Refused); worst > 0 {
		at := s.Begin.Add(time.Duration(slices.Index(s.Refused, worst)) * s.Step)
		text += fmt.Sprintf(" The step with the most denials (%s) begins at %s.", humanize.Comma(worst), when(at))
	}
	return text
}

// rulesChart draws the denials of the rules with the most denials, in the steps of s.
func rulesChart(r *replay.Report, s replay.Series, names []string) *drawn {
	var lines [][]int64
	var of []legend
	for _, name := range names {
		rule := r.Rules[name]
		if len(of) == chartRules || rule.Refused == 0 {
			break
		}
		lines = append(lines, replay.Series{Begin: r.Series.Begin, Step: r.Series.Step, Requests: rule.Series}.Coarser(s.Step).Requests)
		if rule.Shadow {
			name += " (in shadow mode)"
		}
		of = append(of, legend{name, len(of) + 2})
	}
	return draw(s, lines, of, "Denials over time, by rule.")
}

func draw(over replay.Series, lines [][]int64, of []legend, text string) *drawn {
	if len(over.Requests) < 2 || len(lines) == 0 {
		return nil
	}
	return &drawn{
		Wide: drawing(1000, 260, 10, over, lines, of), Narrow: drawing(400, 240, 5, over, lines, of),
		Text: text, Legend: of,
	}
}

// The margins of a drawing leave room for the labels of its axes.
const marginLeft, marginRight, marginTop, marginBottom = 56, 26, 10, 26

// drawing draws series as lines, and fills the areas below requests and denials. At most maxLabels labels are below the
// time axis. The colors are variables of the page's style, so that one drawing fits light and dark backgrounds. The
// page determines the size of the drawing.
func drawing(width, height, maxLabels int, over replay.Series, lines [][]int64, of []legend) template.HTML {
	highest := int64(0)
	for _, line := range lines {
		highest = max(highest, slices.Max(line))
	}
	each, parts := scale(highest)
	left, bottom := float64(marginLeft), float64(height-marginBottom)
	x := func(i int) float64 {
		return left + float64(i)*(float64(width-marginRight)-left)/float64(len(over.Requests)-1)
	}
	y := func(n int64) float64 { return bottom - float64(n)*(bottom-marginTop)/float64(each*parts) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" xmlns="http://www.w3.org/2000/svg">`, width, height)
	for n := range parts + 1 {
		at := y(n * each)
		fmt.Fprintf(&b, `<path d="M%.0f %.1fH%d" style="stroke:var(--line);fill:none"/>`, left, at, width-marginRight)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" text-anchor="end" style="fill:var(--muted);font-size:12.8px">%s</text>`, left-6, at+4, short(n*each))
	}
	for i, label := range ticks(over, maxLabels) {
		if label == "" {
			continue
		}
		fmt.Fprintf(&b, `<path d="M%.1f %.0fv5" style="stroke:var(--line);fill:none"/>`, x(i), bottom)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" text-anchor="middle" style="fill:var(--muted);font-size:12.8px">%s</text>`, x(i), bottom+20, label)
	}
	for i, line := range lines {
		var path strings.Builder
		for j := range over.Requests {
			n := int64(0)
			if j < len(line) {
				n = line[j]
			}
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(j), y(n))
		}
		if of[0].Ink == 0 {
			fmt.Fprintf(&b, `<path d="%sV%.0fH%.0fZ" style="stroke:none;fill:var(--ink-%d);fill-opacity:.2"/>`, &path, bottom, left, of[i].Ink)
		}
		fmt.Fprintf(&b, `<path d="%s" style="stroke-width:1.75;stroke:var(--ink-%d);fill:none"/>`, &path, of[i].Ink)
	}
	b.WriteString("</svg>")
	// The drawing has only numbers and times, and no text from the log.
	return template.HTML(b.String())
}

// scale divides an axis that reaches at least to n into at most five equal parts. It returns the length of a part,
// which is a round number, and the number of parts.
func scale(n int64) (each, parts int64) {
	for each = 1; ; each *= 10 {
		for _, of := range [...]int64{1, 2, 5} {
			if parts = (n + of*each - 1) / (of * each); parts <= 5 {
				return of * each, max(1, parts)
			}
		}
	}
}

// short formats a round number: "20 k".
func short(n int64) string {
	if n < 10_000 {
		return humanize.Comma(n)
	}
	return strings.TrimSpace(humanize.SI(float64(n), ""))
}

// spans are the possible lengths of steps, and the possible distances between two labels of an axis.
var spans = [...]time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 7 * day, 28 * day, 364 * day,
}

const day = 24 * time.Hour

// legible returns s with longer steps, so that it has at most maxSteps. If even the longest of the spans is too short
// for this, it returns s.
func legible(s replay.Series, maxSteps int) replay.Series {
	if len(s.Requests) <= maxSteps {
		return s
	}
	for _, step := range spans {
		if step > s.Step && step%s.Step == 0 {
			if c := s.Coarser(step); len(c.Requests) <= maxSteps {
				return c
			}
		}
	}
	return s
}

// ticks returns a label for each step at which a new hour, day or other span begins, and "" for other steps. The span
// is so long that at most maxLabels steps have labels, if possible.
func ticks(s replay.Series, maxLabels int) (labels []string) {
	for _, every := range spans {
		if every < s.Step {
			continue
		}
		labels = make([]string, len(s.Requests))
		used := 0
		for i := range labels {
			if at := s.Begin.Add(time.Duration(i) * s.Step).UTC(); at.Unix()%int64(every/time.Second) == 0 {
				labels[i] = tick(at, every)
				used++
			}
		}
		if used <= maxLabels {
			break
		}
	}
	return labels
}

// tick returns the label for the start of a span.
func tick(at time.Time, every time.Duration) string {
	switch {
	case every > 7*day:
		return at.Format("Jan 2006")
	case every >= day || at.Equal(at.Truncate(day)):
		return at.Format("2 Jan")
	case every >= time.Minute:
		return at.Format("15:04")
	}
	return at.Format("15:04:05")
}
