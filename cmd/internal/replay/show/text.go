package show

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

const (
	textSubjects = 10 // the maximum number of subjects in the text
	textRules    = 40
	textLines    = 5
	barWidth     = 12
)

// Text writes a report for a terminal. The parameter width is the number of its columns; 0 means unknown. Text from
// the log cannot control the terminal.
func Text(w io.Writer, r *replay.Report, width int) error {
	p := &printer{Writer: bufio.NewWriter(w), width: width}
	if width <= 0 || width > 160 {
		p.width = 160
	}
	p.head(r)
	p.rules(r)
	p.subjects(r)
	p.list("about the rules", findings(r), 1000)
	p.statuses(r)
	p.doubts(r)
	if r.Against != nil {
		p.difference(r, r.Against)
	}
	return p.Flush()
}

// printer keeps the first error for Flush.
type printer struct {
	*bufio.Writer
	width int
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// section begins a section, with its name in capitals.
func (p *printer) section(name string) {
	p.line("")
	p.paragraph("", strings.ToUpper(name))
}

// paragraph writes the label and the text in lines of the printer's width. The lines of the text after the first one
// are indented by the width of the label.
func (p *printer) paragraph(label, text string) {
	indent := utf8.RuneCountInString(label)
	for i, line := range words.Wrap(text, min(p.width, 100)-indent) {
		if i > 0 {
			label = strings.Repeat(" ", indent)
		}
		p.line("%s%s", label, line)
	}
}

// narrowest is the smallest width of a column of text. Tables that would need a narrower one are written as
// paragraphs.
const narrowest = 16

// table writes rows in columns. The first columns have text, and their number is given; the other columns have numbers.
// If there is little room, the widest text is broken into lines; if there is even less, each row becomes a paragraph.
func (p *printer) table(texts int, head []string, rows [][]string) {
	widths := make([]int, len(head))
	room := p.width
	for i := range head {
		for _, row := range append(rows, head) {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		room -= widths[i] + 2
	}
	if room < 0 {
		widest := slices.Index(widths, slices.Max(widths[:texts]))
		if widths[widest] += room; widths[widest] < narrowest {
			p.paragraphs(texts, head, rows)
			return
		}
	}
	for _, row := range append([][]string{head}, rows...) {
		var cells [][]string
		height := 1
		for i, cell := range row {
			lines := []string{cell}
			if utf8.RuneCountInString(cell) > widths[i] {
				lines = words.Wrap(cell, widths[i])
			}
			cells, height = append(cells, lines), max(height, len(lines))
		}
		for n := range height {
			var line strings.Builder
			for i, lines := range cells {
				cell := ""
				if n < len(lines) {
					cell = lines[n]
				}
				gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
				if i >= texts {
					cell, gap = gap, cell
				}
				line.WriteString("  " + cell + gap)
			}
			p.line("%s", strings.TrimRight(line.String(), " "))
		}
	}
}

// paragraphs writes each row of a table as a paragraph.
func (p *printer) paragraphs(left int, head []string, rows [][]string) {
	for _, row := range rows {
		var cells []string
		for i, cell := range row[1:] {
			switch {
			case cell == "", cell == "–", head[i+1] == "":
			case i+1 < left:
				cells = append(cells, cell)
			default:
				cells = append(cells, head[i+1]+" "+cell)
			}
		}
		p.paragraph("  ", row[0])
		p.paragraph("      ", strings.Join(cells, ", "))
	}
}

func (p *printer) head(r *replay.Report) {
	p.paragraph("", headline(r))
	if r.Requests > 0 && !r.From.IsZero() {
		p.paragraph("", fmt.Sprintf("From %s to %s UTC, %s.", when(r.From), when(r.To), words.Span(r.To.Sub(r.From))))
	}
	p.paragraph("", fmt.Sprintf("Read %s of %s%s.", words.Counted(r.Log.Lines, "line"), words.Counted(int64(len(r.Log.Files)), "file"), formats(r.Log.Files)))
	room := max(10, min(p.width-36, 72))
	if series := legible(r.Series, room); len(series.Requests) > 1 {
		p.section("over time, " + words.Span(series.Step) + " each")
		p.line("  requests  %s  at most %s", spark(series.Requests, room), humanize.Comma(slices.Max(series.Requests)))
		if r.Refused > 0 {
			p.line("  denied   %s  at most %s", spark(series.Refused, room), humanize.Comma(slices.Max(series.Refused)))
		}
	}
}

// formats returns the names of the formats that were read, in brackets.
func formats(files []feed.File) string {
	var names []string
	for _, f := range files {
		if f.Format != "" && !slices.Contains(names, f.Format) {
			names = append(names, f.Format)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + safe(strings.Join(names, ", "), 200) + ")"
}

// spark draws a series in at most width characters. Each character stands for the same number of steps, and shows the
// largest count of these.
func spark(series []int64, width int) string {
	each := (len(series) + width - 1) / width
	most := max(1, slices.Max(series))
	var b strings.Builder
	for part := range slices.Chunk(series, each) {
		n := slices.Max(part)
		if n == 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[(8*n-1)/most])
	}
	return b.String()
}

func (p *printer) rules(r *replay.Report) {
	if len(r.Order) == 0 {
		return
	}
	p.section("rules")
	var rows [][]string
	hits := r.Order
	if len(hits) > textRules { // only the rules that denied requests
		hits = slices.DeleteFunc(byRefusals(r), func(name string) bool { return r.Rules[name].Refused == 0 })
		hits = hits[:min(len(hits), textRules)]
	}
	for _, name := range hits {
		rule, judged := r.Rules[name]
		if !judged {
			continue
		}
		touched := "–"
		if rule.Subjects > 0 {
			touched = humanize.Comma(rule.SubjectsRefused) + " of " + humanize.Comma(rule.Subjects)
		}
		rows = append(rows, []string{safe(name, 40), safe(what(rule), 100), humanize.Comma(rule.Matched), humanize.Comma(rule.Refused), share(rule.Refused, rule.Matched), humanize.Comma(rule.Alone), touched, longest(rule)})
	}
	p.table(2, []string{"rule", "limit", "matched", "denied", "share", "alone", noun(r) + "s denied", "longest wait"}, rows)
	if left := len(r.Order) - len(hits); left > 0 {
		p.paragraph("  ", "And "+humanize.Comma(int64(left))+" more, which are in the page and in the JSON.")
	}
	p.line("")
	p.paragraph("  ", aboutRules(r))

	rows = nil
	for _, name := range hits {
		if rule := r.Rules[name]; rule.SubjectsRefused > 0 {
			row := []string{safe(name, 40)}
			for _, n := range rule.Hardness {
				if n == 0 {
					row = append(row, "–")
					continue
				}
				row = append(row, humanize.Comma(n))
			}
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		p.section("how hard: " + noun(r) + "s by how long they were down")
		p.table(1, append([]string{"rule"}, hardness[:]...), rows)
		p.line("")
		p.paragraph("  ", aboutDown)
	}
}

// what describes what a rule does, and whether it is in shadow mode.
func what(rule replay.Rule) string {
	if rule.Shadow {
		return limit(rule) + " (shadow)"
	}
	return limit(rule)
}

// limit describes what a rule does.
func limit(rule replay.Rule) string {
	text := strings.Join(rule.Limits, ", ")
	switch {
	case rule.Kind == "block":
		text = "blocks"
	case rule.Kind == "exempt":
		text = "exempts"
	case rule.Algorithm != "" && rule.Algorithm != "token_bucket":
		text += ", " + strings.ReplaceAll(rule.Algorithm, "_", " ")
	}
	if rule.Enforce != "" {
		text += ", for " + rule.Enforce
	}
	return text
}

// aboutRules explains the columns of rules.
func aboutRules(r *replay.Report) string {
	text := "Alone counts the requests that no other rule denies. Longest wait is the longest Retry-After of a denial."
	if noun(r) == "subject" {
		text += " A subject is one value of what a rule counts by: an address, an API key, a user."
	}
	return text
}

const aboutDown = "Down is the longest time from a denial to the next request that was allowed, or that would have been allowed after the Retry-After. Once means that there was only one denial."

func longest(rule replay.Rule) string {
	if rule.Refused == 0 || rule.Longest <= 0 {
		return "–"
	}
	return words.Span(rule.Longest)
}

func (p *printer) subjects(r *replay.Report) {
	if len(r.Top) == 0 {
		return
	}
	p.section("denied most")
	var rows [][]string
	for _, s := range r.Top[:min(len(r.Top), textSubjects)] {
		rows = append(rows, []string{safe(s.Key, 45), safe(s.Rule, 30), humanize.Comma(s.Refused), humanize.Comma(s.Requests), bar(s.Refused, r.Top[0].Refused), down(s)})
	}
	p.table(2, []string{noun(r), "rule", "denied", "requests", "", "down"}, rows)
	p.line("")
	for _, s := range r.Top[:min(len(r.Top), 3)] {
		about := safe(s.Pattern, 120)
		if s.Path != "" {
			about = strings.TrimPrefix(about+"; denied most at "+safe(s.Path, 80), "; ")
		}
		if about != "" {
			p.paragraph("  - ", safe(s.Key, 45)+": "+about+".")
		}
	}
}

// down returns how long a subject was down, or a dash.
func down(s replay.Subject) string {
	if s.Down <= 0 {
		return "–"
	}
	return words.Span(s.Down)
}

// bar draws a bar with a length proportional to n. If n equals longest, the bar has the full width.
func bar(n, longest int64) string {
	full := int(barWidth * n / max(1, longest))
	return strings.Repeat("█", full) + strings.Repeat(" ", barWidth-full)
}

// list writes a section of sentences, each cut to limit characters. Without sentences, it writes nothing.
func (p *printer) list(name string, sentences []string, limit int) {
	if len(sentences) > 0 {
		p.section(name)
	}
	for _, text := range sentences {
		p.paragraph("  - ", safe(text, limit))
	}
}

// findings returns conclusions about the rules from the counts, in sentences.
func findings(r *replay.Report) (found []string) {
	if len(r.NeverHit) > 0 {
		found = append(found, "No request matched "+names(r.NeverHit)+".")
	}
	for _, s := range r.Shadowed {
		found = append(found, fmt.Sprintf("%[2]s denies every request that %[1]s denies, so %[1]s makes no difference in this log.", safe(s.Rule, 64), safe(s.By, 64)))
	}
	for _, name := range r.Order {
		rule, ok := r.Rules[name]
		if !ok {
			continue
		}
		name = safe(name, 64)
		if rule.Boundary > 0.2 && rule.Refused >= 20 {
			found = append(found, fmt.Sprintf("%s of the denials by %s are in the first tenth of its window: clients send bursts when a window begins. A bucket or a sliding window spreads these bursts.", share(int64(rule.Boundary*1000+0.5), 1000), name))
		}
		if rule.Shadow && rule.Refused > 0 {
			others := humanize.Comma(rule.Alone) + " of which no other rule denies"
			switch rule.Alone {
			case 0:
				others = "all of which other rules deny, too"
			case rule.Refused:
				others = "which no other rule denies"
			}
			found = append(found, fmt.Sprintf("%s is in shadow mode: it would deny %s, %s.", name, words.Counted(rule.Refused, "request"), others))
		}
		if rule.Delayed > 0 {
			found = append(found, fmt.Sprintf("%s would hold %s in its queue before letting them pass.", name, words.Counted(rule.Delayed, "request")))
		}
	}
	return found
}

// names lists some of the names, and gives the number of the others.
func names(all []string) string {
	const most = 8
	shown := make([]string, min(len(all), most))
	for i := range shown {
		shown[i] = safe(all[i], 64)
	}
	if len(all) > most {
		return strings.Join(shown, ", ") + fmt.Sprintf(" and %s", words.Counted(int64(len(all)-most), "other rule"))
	}
	if n := len(shown); n > 1 {
		return strings.Join(shown[:n-1], ", ") + " and " + shown[n-1]
	}
	return strings.Join(shown, "")
}

func (p *printer) statuses(r *replay.Report) {
	if len(r.Statuses) == 0 || r.Requests == 0 {
		return
	}
	p.section("responses in the log")
	var rows [][]string
	for _, s := range r.Statuses {
		rows = append(rows, []string{safe(s.Class, 10), humanize.Comma(s.Requests), humanize.Comma(s.Refused), share(s.Refused, s.Requests)})
	}
	p.table(1, []string{"answered", "requests", "would be denied", "share"}, rows)
}

func (p *printer) doubts(r *replay.Report) {
	var left []string
	for _, n := range r.NotJudged {
		left = append(left, safe(n.Rule, 64)+": "+safe(n.Why, 300))
	}
	p.list("not judged, because the log lacks the data", left, 1000)
	p.list("read only in part", broken(r), 400)
	if len(r.Log.Unread) > 0 {
		shown := r.Log.Unread[:min(len(r.Log.Unread), textLines)]
		first := ""
		if int64(len(shown)) < r.Unreadable {
			first = ", of which the first:"
		}
		p.section(words.Counted(r.Unreadable, "line") + " that could not be read" + first)
		for _, u := range shown {
			p.paragraph("  - ", fmt.Sprintf("%s:%d: %s", safe(u.File, 200), u.Line, safe(u.Why, 80)))
			p.paragraph("    ", safe(u.Text, 200))
		}
	}
	p.list("before you trust this", r.Notes, 1000)
}

// broken returns the files that could not be read to their ends.
func broken(r *replay.Report) (all []string) {
	for _, f := range r.Log.Files {
		if f.Broken != "" {
			all = append(all, f.Name+" breaks off; the lines before the break are counted: "+f.Broken)
		}
	}
	return all
}

func (p *printer) difference(r *replay.Report, d *replay.Difference) {
	p.section("with " + safe(d.Other, 100))
	p.paragraph("  ", verdict(r, d))
	p.line("")
	var rows [][]string
	for _, c := range changes(d) {
		limit := c.Before
		if c.After != c.Before {
			limit += " → " + c.After
		}
		rows = append(rows, []string{safe(c.Rule, 40), safe(limit, 100), c.Was, c.Is})
	}
	p.table(2, []string{"rule", "limit", "denied before", "after"}, rows)
	p.clients("denied more", d.Suffer)
	p.clients("denied less", d.Relieved)
	for _, n := range notJudged(r, d) {
		p.line("")
		p.paragraph("  - ", safe("Not judged in the other policy: "+n.Rule+". "+n.Why, 300))
	}
}

// notJudged returns the rules of the other policy that were not judged and that are not in the first report's list.
func notJudged(r *replay.Report, d *replay.Difference) []replay.NotJudged {
	return slices.DeleteFunc(slices.Clone(d.Report.NotJudged), func(n replay.NotJudged) bool { return slices.Contains(r.NotJudged, n) })
}

// change has the changes of a rule between two policies.
type change struct {
	Rule, Before, After string // the limits
	Was, Is             string // the denials
}

// changes returns the change of each rule.
func changes(d *replay.Difference) (all []change) {
	for _, c := range d.Rules {
		row := change{Rule: c.Rule, Before: "–", After: "–", Was: "–", Is: "–"}
		if c.Before != nil {
			row.Before, row.Was = what(*c.Before), humanize.Comma(c.Before.Refused)
		}
		if c.After != nil {
			row.After, row.Is = what(*c.After), humanize.Comma(c.After.Refused)
		}
		all = append(all, row)
	}
	return all
}

// verdict describes in a sentence or two what the other policy changes.
func verdict(r *replay.Report, d *replay.Difference) string {
	if d.Newly == 0 && d.Only == 0 {
		return "It would deny the same requests."
	}
	none := func(n int64, thing string) string {
		if n == 0 {
			return "no " + thing
		}
		return words.Counted(n, thing)
	}
	text := fmt.Sprintf("It would deny %s, in place of %s: ", none(d.Report.Refused, "request"), humanize.Comma(r.Refused))
	switch {
	case d.Only == 0:
		text += humanize.Comma(d.Newly) + " more"
	case d.Newly == 0:
		text += humanize.Comma(d.Only) + " fewer"
	default:
		text += fmt.Sprintf("%s that are allowed now, and no longer %s others", humanize.Comma(d.Newly), humanize.Comma(d.Only))
	}
	text += "."
	if d.ClientsNewly == 0 && d.ClientsFreed == 0 {
		return text + " It would deny the same clients, but other numbers of their requests."
	}
	newly := none(d.ClientsNewly, "client")
	return fmt.Sprintf("%s %s would newly be denied, and %s no longer at all.",
		text, strings.ToUpper(newly[:1])+newly[1:], none(d.ClientsFreed, "client"))
}

func (p *printer) clients(name string, all []replay.ClientChange) {
	if len(all) == 0 {
		return
	}
	p.line("")
	var rows [][]string
	for _, c := range all[:min(len(all), textSubjects)] {
		rows = append(rows, []string{safe(c.Client, 45), humanize.Comma(c.Before), humanize.Comma(c.After)})
	}
	p.table(1, []string{name, "before", "after"}, rows)
}
