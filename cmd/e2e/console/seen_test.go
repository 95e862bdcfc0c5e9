package console

import (
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/internal/testkit"
)

const layered = `
version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 100000/minute}
  - {name: per-user, key: ["header:X-User"], missing: skip, limit: 5/hour}
  - {name: watched, key: ["header:X-User"], missing: skip, limit: 2/hour, shadow: true}
`

// hostile is a key that a page must show, and must not execute.
const hostile = `<img src=x onerror=alert(1)>`

// shownCounts has the numbers of decisions of a rule.
type shownCounts struct{ all, refused, would int }

// onPage returns the numbers that the page of all rules shows for each rule.
func (g *page) onPage() map[string]shownCounts {
	g.Helper()
	rows := js[map[string][]string](g, `Object.fromEntries([...document.querySelectorAll('#rules tr[data-rule]')].map(r =>
		[r.dataset.rule, [...r.cells].map(c => c.innerText)]))`)
	out := map[string]shownCounts{}
	for rule, cells := range rows {
		out[rule] = shownCounts{all: number(cells[3]), refused: number(cells[4]), would: number(after(cells[4], "\n"))}
	}
	return out
}

func after(s, sep string) string {
	_, rest, _ := strings.Cut(s, sep)
	return rest
}

// number returns the number at the start of a text, or 0.
func number(text string) int {
	text = strings.ReplaceAll(strings.TrimSpace(text), ",", "")
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	n, _ := strconv.Atoi(text[:end])
	return n
}

// The numbers on the pages equal the metrics, and the numbers of requests that were sent. The heaviest subject is the
// first. The chart moves while traffic continues.
func TestNumbers(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", layered))
	g := open(t, p, desktop)
	g.Visit("/")
	g.Run(chromedp.WaitVisible("#new"))
	if text := g.Text("#new"); !strings.Contains(text, "curl") {
		t.Errorf("before the first request, the page shows %q", text)
	}
	sent := map[string]int{"heavy": 40, hostile: 17, "light": 4}
	want := map[string]shownCounts{}
	for user, n := range sent {
		refused := 0
		for range n {
			if p.ask("/api/users", "X-User: "+user) == 429 {
				refused++
			}
		}
		if refused != max(0, n-5) {
			t.Fatalf("premise: %d of %d were denied", refused, n)
		}
		u := want["per-user"]
		want["per-user"] = shownCounts{u.all + n, u.refused + refused, 0}
		w := want["watched"]
		want["watched"] = shownCounts{w.all + n, 0, w.would + n - 2}
	}
	if got := p.Metric(`sluice_decisions_total{outcome="deny",rule="per-user"}`); int(got) != want["per-user"].refused {
		t.Errorf("/metrics has %v denials of per-user, want %d", got, want["per-user"].refused)
	}
	// The page updates without being loaded again.
	testkit.Await(t, "the heaviest subject is at the top", func() bool {
		return strings.HasPrefix(g.Text("#who-table tbody tr th"), "heavy")
	})
	testkit.Await(t, "the headline names the rule that denies", func() bool { return strings.Contains(g.Text("#headline"), "per-user") })
	drawn := func() (last string) {
		return js[string](g, "document.getElementById('chart').dataset.last ?? ''")
	}
	testkit.Await(t, "the chart is drawn", func() bool { return drawn() != "" })
	before, pixels := drawn(), js[string](g, "document.querySelector('#chart canvas').toDataURL()")
	testkit.Await(t, "the chart moves", func() bool {
		p.ask("/api/users")
		return drawn() != before && js[string](g, "document.querySelector('#chart canvas').toDataURL()") != pixels
	})
	g.Visit("/rules")
	after := g.onPage()
	for _, rule := range []string{"per-user", "watched"} {
		if after[rule] != want[rule] {
			t.Errorf("the page shows for %s %+v, want %+v", rule, after[rule], want[rule])
		}
	}
	g.Visit("/shadow")
	if text := g.Text("#shadow-watched tr[data-window=hour]"); number(after2(text)) != want["watched"].would {
		t.Errorf("the shadow rule would have denied %d, and the page shows %q", want["watched"].would, text)
	}
}

// after2 returns the cells of a row after the first one.
func after2(row string) string { return strings.TrimSpace(after(row, "\t")) }

// Text from a request is shown as text on every page, and no script in it runs, which only a browser can show.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", layered))
	for _, k := range []string{hostile, `"><script>alert(1)</script>`, "{{.}}${7*7}", "\u202egnp.exe", strings.Repeat("long", 400), "%3Cb%3E", "javascript:alert(1)"} {
		for range 9 {
			p.ask("/api/users", "X-User: "+k)
		}
	}
	g := open(t, p, desktop)
	g.Visit("/")
	testkit.Await(t, "the page shows the hostile key", func() bool { return strings.Contains(g.Text("#who-table"), hostile) })
	links := js[[]string](g, "[...document.querySelectorAll('#who-table tbody a')].map(a => a.getAttribute('href'))")
	if len(links) < 5 {
		t.Fatalf("premise: %d subjects", len(links))
	}
	const encoded = "%3Cimg+src%3Dx+onerror%3Dalert(1)%3E"
	g.Quiet = true // some pages are about rules that do not exist
	for _, path := range append(links, "/subjects", "/subjects?q="+encoded, "/rules/per-user", "/?rule="+encoded, "/act/raise?rule=per-user&key.header%3AX-User="+encoded) {
		g.Visit(path)
		if n := js[int](g, `document.querySelectorAll('main img, main script, main [onerror], a[href^="javascript:"]').length`); n > 0 {
			t.Errorf("%s has %d elements that no template has", path, n)
		}
	}
}
