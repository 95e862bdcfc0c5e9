package limitpage

import (
	_ "embed"
	"html/template"
	"io"
	"sync"

	"github.com/sluicehq/sluice/internal/printable"
)

// texts has the sentences that the HTML and the Markdown page share.
//
//go:embed texts.tmpl
var texts string

//go:embed page.html
var htmlText string

var htmlTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"shown": printable.Line}).Parse(texts + htmlText))
})

// HTML writes the page as a self-contained HTML file.
func (p *Page) HTML(out io.Writer) error { return htmlTemplate().Execute(out, p) }
