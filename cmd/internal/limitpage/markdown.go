package limitpage

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/template"
	"unicode"

	"github.com/sluicehq/sluice/internal/printable"
)

//go:embed page.md
var markdownText string

var markdownTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"code": code, "escape": escape, "text": joined, "fenced": fenced,
	}).Parse(texts + markdownText))
})

// Markdown writes the page as Markdown with tables in GitHub's syntax.
func (p *Page) Markdown(out io.Writer) error { return markdownTemplate().Execute(out, p) }

// joined returns a text as Markdown.
func joined(t Text) string {
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

// code returns s between backquotes. If s could end the code span or the cell of a table, code escapes it instead.
func code(s string) string {
	if s = printable.Line(s); s == "" || strings.ContainsAny(s, "`|\\<>&") || strings.TrimSpace(s) != s {
		return escape(s)
	}
	return "`" + s + "`"
}

// escape escapes everything in s that Markdown interprets. Plain sentences stay readable.
func escape(s string) string {
	var b strings.Builder
	for _, r := range printable.Line(s) {
		if r < unicode.MaxASCII && !plain(r) {
			fmt.Fprintf(&b, "&#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), "://", "&#58;//"), "www.", "www&#46;")
}

// plain reports whether a character has no special meaning within a line of Markdown.
func plain(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" .,:;()/+-='\"?", r)
}

// fenced returns text as a code block with a fence that text does not contain.
func fenced(text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "http\n" + text + "\n" + fence
}
