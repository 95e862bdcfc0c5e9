package show

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/internal/printable"
)

// parsed returns the page of a report as a browser parses it, and its text.
func parsed(t *testing.T, r *replay.Report) (root *html.Node, text string) {
	t.Helper()
	var b strings.Builder
	if err := HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.DataAtom != atom.Style {
			words.WriteString(n.Data)
		}
	}
	return root, words.String()
}

// The elements and attributes that a page may have.
var (
	elements = strings.Fields(`html head meta title link style body header p svg rect path text g span h1 time main section div b
		h2 h3 table thead tbody tr th td code br ul li i figure figcaption footer`)
	attributes = strings.Fields(`id lang charset name content rel class viewBox xmlns aria-hidden aria-label role focusable tabindex
		scope d x y rx width height style datetime data-l text-anchor`)
)

// wrong returns the problem with an attribute, if any: an address, or a style beyond sizes and colours.
func wrong(n *html.Node, a html.Attribute) string {
	switch {
	case a.Key == "href" && n.Data == "link" && a.Val == "data:,":
	case !slices.Contains(attributes, a.Key):
		return "unknown attribute"
	case strings.Contains(a.Val, "//") && a.Val != "http://www.w3.org/2000/svg" && a.Key != "aria-label":
		return "address"
	case n.Data == "svg" && (a.Key == "width" || a.Key == "height"):
		return "drawing with a size of its own"
	case a.Key == "style" && (strings.ContainsAny(a.Val, "@\\") || strings.Contains(a.Val, "url") || strings.Contains(a.Val, "font-family")):
		return "style"
	}
	return ""
}

// Texts from a log appear on the page only as text, and the page loads nothing.
func TestPageIsHarmless(t *testing.T) {
	for name, r := range map[string]*replay.Report{"hostile": attacked(), "full": compared(), "many": many(), "empty": logged(replay.Report{})} {
		root, text := parsed(t, r)
		ids := map[string]bool{}
		for n := range root.Descendants() {
			if n.Type == html.CommentNode || n.Type == html.ElementNode && !slices.Contains(elements, n.Data) {
				t.Errorf("%s: a comment or unknown element: %q", name, n.Data)
			}
			for _, a := range n.Attr {
				if what := wrong(n, a); what != "" {
					t.Errorf("%s: <%s> has %s=%q: %s", name, n.Data, a.Key, a.Val, what)
				}
				if a.Key == "id" && ids[a.Val] {
					t.Errorf("%s: two elements have the id %q", name, a.Val)
				}
				ids[a.Val] = ids[a.Val] || a.Key == "id"
			}
			if n.DataAtom == atom.Style && strings.Contains(n.FirstChild.Data, "url(") {
				t.Errorf("%s: the style loads something", name)
			}
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !printable.Shows(r) }); i >= 0 {
			t.Errorf("%s: not printable: %q", name, text[max(0, i-20):i+10])
		}
		if strings.Contains(text, "ZgotmplZ") {
			t.Errorf("%s: the template has refused a value", name)
		}
	}
}

// The page shows hostile texts instead of hiding them.
func TestPageShowsText(t *testing.T) {
	_, text := parsed(t, attacked())
	for _, want := range []string{
		"</title></style><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, `\u{202e}gnp.exe\u{202c}`, `\x1b[2J\x1b]0;owned\a`, `a\nRULES\n  per-key\r\t0`,
		`\xff\xfe\x80binary`, `ad\u{200b}min\u{feff}`, "{{.Requests}}", "%s%d%!(NOVERB)", strings.Repeat("A", 200) + "…",
	} {
		if strings.Count(text, want) < 3 {
			t.Errorf("the page has %q %d times", want, strings.Count(text, want))
		}
	}
	if strings.Contains(text, strings.Repeat("A", 2001)) {
		t.Error("the page has the whole of a long key")
	}
}

// The page contains each line of testdata/page.txt, and both charts.
func TestPageTellsAll(t *testing.T) {
	root, text := parsed(t, compared())
	want, err := os.ReadFile("testdata/page.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(want)), "\n") {
		if !strings.Contains(text, line) {
			t.Errorf("the page lacks %q", line)
		}
	}
	charts := 0
	for n := range root.Descendants() {
		if n.DataAtom == atom.Figure {
			charts++
		}
	}
	if charts != 2 {
		t.Errorf("%d charts", charts)
	}
}

// A section without contents is left out.
func TestPageLeavesOut(t *testing.T) {
	sections := func(r *replay.Report) (names []string) {
		root, _ := parsed(t, r)
		for n := range root.Descendants() {
			if n.DataAtom == atom.H2 {
				names = append(names, strings.TrimSpace(n.FirstChild.Data))
			}
		}
		return names
	}
	if got := sections(logged(replay.Report{})); len(got) > 0 {
		t.Errorf("an empty log has %q", got)
	}
	r := watching()
	want := []string{"Over time", "Denials by rule", "Rules", "Downtime", "About the rules", "Responses in the log",
		"Not judged, because the log lacks the data", "Read only in part", "3 lines that could not be read", "Before you trust this"}
	if got := sections(r); !slices.Equal(got, want) {
		t.Errorf("rules in shadow mode: %q", got)
	}
	rows := 0
	root, text := parsed(t, many())
	for n := range root.Descendants() {
		if n.DataAtom == atom.Tr {
			rows++
		}
	}
	if rows < 200 || !strings.Contains(text, "rule-199") {
		t.Errorf("%d rows for 200 rules", rows)
	}
}

// A series with longer steps has the same counts, and each step begins at its stated time.
func TestCoarser(t *testing.T) {
	for _, begin := range []time.Time{noon, noon.Add(-45 * time.Minute), time.Date(1970, 1, 1, 0, 15, 0, 0, time.UTC)} {
		s := replay.Series{Begin: begin, Step: 15 * time.Minute}
		byHour := map[time.Time]int64{}
		for i := range int64(300) {
			s.Requests, s.Refused = append(s.Requests, i), append(s.Refused, 1)
			byHour[begin.Add(time.Duration(i)*s.Step).Truncate(time.Hour)] += i
		}
		c := s.Coarser(time.Hour)
		if len(c.Requests) != len(byHour) || len(c.Refused) != len(byHour) {
			t.Errorf("from %v: %d steps, want %d", begin, len(c.Requests), len(byHour))
		}
		for i, n := range c.Requests {
			if at := c.Begin.Add(time.Duration(i) * c.Step); byHour[at] != n {
				t.Errorf("from %v: %d at %v, want %d", begin, n, at, byHour[at])
			}
		}
	}
	for _, step := range []time.Duration{time.Second, 5 * time.Second, time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, day, 7 * day} {
		if l := legible(replay.Series{Begin: noon, Step: step, Requests: make([]int64, 500), Refused: make([]int64, 500)}, chartSteps); len(l.Requests) > chartSteps {
			t.Errorf("500 steps of %v become %d", step, len(l.Requests))
		}
	}
}
