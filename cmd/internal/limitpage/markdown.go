package limitpage

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// What both forms of the page say.
const (
	title      = "Limits of this API"
	intro      = "Every limit that a request falls under counts it, and it passes if all of them have room. What a limit refuses has used up nothing. The limits that hold for you are in the response fields, and can be others than those here."
	furtherYes = "Some requests have further limits against guessing and misuse, which are not listed."
	casing     = "Names of fields are the same in upper and lower case."
)

// steps are how to act on a refusal.
var steps = []string{
	"Wait for as many seconds as Retry-After says, and by chance up to a tenth longer, so that not all clients come back at the same moment. Asked again before, the request is refused again.",
	"A refusal without Retry-After does not go away: change the request, or ask for a larger limit.",
	"Let few requests wait at a time, and give up after a few attempts.",
	"Better is not to be refused: read what is left, and spread that over the seconds that are told with it.",
}

// Markdown writes the page as Markdown with tables, as GitHub reads them.
func (p *Page) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", title, intro)
	if len(p.Limits) == 0 {
		fmt.Fprint(&b, "\nNo limit is listed.\n")
	} else {
		b.WriteString("\n")
		head := []string{"Name", "Requests", "Counted"}
		if p.Costs {
			head = append(head, "A request counts")
		}
		for _, tier := range p.Tiers {
			head = append(head, heading(tier))
		}
		line(&b, head)
		line(&b, strings.Split(strings.Repeat("---|", len(head)-1)+"---", "|"))
		for _, l := range p.Limits {
			cells := []string{code(l.Name), l.For.markdown(), l.Counted.markdown()}
			if p.Costs {
				cells = append(cells, l.Cost.markdown())
			}
			for _, in := range l.In {
				cells = append(cells, escape(in))
			}
			line(&b, cells)
		}
	}
	for _, name := range p.Lockouts {
		fmt.Fprintf(&b, "\nWhoever exceeds %s is refused for longer, whatever is left of it: Retry-After says until when.\n", code(name))
	}
	if p.Further {
		fmt.Fprintf(&b, "\n%s\n", furtherYes)
	}
	if p.Example != nil {
		fmt.Fprintf(&b, "\n## Response fields\n\n%s\n\n", casing)
		table(&b, "Field", p.Fields)
	}
	b.WriteString("\n## Refusals\n\n")
	table(&b, "Status", p.Statuses)
	if p.Example != nil {
		fmt.Fprintf(&b, "\nFor example:\n\n%s\n", fenced("http", p.Example.String()))
	}
	if len(p.Members) > 0 {
		b.WriteString("\n")
		table(&b, "In the body", p.Members)
	}
	b.WriteString("\n## When you are refused\n\n")
	for i, step := range steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, step)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func heading(tier string) string {
	if tier == "" {
		return "Limit"
	}
	return escape(tier)
}

func table(b *strings.Builder, name string, all []Meaning) {
	line(b, []string{name, "Meaning"})
	line(b, []string{"---", "---"})
	for _, m := range all {
		line(b, []string{code(m.Name), escape(m.Says)})
	}
}

// line writes a row of cells that are Markdown.
func line(b *strings.Builder, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func (t Text) markdown() string {
	var b strings.Builder
	for _, piece := range t {
		if piece.Code {
			b.WriteString(code(piece.Text))
		} else {
			b.WriteString(escape(piece.Text))
		}
	}
	return b.String()
}

// code returns text that is shown as it is: between backquotes, or escaped where it could end these or
// the cell.
func code(s string) string {
	if s = shown(s); s == "" || strings.ContainsAny(s, "`|\\<>&") || strings.TrimSpace(s) != s {
		return escape(s)
	}
	return "`" + s + "`"
}

// escape returns text in which nothing means anything to Markdown. What stands in plain sentences is left
// readable.
func escape(s string) string {
	var b strings.Builder
	for _, r := range shown(s) {
		if r < unicode.MaxASCII && !plain(r) {
			fmt.Fprintf(&b, "&#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), "://", "&#58;//"), "www.", "www&#46;")
}

// plain reports whether a character of ASCII means nothing to Markdown inside a line.
func plain(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" .,:;()/+-='\"?", r)
}

// shown returns text in one line, without characters that do not show.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// fenced returns a block of code, which nothing in it ends.
func fenced(language, text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + language + "\n" + text + "\n" + fence
}
