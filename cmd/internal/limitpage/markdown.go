package limitpage

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/template"
	"unicode"

	"github.com/sluicehq/sluice/internal/printable"
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

//go:embed page.md.tmpl
var markdownText string

var markdownTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"code": code, "escape": escape, "words": Text.markdown, "fenced": fenced, "inc": func(i int) int { return i + 1 },
		"heading": func(tier string) string { return cmp.Or(escape(tier), "Limit") },
	}).Parse(markdownText))
})

// Markdown writes the page as Markdown with tables, as GitHub reads them.
func (p *Page) Markdown(out io.Writer) error { return markdownTemplate().Execute(out, p.read()) }

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
		if !printable.Shows(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// fenced returns a block with an answer of HTTP, which nothing in it ends.
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
