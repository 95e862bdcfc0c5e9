package show

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/replay"
	"github.com/sluicehq/sluice/internal/replay/feed"
)

var update = flag.Bool("update", false, "write what is shown into testdata, to be read before it is kept")

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// logged is a report of a log.
func logged(r replay.Report) *replay.Report {
	r.Log.Files, r.Log.Lines = []feed.File{{Name: "access.log", Format: "combined"}}, r.Requests+r.Unreadable
	return &r
}

// full is a report with something of everything.
func full() *replay.Report {
	r := logged(replay.Report{
		Requests: 12_345, Refused: 678, Unreadable: 3, Subjects: 250, SubjectsRefused: 14, From: noon, To: noon.Add(5*time.Hour + 29*time.Minute),
		Order: []string{"per-key", "hourly", "search", "scanners", "office", "idle"},
		Rules: map[string]replay.Rule{
			"per-key": {Kind: "limit", Key: []string{"header:X-Api-Key"}, Limits: []string{"10/second", "300/minute"}, Algorithm: "sliding_window_counter", Matched: 12_000, Refused: 600, Alone: 550,
				Subjects: 200, SubjectsRefused: 12, Hardness: [6]int64{3, 4, 2, 1, 1, 1}, Longest: 44 * time.Second, Series: []int64{0, 100, 500, 0, 0, 0}},
			"hourly": {Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"1000/hour"}, Algorithm: "fixed_window", Matched: 12_000, Refused: 50,
				Subjects: 50, SubjectsRefused: 1, Hardness: [6]int64{0, 0, 0, 0, 1, 0}, Longest: 50 * time.Minute, Boundary: 0.4, Series: []int64{0, 0, 50, 0, 0, 0}},
			"search": {Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"5/minute"}, Algorithm: "token_bucket", Enforce: "10%", Shadow: true, Matched: 900, Refused: 77, Alone: 70, Delayed: 4,
				Subjects: 50, SubjectsRefused: 2, Hardness: [6]int64{1, 1}, Longest: 700 * time.Millisecond, Series: []int64{7, 0, 0, 0, 70, 0}},
			"scanners": {Kind: "block", Matched: 28, Refused: 28, Alone: 28, Series: []int64{28, 0, 0, 0, 0, 0}},
			"office":   {Kind: "exempt", Matched: 40},
			"idle":     {Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"1/day"}, Algorithm: "token_bucket"},
		},
		Series: replay.Series{Begin: noon, Step: time.Hour, Requests: []int64{1000, 2000, 8000, 1000, 300, 45}, Refused: []int64{28, 100, 550, 0, 0, 0}},
		Top: []replay.Subject{
			{Rule: "per-key", Key: "k-1…", Requests: 5000, Refused: 400, Down: 26 * time.Hour, Pattern: "12 bursts over 5 h, the largest of 90 within 29 s", Path: "/files/big.iso"},
			{Rule: "scanners", Key: "203.0.113.66", Requests: 28, Refused: 28, Down: 3 * time.Second, Pattern: "a burst of 28 within 3 s, then silence", Path: "/.env"},
			{Rule: "search", Key: "2001:db8::/64", Requests: 9, Refused: 1},
		},
		Statuses:  []replay.Status{{Class: "2xx", Requests: 12_000, Refused: 600}, {Class: "4xx", Requests: 345, Refused: 78}},
		NotJudged: []replay.NotJudged{{Rule: "login", Needs: "body:username", Why: "Access logs do not hold the bodies of requests."}},
		NeverHit:  []string{"idle"},
		Shadowed:  []replay.Shadowed{{Rule: "hourly", By: "per-key"}},
		Notes:     []string{"Times in the log are whole seconds, and within one the order is that of the file, which is all that there is to go by."},
	})
	r.Log.Files = append(r.Log.Files, feed.File{Name: "access.log.1.gz", Format: "nginx", Broken: "unexpected EOF"})
	r.Log.Unread = []feed.Unread{{File: "access.log", Line: 7, Text: "GET / HTTP/1.1", Why: "it does not follow the format"}}
	return r
}

