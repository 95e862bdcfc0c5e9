package limitpage

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"sync"
)

//go:embed page.html
var pageText string

var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"shown": shown, "heading": func(tier string) string { return cmp.Or(shown(tier), "Limit") },
	}).Parse(pageText))
})

// HTML writes the page as one that needs nothing else.
func (p *Page) HTML(out io.Writer) error {
	return pageTemplate().Execute(out, p.read())
}

// read is what templates read.
type read struct {
	*Page
	Title, Intro, More, Casing string
	Steps                      []string
}

func (p *Page) read() read { return read{p, title, intro, furtherYes, casing, steps} }
