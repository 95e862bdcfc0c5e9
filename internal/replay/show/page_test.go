package show

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/sluicehq/sluice/internal/replay"
)

// parsed is a page as a browser reads it.
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

// What comes from a log is text of a page and nothing else, and the page asks for nothing.
func TestPageIsHarmless(t *testing.T) {
	elements := map[string]bool{}
	for name := range strings.FieldsSeq(`html head meta title link style body header p svg rect path text g span h1 time main section div b h2 h3 table thead tbody tr th td code br ul li i figure figcaption footer`) {
		elements[name] = true
	}
	attributes := map[string]bool{}
	for name := range strings.FieldsSeq(`lang charset name content rel class viewBox xmlns aria-hidden aria-label role focusable tabindex scope d x y rx width height style datetime data-l text-anchor`) {
		attributes[name] = true
	}
	for name, r := range map[string]*replay.Report{"hostile": attacked(), "full": compared(), "many": many(), "empty": logged(replay.Report{})} {
		root, text := parsed(t, r)
		ids := map[string]bool{}
		for n := range root.Descendants() {
			if n.Type == html.CommentNode {
				t.Errorf("%s: a comment: %q", name, n.Data)
			}
			if n.Type != html.ElementNode {
				continue
			}
			if !elements[n.Data] {
				t.Errorf("%s: there is a <%s>", name, n.Data)
			}
			for _, a := range n.Attr {
				switch {
				case a.Key == "href" && n.Data == "link" && a.Val == "data:,":
				case a.Key == "id":
					if ids[a.Val] {
						t.Errorf("%s: two have the id %q", name, a.Val)
					}
					ids[a.Val] = true
				case !attributes[a.Key]:
					t.Errorf("%s: <%s> has %s=%q", name, n.Data, a.Key, a.Val)
				case strings.Contains(a.Val, "//") && a.Val != "http://www.w3.org/2000/svg" && a.Key != "aria-label":
					t.Errorf("%s: <%s> has an address: %s=%q", name, n.Data, a.Key, a.Val)
				case n.Data == "svg" && (a.Key == "width" || a.Key == "height"):
					t.Errorf("%s: a drawing has a size of its own: %s=%q", name, a.Key, a.Val)
				case a.Key == "style" && strings.Contains(a.Val, "font-family"):
					t.Errorf("%s: <%s> has a font of its own: %q", name, n.Data, a.Val)
				case a.Key == "style" && strings.ContainsAny(a.Val, "@\\"), a.Key == "style" && strings.Contains(a.Val, "url"):
					t.Errorf("%s: <%s> has the style %q", name, n.Data, a.Val)
				}
			}
			if n.DataAtom == atom.Style && strings.Contains(n.FirstChild.Data, "url(") {
				t.Errorf("%s: the style asks for something", name)
			}
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !shows(r) }); i >= 0 {
			t.Errorf("%s: not printable: %q", name, text[max(0, i-20):i+10])
		}
		if strings.Contains(text, "ZgotmplZ") {
			t.Errorf("%s: the template has refused a value", name)
		}
	}
}

// The page shows hostile text as it is, and does not hide it.
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
		t.Error("the page has all of a long key")
	}
}

// The page has all that the report has.
func TestPageTellsAll(t *testing.T) {
	root, text := parsed(t, compared())
	for _, want := range []string{
		"This policy would have refused 678 of 12,345 requests (5.5 %), and 14 of 250 subjects at least once.",
		"12,345", "678", "14", "lines not readable, of 12,348", "2026-03-14 12:00:00", "5 h 29 min", "combined, nginx",
		"It would refuse 905 requests, in place of 678", "198.51.100.23", "203.0.113.66", "orders", "body:customer",
		"At most 8,000 requests within 1 h; most were refused from 2026-03-14 14:00:00 on, 550.",
		"10/second, 300/minute, sliding window counter", "only watches", "12 of 200", "44 s", "for 10%", "blocks", "exempts", "A subject is one value",
		"Down is the longest time", "12 bursts over 5 h, the largest of 90 within 29 s", "/files/big.iso", "1 day 2 h",
		"No request met idle.", "All that hourly refuses, per-key refuses, too", "2xx", "22.6 %", "body:username", "access.log.1.gz breaks off",
		"access.log:7", "GET / HTTP/1.1", "Times in the log are whole seconds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not tell %q", want)
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

// What there is nothing to say of has no section.
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
	want := []string{"Over time", "Refusals by rule", "Rules", "How hard it would hit them", "About the rules", "What the log says was answered",
		"Not judged, because the log does not tell", "Read only in part", "3 lines that could not be read", "Before you trust this"}
	if got := sections(r); !slices.Equal(got, want) {
		t.Errorf("of rules that only watch: %q", got)
	}
	rows := 0
	root, text := parsed(t, many())
	for n := range root.Descendants() {
		if n.DataAtom == atom.Tr {
			rows++
		}
	}
	if rows < 200 || !strings.Contains(text, "rule-199") {
		t.Errorf("of 200 rules there are %d rows", rows)
	}
}