// compared is [full] beside another policy.
func compared() *replay.Report {
	r := full()
	after := r.Rules["per-key"]
	after.Limits, after.Refused = []string{"5/second"}, 900
	fresh := replay.Rule{Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"9/minute"}, Algorithm: "token_bucket", Refused: 5}
	before, idle := r.Rules["per-key"], r.Rules["idle"]
	r.Against = &replay.Difference{
		Report: logged(replay.Report{Refused: 905, NotJudged: []replay.NotJudged{{Rule: "orders", Needs: "body:customer", Why: "Access logs do not hold the bodies of requests."}}}),
		Other:  "another policy", Both: 600, Only: 78, Newly: 305, ClientsNewly: 3, ClientsFreed: 1,
		Rules:    []replay.RuleChange{{Rule: "per-key", Before: &before, After: &after}, {Rule: "idle", Before: &idle}, {Rule: "fresh", After: &fresh}},
		Suffer:   []replay.ClientChange{{Client: "198.51.100.23", Requests: 500, Before: 1, After: 300}, {Client: "192.0.2.1", Requests: 9, After: 5}},
		Relieved: []replay.ClientChange{{Client: "203.0.113.66", Requests: 28, Before: 28}},
	}
	return r
}

// hostile are texts that somebody may send to do harm to whoever reads the report.
var hostile = []string{
	"\x1b[2J\x1b]0;owned\x07", "</title></style><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "\u202egnp.exe\u202c", "a\nRULES\n  per-key\r\t0",
	"\xff\xfe\x80binary", "ad\u200bmin\ufeff", strings.Repeat("A", 10_000), strings.Repeat("\u0301", 500), "{{.Requests}}", "javascript:alert(1)", "%s%d%!(NOVERB)", "url(//evil.example/x)",
}

// attacked is a report of which an attacker has chosen all texts.
func attacked() *replay.Report {
	r := logged(replay.Report{
		Requests: 1000, Refused: 13, Unreadable: int64(len(hostile)), Subjects: 13, SubjectsRefused: 13, From: noon, To: noon.Add(time.Minute), Rules: map[string]replay.Rule{},
		Series: replay.Series{Begin: noon, Step: time.Second, Requests: []int64{900, 100}, Refused: []int64{3, 10}},
	})
	r.Against = &replay.Difference{Other: hostile[0], Report: logged(replay.Report{}), Only: 13}
	for _, text := range hostile {
		r.Order = append(r.Order, text)
		rule := replay.Rule{Kind: "limit", Key: []string{text}, Limits: []string{text}, Algorithm: text, Matched: 13, Refused: 1, Subjects: 1, SubjectsRefused: 1, Hardness: [6]int64{1}, Series: []int64{0, 1}}
		r.Rules[text] = rule
		r.Top = append(r.Top, replay.Subject{Rule: text, Key: text, Path: text, Pattern: text, Requests: 2, Refused: 1})
		r.Statuses = append(r.Statuses, replay.Status{Class: text, Requests: 5, Refused: 1})
		r.NotJudged = append(r.NotJudged, replay.NotJudged{Rule: text, Needs: text, Why: text})
		r.NeverHit = append(r.NeverHit, text)
		r.Shadowed = append(r.Shadowed, replay.Shadowed{Rule: text, By: text})
		r.Notes = append(r.Notes, text)
		r.Log.Files = append(r.Log.Files, feed.File{Name: text, Format: text, Broken: text})
		r.Log.Unread = append(r.Log.Unread, feed.Unread{File: text, Line: 1, Text: text, Why: text})
		r.Against.Rules = append(r.Against.Rules, replay.RuleChange{Rule: text, Before: &rule})
		r.Against.Suffer = append(r.Against.Suffer, replay.ClientChange{Client: text, After: 2})
		r.Against.Relieved = append(r.Against.Relieved, replay.ClientChange{Client: text, Before: 2})
	}
	return r
}

