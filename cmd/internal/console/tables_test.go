package console

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// On each page, the rows of a table have as many cells as its heading.
func TestTables(t *testing.T) {
	b := newBrowser(t, fixture(t, func() *telemetry.View { return attack(time.Now()) }), source.Admin)
	for _, path := range []string{"/", "/subjects", "/rules", "/rules/login-address", "/budgets", "/shadow", "/overrides", "/explain", "/audit", "/policy"} {
		w := b.get(path)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
		plainHTML(t, path, w.Body.String())
	}
}

// checkTable reports the rows of a table that have more or fewer cells than its heading.
func checkTable(t *testing.T, where string, table *html.Node) {
	t.Helper()
	headings := -1
	for row := range table.Descendants() {
		if row.DataAtom != atom.Tr {
			continue
		}
		switch n := width(row); {
		case row.Parent.DataAtom == atom.Thead:
			headings = n
		case headings >= 0 && n != headings:
			t.Errorf("%s: a row has %d cells below %d headings: %q", where, n, headings, wordsIn(row))
		}
	}
}

// width returns the number of columns that the cells of a row span on a wide screen.
func width(row *html.Node) (columns int) {
	for cell := range row.ChildNodes() {
		if cell.DataAtom != atom.Th && cell.DataAtom != atom.Td {
			continue
		}
		n := 1
		for _, a := range cell.Attr {
			switch {
			case a.Key == "class" && strings.Contains(a.Val, "narrow-only"):
				n = 0
			case a.Key == "colspan":
				n, _ = strconv.Atoi(a.Val)
			}
		}
		columns += n
	}
	return columns
}

// wordsIn returns the text of an element, with single spaces.
func wordsIn(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
