//go:build long

package console

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/internal/testkit"
)

// TestLongPictures takes the screenshots of the README from real pages: the dashboard after half an hour of visitors
// under examples/api.yaml, and the report of a replay of two days. $SLUICE_PICTURES is the directory for them; without
// it, the visitors leave after a second.
func TestLongPictures(t *testing.T) {
	last := 30 * time.Minute
	if shots = os.Getenv("SLUICE_PICTURES"); shots == "" {
		shots, last = t.TempDir(), time.Second
	}
	p := serve(t, "--policy", "../../../examples/api.yaml")
	visitors(p, last)
	g := open(t, p, look{Width: 1280, Height: 860})
	g.Visit("/")
	g.Run(chromedp.WaitVisible("#chart canvas"))
	if last > time.Minute {
		testkit.Await(t, "the page shows the denied address", func() bool { return strings.Contains(g.Text("#who-table"), "198.51.100.23") })
	}
	g.view("dashboard")
	g = open(t, nil, look{Width: 1280, Height: 860})
	g.visitFile(report(t))
	g.drawn(2)
	g.view("replay")
}

// view takes a screenshot of the visible part of the page.
func (g *page) view(name string) {
	g.Helper()
	var png []byte
	g.Run(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644); err != nil {
		g.Fatal(err)
	}
}

// visitors sends requests from offices, from customers with keys, from a client with a script that runs wild for a
// while and again at the end, and from a client that guesses passwords.
func visitors(p *program, last time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; time.Since(begin) < last; <-tick.C {
		from := "X-Forwarded-For: 203.0.113." + strconv.Itoa(int(random.ExpFloat64()*12)%200)
		switch random.IntN(4) {
		case 0:
			p.ask("/api/users", from)
		case 1:
			p.ask("/api/search?q=news", from)
		default:
			p.ask("/api/users/"+strconv.Itoa(1+random.IntN(3)), from, "X-API-Key: "+[]string{"k-pro", "k-trial", "acme-4f1c9d22", "initech-71e0b8", "globex-93ad5e"}[random.IntN(5)])
		}
		if part := float64(time.Since(begin)) / float64(last); part > 0.3 && part < 0.4 || part > 0.9 {
			for range 1 + random.IntN(2) {
				p.ask("/api/users", "X-Forwarded-For: 198.51.100.23")
			}
		}
		if random.IntN(40) == 0 {
			p.send("POST", "/auth/login", "username=admin&password=guess", "X-Forwarded-For: 198.51.100.77")
		}
	}
}