// many is a report of 200 rules, of which every third refuses.
func many() *replay.Report {
	r := logged(replay.Report{
		Requests: 100_000, Refused: 2211, Subjects: 5000, SubjectsRefused: 67, From: noon, To: noon.Add(24 * time.Hour), Rules: map[string]replay.Rule{},
		Series: replay.Series{Begin: noon, Step: 5 * time.Minute, Requests: make([]int64, 289), Refused: make([]int64, 289)},
	})
	for i := range r.Series.Requests {
		r.Series.Requests[i], r.Series.Refused[i] = int64(300+i), int64(i%30)
	}
	for i := range 200 {
		name := fmt.Sprintf("rule-%03d", i)
		rule := replay.Rule{Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"100/hour"}, Algorithm: "token_bucket", Matched: 500, Subjects: 25, Series: make([]int64, 289)}
		if i%3 == 0 {
			rule.Refused, rule.Alone, rule.SubjectsRefused, rule.Hardness = int64(i)/3, int64(i)/3, 1, [6]int64{1}
		} else if i%3 == 1 {
			rule.Matched, r.NeverHit = 0, append(r.NeverHit, name)
		}
		r.Order, r.Rules[name] = append(r.Order, name), rule
	}
	return r
}

// watching is a report of rules of which none refuses.
func watching() *replay.Report {
	r := full()
	r.Refused, r.SubjectsRefused, r.Top, r.Series.Refused, r.Shadowed = 0, 0, nil, make([]int64, 6), nil
	for _, name := range []string{"per-key", "hourly", "scanners"} {
		rule := r.Rules[name]
		rule.Shadow = true
		r.Rules[name] = rule
	}
	return r
}

func TestText(t *testing.T) {
	empty := logged(replay.Report{Order: []string{"per-address"}, NeverHit: []string{"per-address"}, Notes: []string{"The logs have no requests."},
		Rules: map[string]replay.Rule{"per-address": {Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"30/minute"}, Algorithm: "token_bucket"}}})
	calm := logged(replay.Report{Requests: 9999, Subjects: 1753, From: noon, To: noon.Add(time.Hour), Order: []string{"per-address"},
		Rules:    map[string]replay.Rule{"per-address": {Kind: "limit", Key: []string{"client_ip"}, Limits: []string{"30/minute"}, Algorithm: "token_bucket", Matched: 9999, Subjects: 1753}},
		Series:   replay.Series{Begin: noon, Step: time.Minute, Requests: append(make([]int64, 30), 9999), Refused: make([]int64, 31)},
		Statuses: []replay.Status{{Class: "2xx", Requests: 9999}}})
	for name, c := range map[string]struct {
		report *replay.Report
		width  int
	}{
		"full": {full(), 120}, "narrow": {compared(), 60}, "against": {compared(), 100}, "empty": {empty, 80}, "calm": {calm, 80},
		"watching": {watching(), 100}, "many": {many(), 100}, "hostile": {attacked(), 100},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := Text(&b, c.report, c.width); err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(b.String(), "\n") {
				if strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 || !utf8.ValidString(line) {
					t.Errorf("line %d is not printable: %q", i+1, line)
				}
				if n := utf8.RuneCountInString(line); n > c.width {
					t.Errorf("line %d has %d columns: %s", i+1, n, line)
				}
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.String(); got != string(want) {
				at := slices.IndexFunc(strings.Split(got, "\n"), func(line string) bool { return !strings.Contains(string(want), line) })
				t.Errorf("not as in %s, at about line %d:\n%s", file, at+1, got)
			}
		})
	}
}

// Text fits any terminal, and does not fail on the smallest.
func TestWidths(t *testing.T) {
	for width := -1; width < 200; width++ {
		for _, r := range []*replay.Report{compared(), many()} {
			var b strings.Builder
			if err := Text(&b, r, width); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width >= 40 && n > width {
					t.Errorf("of %d columns: %d in %s", width, n, line)
				}
			}
		}
	}
}
