package limitpage

import (
	_ "embed"
	"html/template"
	"io"
	"sync"
)

//go:embed page.html
var pageText string

var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"shown": shown, "heading": func(tier string) string {
			if tier == "" {
				return "Limit"
			}
			return shown(tier)
		},
	}).Parse(pageText))
})

// HTML writes the page as one that needs nothing else.
func (p *Page) HTML(out io.Writer) error {
	return pageTemplate().Execute(out, struct {
		*Page
		Title, Intro, More, Casing string
		Steps                      []string
	}{p, title, intro, furtherYes, casing, steps})
}
