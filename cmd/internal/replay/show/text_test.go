package show

import (
	"bytes"
	"encoding/json"
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

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
)

var update = flag.Bool("update", false, "write the output to testdata; review it before committing")

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// logged returns r as the report of one log.
func logged(r replay.Report) *replay.Report {
	r.Log.Files, r.Log.Lines = []feed.File{{Name: "access.log", Format: "combined"}}, r.Requests+r.Unreadable
	return &r
}

// saved reads a file of testdata/reports into a report, or into the difference of two reports.
func saved(name string, v any) {
	data, err := os.ReadFile("testdata/reports/" + name + ".json")
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(v)
	}
	if err != nil {
		panic(err)
	}
}

// full returns a report that has every kind of content.
func full() *replay.Report {
	r := new(replay.Report)
	saved("full", r)
	return r
}

// compared returns the report of [full] compared with another policy.
func compared() *replay.Report {
	r := full()
	r.Against = new(replay.Difference)
	saved("difference", r.Against)
	return r
}

// hostile has texts with which an attacker may try to harm the reader of a report.
var hostile = []string{
	"\x1b[2J\x1b]0;owned\x07", "</title></style><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "\u202egnp.exe\u202c", "a\nRULES\n  per-key\r\t0",
	"\xff\xfe\x80binary", "ad\u200bmin\ufeff", strings.Repeat("A", 10_000), strings.Repeat("\u0301", 500), "{{.Requests}}", "javascript:alert(1)", "%s%d%!(NOVERB)", "url(//evil.example/x)",
}

// attacked returns a report in which every text is hostile.
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

// many returns a report of 200 rules, a third of which deny requests.
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

// watching returns a report of rules in shadow mode.
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

// calm returns a saved report without denials.
func calm(name string) *replay.Report {
	r := new(replay.Report)
	saved(name, r)
	return r
}

func TestText(t *testing.T) {
	for name, c := range map[string]struct {
		report *replay.Report
		width  int
	}{
		"full": {full(), 120}, "narrow": {compared(), 60}, "against": {compared(), 100}, "empty": {calm("empty"), 80}, "calm": {calm("calm"), 80},
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
				t.Errorf("the output differs from %s at about line %d:\n%s", file, at+1, got)
			}
		})
	}
}

// The text fits terminals of 40 columns and more, and does not fail on smaller ones.
func TestWidths(t *testing.T) {
	for width := -1; width < 200; width += 1 + width/40 {
		for _, r := range []*replay.Report{compared(), many()} {
			var b strings.Builder
			if err := Text(&b, r, width); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width >= 40 && n > width {
					t.Errorf("width %d: %d columns in %s", width, n, line)
				}
			}
		}
	}
}
