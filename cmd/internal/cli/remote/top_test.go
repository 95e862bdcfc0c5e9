package remote

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// Texts from clients are printed without control characters, and the output fits the terminal.
func TestTopTexts(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b[2J\x1b]0;b\x07\r\n\x00\u202e\u200b\x9b1m\xff"
	now := &snapshot{Stats: control.Stats{At: time.Now(), Headline: control.Headline{Level: evil, Text: strings.Repeat(evil, 20)}}}
	for i := range 30 {
		now.Stats.Rules = append(now.Stats.Rules, control.RuleStats{Rule: strconv.Itoa(i) + evil, Limits: []string{evil}})
		now.Stats.Instances = append(now.Stats.Instances, control.Instance{Name: evil, Stale: true, Store: control.Store{Kind: evil, Unavailable: 1}})
		now.Top.Items = append(now.Top.Items, control.TopSubject{Rule: evil, Shown: strings.Repeat("é", 300)})
	}
	s := &topSettings{rule: evil, by: "refusals", window: "hour"}
	var b bytes.Buffer
	s.printSnapshot(&b, now)
	for width := 1; width < 200; width += 13 {
		for _, height := range []int{1, 24, 80} {
			lines := strings.Split(fitted(b.String(), width, height), "\n")
			if len(lines) > height {
				t.Fatalf("%d lines, want at most %d", len(lines), height)
			}
			for _, line := range lines {
				if n := len([]rune(line)); n > width {
					t.Fatalf("%d characters in %d columns: %q", n, width, line)
				}
				for _, r := range line {
					if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u200b' {
						t.Fatalf("%q", line)
					}
				}
			}
		}
	}
}
