package console

import (
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/internal/testkit"
)

const replayed = `version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 30/minute, algorithm: fixed_window}
  - {name: hourly, key: [client_ip], limit: 200/hour}
  - {name: downloads, match: "GET /files/", key: [client_ip], limit: 10/minute, shadow: true}
  - {name: login, match: "POST /login", key: [client_ip, body:username], limit: 5/minute}
  - {name: admin, match: /admin/, key: [client_ip], limit: 5/minute}
`

const replayedAgainst = `version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 20/minute}
  - {name: bots, match: /robots.txt, key: [client_ip], limit: 1/hour}
`

// accessLog returns two days of a server's log: many clients with occasional requests, one client that sends bursts,
// one that sends a request every second for a quarter of an hour, and one that sends hostile requests.
func accessLog() string {
	var lines []string
	line := func(at time.Time, client, method, target string, status int) {
		lines = append(lines, fmt.Sprintf("%s %s - - [%s] \"%s %s HTTP/1.1\" %d 512 \"-\" \"<script>alert(1)</script>\"",
			at.Format(time.RFC3339), client, at.Format("02/Jan/2006:15:04:05 -0700"), method, target, status))
	}
	begin := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)
	for i := range 4000 {
		at := float64(i) * 43 // seconds, with three or four times as many requests by day as at night
		at += 10_000 * math.Sin(at*2*math.Pi/86400)
		line(begin.Add(time.Duration(at)*time.Second), fmt.Sprintf("192.0.2.%d", i*7%250), "GET", fmt.Sprintf("/files/%d", i%40), 200+100*(i%3))
	}
	for burst := range 12 {
		for i := range 90 {
			line(begin.Add(time.Duration(burst)*4*time.Hour+time.Duration(i/3)*time.Second), "198.51.100.23", "GET", "/files/big.iso", 200)
		}
	}
	for i := range 900 {
		line(begin.Add(30*time.Hour+time.Duration(i)*time.Second), "2001:db8::c0ff:ee", "GET", "/robots.txt", 404)
	}
	for range 80 {
		line(begin.Add(20*time.Hour), "203.0.113.66", "GET", "/<script>alert(document.domain)</script>/"+strings.Repeat("a", 3000), 400)
	}
	slices.Sort(lines) // by the time at the start of each
	for i := range lines {
		_, lines[i], _ = strings.Cut(lines[i], " ")
	}
	return strings.Join(slices.Insert(lines, 100, "this is <b>no</b> line\x1b[31m"), "\n") + "\n"
}

// report replays the log with the policy, and returns the file of the report.
func report(t *testing.T, more ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	args := append([]string{"replay", "--policy", testkit.File(t, "policy.yaml", replayed), "--output", "html", file}, more...)
	replay := exec.Command(testkit.Binary(t), append(args, testkit.File(t, "access.log", accessLog()))...)
	replay.Env = testkit.Environ()
	if out, err := replay.CombinedOutput(); err != nil {
		t.Fatalf("sluice replay: %v\n%s", err, out)
	}
	return file
}

// The report of a replay needs no other files. Its charts are legible on a desktop, a tablet, a phone and paper. It
// fits on the screens, and is accessible on a light desktop and a dark phone. With SLUICE_SHOTS, the test takes
// screenshots.
func TestReport(t *testing.T) {
	t.Parallel()
	file := report(t, "--against", testkit.File(t, "against.yaml", replayedAgainst))
	for name, l := range map[string]look{
		"desktop-light": {Width: 1280, Height: 900}, "tablet-light": {Width: 768, Height: 1024}, "phone-dark": {Width: 375, Height: 812, Dark: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, nil, l)
			g.visitFile(file)
			g.Shot("report-" + name)
			if wide := js[int](g, "document.documentElement.scrollWidth"); wide > int(l.Width) {
				t.Errorf("the page is %d pixels wide on a screen of %d", wide, l.Width)
			}
			g.drawn(2)
			if (l.Width == 1280) != l.Dark {
				g.Accessible("report " + name)
			}
			// Larger numbers and longer names than the log contains.
			g.Run(chromedp.Evaluate(`for (const b of document.querySelectorAll('.figures b')) b.textContent = 'about 12,345,678,901';
				for (const el of document.querySelectorAll('h1, h2, li, td.n, tbody th code')) el.append(' ' + 'a-very-long-name-of-a-rule_'.repeat(4))`, nil))
			if wide := js[int](g, "document.documentElement.scrollWidth"); wide > int(l.Width) {
				t.Errorf("with long numbers and names the page is %d pixels wide on a screen of %d", wide, l.Width)
			}
		})
	}
	t.Run("print", func(t *testing.T) {
		g := open(t, nil, look{Width: 718, Height: 1000, Dark: true})
		g.visitFile(file)
		g.Run(emulation.SetEmulatedMedia().WithMedia("print"))
		g.drawn(2)
		g.Shot("report-print")
	})
}

// visitFile opens a file without a network, and fails the test if the page requests anything.
func (g *page) visitFile(file string) {
	g.Helper()
	chromedp.ListenTarget(g.Ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(e.Request.URL, "file://") && !strings.HasPrefix(e.Request.URL, "data:") {
			g.Errorf("the page requests %s", e.Request.URL)
		}
	})
	g.Run(network.Enable(), network.EmulateNetworkConditions(true, 0, -1, -1), chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()))
}

// drawn fails the test unless a number of charts are visible, with lines, and with labels that can be read.
func (g *page) drawn(charts int) {
	g.Helper()
	var seen []struct {
		Width, Height float64
		Lines         int
		Out, Small    []string
		Overlap       []string
	}
	g.Run(chromedp.Evaluate(`[...document.querySelectorAll('figure svg')].filter(s => s.checkVisibility()).map(s => {
		const box = s.getBoundingClientRect(), texts = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
		const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
		return {
			width: box.width, height: box.height, lines: s.querySelectorAll('path').length,
			out: texts.filter(([, b]) => b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1).map(t => t[0]),
			small: texts.filter(([, b]) => b.height < 9).map(t => t[0]),
			overlap: texts.filter(([, a], i) => texts.some(([, b], j) => i < j && meet(a, b))).map(t => t[0]),
		};
	})`, &seen))
	if len(seen) != charts {
		g.Errorf("%d charts can be seen, want %d", len(seen), charts)
	}
	for _, s := range seen {
		if s.Width < 250 || s.Height < 100 || s.Lines < 4 || len(s.Out)+len(s.Small)+len(s.Overlap) > 0 {
			g.Errorf("a chart of %v by %v pixels with %d lines; labels that are cut off: %q, too small to read: %q, overlapping: %q",
				s.Width, s.Height, s.Lines, s.Out, s.Small, s.Overlap)
		}
	}
}