func TestScale(t *testing.T) {
	for n, want := range map[int64][2]int64{
		0: {1, 1}, 1: {1, 1}, 2: {1, 2}, 5: {1, 5}, 6: {2, 3}, 10: {2, 5}, 11: {5, 3}, 25: {5, 5}, 26: {10, 3}, 78: {20, 4}, 942: {200, 5}, 1_000_001: {500_000, 3},
	} {
		each, parts := scale(n)
		if each != want[0] || parts != want[1] {
			t.Errorf("scale(%d) = %d times %d, want %v", n, parts, each, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 9999: "9,999", 10_000: "10 k", 200_000: "200 k", 1_500_000: "1.5 M", 20_000_000_000: "20 G"} {
		if got := short(n); got != want {
			t.Errorf("short(%d) = %q, want %q", n, got, want)
		}
	}
}

// Longer steps have the same sum, and each begins where it says.
func TestCoarser(t *testing.T) {
	for _, begin := range []time.Time{noon, noon.Add(-45 * time.Minute), time.Date(1970, 1, 1, 0, 15, 0, 0, time.UTC)} {
		s := replay.Series{Begin: begin, Step: 15 * time.Minute}
		byHour := map[time.Time]int64{}
		for i := range int64(300) {
			s.Requests, s.Refused = append(s.Requests, i), append(s.Refused, 1)
			byHour[begin.Add(time.Duration(i)*s.Step).Truncate(time.Hour)] += i
		}
		c := coarser(s, time.Hour)
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
			t.Errorf("of 500 steps of %v there are %d left", step, len(l.Requests))
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		begin time.Time
		step  time.Duration
		steps int
		want  string
	}{
		{noon, time.Second, 90, "12:00:00 12:00:10 12:00:20 12:00:30 12:00:40 12:00:50 12:01:00 12:01:10 12:01:20"},
		{noon, time.Minute, 60, "12:00 12:10 12:20 12:30 12:40 12:50"},
		{noon.Add(20 * time.Minute), 5 * time.Minute, 60, "12:30 13:00 13:30 14:00 14:30 15:00 15:30 16:00 16:30 17:00"},
		{noon.Add(-2 * time.Hour), time.Hour, 84, "12:00 15 Mar 12:00 16 Mar 12:00 17 Mar 12:00"},
		{noon.Add(-12 * time.Hour), 6 * time.Hour, 40, "14 Mar 15 Mar 16 Mar 17 Mar 18 Mar 19 Mar 20 Mar 21 Mar 22 Mar 23 Mar"},
		{noon.Add(-12 * time.Hour), day, 120, "Apr 2026 May 2026 Jun 2026 Jul 2026"},
		{time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), 28 * day, 120, "2001 2002 2003 2004 2005 2006 2007 2008 2009 2010"},
	} {
		labels := ticks(replay.Series{Begin: c.begin, Step: c.step, Requests: make([]int64, c.steps)}, 10)
		var got []string
		for i, label := range labels {
			if label == "" {
				continue
			}
			got = append(got, label)
			if at := c.begin.Add(time.Duration(i) * c.step); strings.Contains(label, ":") && !strings.HasPrefix(at.Format("15:04:05"), label) {
				t.Errorf("%q stands at %v", label, at)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d times %v from %v: %q, want %q", c.steps, c.step, c.begin, strings.Join(got, " "), c.want)
		}
		if len(got) > 10 || len(labels) != c.steps {
			t.Errorf("%d labels of %d steps", len(got), len(labels))
		}
	}
}
