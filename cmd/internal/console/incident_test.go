package console

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"

	"github.com/sluicehq/sluice/cmd/internal/incident"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// incidentPage returns the first page that an operator sees at the present time of the hour.
func incidentPage(t *testing.T, h *incident.Hour, at time.Duration, query string) string {
	stack := &source.Stack{Swap: func(*policy.Policy) {}} // h.Engine already has the policy
	s := newServer(configOf(t, h.Engine, stack, incident.Document(at), h.Fleet))
	blocked := source.Entry{At: h.Time(incident.ScraperBlocked), Actor: "maria", Action: "create", Kind: "override", After: `{"rule":"per-address"}`}
	_, _ = s.known.audits.get(true, time.Second, func() ([]source.Entry, error) { return []source.Entry{blocked}, nil })
	b := &browser{t: t, handler: s.handler(), token: source.Operator.String()}
	w := b.get("/" + query)
	if w.Code != http.StatusOK {
		t.Fatalf("the page at %v: %d", at, w.Code)
	}
	return w.Body.String()
}

// rowsOf returns the texts of the rows of a table, or of the entries of a list, by ID or class.
func rowsOf(t *testing.T, page, id string) (rows []string) {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		if !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "id" && a.Val == id || a.Key == "class" && a.Val == id }) {
			continue
		}
		for d := range n.Descendants() {
			if d.Data == "tr" || d.Data == "li" || d.Data == "p" {
				rows = append(rows, wordsIn(d))
			}
		}
	}
	return rows
}

func containing(rows []string, text string) string {
	if i := slices.IndexFunc(rows, func(r string) bool { return strings.Contains(r, text) }); i >= 0 {
		return rows[i]
	}
	return ""
}

// During an hour with an attack, the first page agrees with the books of the traffic.
func TestFirstPageOfIncident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := incident.Start(t)

		// Four accounts send a hundred times the limit. A few people who mistype their passwords do not change the
		// verdict.
		at := incident.LoginEnds
		h.PlayTo(at)
		page := incidentPage(t, h, at, "?rule=login")
		if got := containing(rowsOf(t, page, "verdict"), "login"); got != "login Few subjects, far above the limit." {
			t.Errorf("the verdict of login is %q", got)
		}
		subjects := rowsOf(t, page, "who-table")
		for _, name := range incident.Attacked {
			row := containing(subjects, name+" login")
			if times := number1(row, `([0-9.,]+)×`); times < 90 || times > 110 {
				t.Errorf("%s sends %v times the limit: %q of %q", name, times, row, subjects)
			}
		}
		for _, name := range incident.Mistyped { // eight attempts in a minute that allows six
			if row := containing(subjects, name+" login"); !strings.Contains(row, "login 2 ") || number1(row, `([0-9.,]+)×`) != 1.3 {
				t.Errorf("%s mistyped a password, and the row is %q", name, row)
			}
		}
		if row := containing(rowsOf(t, page, "harmed-table"), "pro"); !strings.Contains(row, "pro 3 of") {
			t.Errorf("the row of the harmed customers is %q", row)
		}

		// Requests are compared with the limit at their time, not with a limit that was raised later.
		at = incident.Raised + 2*time.Minute
		h.PlayTo(at)
		changes := rowsOf(t, incidentPage(t, h, at, ""), "changes-list")
		if row := containing(changes, "reload"); !strings.Contains(row, "login: limit 8/minute, was 6/minute") || !strings.Contains(row, "per-address: limit 480/minute, was 300/minute") {
			t.Errorf("the changes are %q", changes)
		}
		for _, name := range incident.Attacked {
			row := containing(rowsOf(t, incidentPage(t, h, at, "?rule=login"), "who-table"), name+" login")
			if times := number1(row, `([0-9.,]+)×`); times < 90 || times > 110 {
				t.Errorf("after the limit was raised, %s sends %v times the limit: %q", name, times, row)
			}
		}

		// The slow upstream comes first, and its row contains the requests that rules deny because of it.
		at = incident.SlowBegins + 3*time.Minute
		h.PlayTo(at)
		page = incidentPage(t, h, at, "")
		upstreams := rowsOf(t, page, "upstreams-table")
		if n := number1(upstreams[1], ` 10 s usually 100 ms 10 s 0 % (\d+)$`); len(upstreams) != 3 || !strings.HasPrefix(upstreams[1], incident.Reports+" slow ") || n < 10 || n > 20 {
			t.Errorf("the slow upstream is %q", upstreams)
		}
		if !strings.HasPrefix(upstreams[2], incident.App) || !strings.Contains(upstreams[2], "/s 20 ms usually 20 ms 20 ms 0 % 0") {
			t.Errorf("the other upstream is %q", upstreams)
		}
		if !strings.Contains(page, "upstream "+incident.Reports+" is slow") {
			t.Error("the headline does not name the slow upstream")
		}

		at = time.Hour
		h.PlayTo(at)
		page = incidentPage(t, h, at, "")
		if upstreams = rowsOf(t, page, "upstreams-table"); strings.Contains(upstreams[1]+upstreams[2], " slow ") {
			t.Errorf("after the end: %q", upstreams)
		}
		harmed := rowsOf(t, page, "harmed-table")
		truth := h.Books.Customers("pro", 0, at)
		hurt := 0
		for _, one := range truth {
			if one.Refused > 0 {
				hurt++
			}
		}
		row := containing(harmed, "pro")
		lost := number1(row, `([0-9.,]+) % of its requests`) / 100
		if !strings.HasPrefix(row, fmt.Sprintf("pro %d of ", hurt)) || !slices.ContainsFunc(incident.HurtKeys(), func(key string) bool { return math.Abs(truth[key].Share()-lost) < 0.02 }) {
			t.Errorf("%q, and %d customers were denied requests", row, hurt)
		}
		if i, j := slices.Index(harmed, containing(harmed, "enterprise ")), slices.Index(harmed, containing(harmed, "free ")); i != 1 && i != -1 || j < 1 {
			t.Errorf("customers with higher limits do not come first: %q", harmed)
		}
		if row := containing(harmed, incident.Scraper); row != "" {
			t.Errorf("the blocked scraper is listed as harmed: %q", row)
		}
		changes = rowsOf(t, page, "changes-list")
		if containing(changes, "created the override of per-address") == "" || containing(changes, "export is new") == "" || containing(changes, "it changed") == "" {
			t.Errorf("the operators' changes are missing: %q", changes)
		}

		// The page shows how many of the denials are caused by blocks.
		tally := h.Books.Rule("per-address", at-70*time.Second, at)
		if note := containing(rowsOf(t, page, "tile-refused"), "by blocks"); math.Abs(number1(note, `; ([0-9.,]+)/s by blocks`)-float64(tally.Blocked)/70) > 1 {
			t.Errorf("of %d denials, blocks caused %d: %q", tally.Refused, tally.Blocked, note)
		}

		// While the whole policy is in shadow mode, the page reports no denials.
		if !strings.Contains(page, " denies ") || !strings.Contains(page, "▲ more") || !strings.Contains(page, ">enforced<") {
			t.Error("before shadow mode, the page reports no denials")
		}
		h.Engine.ShadowAll()
		page = incidentPage(t, h, at, "")
		for _, text := range []string{" denies ", "▲ more", ">enforced<", `id="todo"`} {
			if strings.Contains(page, text) {
				t.Errorf("in shadow mode, the page contains %q", text)
			}
		}
	})
}

// number1 returns the number in the first group of a pattern, or 0 if the pattern does not match.
func number1(text, pattern string) float64 {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
	return f
}
