package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/adminapi"
)

// Nothing that others have sent reaches the terminal as more than a text, whatever the API says.
func TestTopTexts(t *testing.T) {
	const evil = "a\x1b[2J\x1b]0;b\x07\r\n\x00\u202e\u200b\x9b1m\xff"
	stats := &adminapi.Stats{At: time.Now(), Headline: adminapi.Headline{Level: evil, Text: evil}}
	stats.Rules = []adminapi.RuleStats{{Rule: evil, Limits: []string{evil}}}
	stats.Instances = []adminapi.Instance{{Name: evil, Stale: true, Store: adminapi.Store{Kind: evil, Away: 1}}}
	s := topScreen{
		now:    seenNow{Stats: stats, Top: &adminapi.Top{Items: []adminapi.TopSubject{{Rule: evil, Shown: evil}}}, asked: topChoice{rule: evil}},
		choice: topChoice{rule: evil}, source: evil, width: 200, height: 50, coloured: true,
	}
	for _, coloured := range []bool{true, false} {
		s.coloured = coloured
		for _, line := range s.lines() {
			text := line
			for _, style := range []string{"0", bold, dim, red, yellow, green, upside} {
				text = strings.ReplaceAll(text, "\x1b["+style+"m", "")
			}
			for _, r := range text {
				if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u200b' {
					t.Fatalf("%q", line)
				}
			}
		}
	}
}

// However large a terminal is, lines fit into it.
func TestTopFits(t *testing.T) {
	stats := &adminapi.Stats{At: time.Now(), Headline: adminapi.Headline{Text: strings.Repeat("some words ", 20)}}
	top := &adminapi.Top{}
	for i := range 30 {
		stats.Rules = append(stats.Rules, adminapi.RuleStats{Rule: "rule-" + strconv.Itoa(i)})
		top.Items = append(top.Items, adminapi.TopSubject{Rule: "rule", Shown: strings.Repeat("é", 300)})
	}
	for width := 1; width < 200; width += 13 {
		for height := 1; height < 100; height += 7 {
			s := topScreen{now: seenNow{Stats: stats, Top: top}, width: width, height: height}
			lines := s.lines()
			if len(lines) != height {
				t.Fatalf("%d lines, want %d", len(lines), height)
			}
			for _, line := range lines {
				for _, style := range []string{"0", bold, dim} {
					line = strings.ReplaceAll(line, "\x1b["+style+"m", "")
				}
				if n := len([]rune(line)); n > width {
					t.Fatalf("%d characters in %d columns: %q", n, width, line)
				}
			}
		}
	}
}
