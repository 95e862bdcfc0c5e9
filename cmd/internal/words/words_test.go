package words

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCounted(t *testing.T) {
	for _, c := range []struct {
		n           int
		thing, want string
	}{
		{0, "line", "0 lines"},
		{1, "line", "1 line"},
		{2000, "line", "2,000 lines"},
		{2, "address", "2 addresses"},
		{1, "address", "1 address"},
	} {
		if got := Counted(c.n, c.thing); got != c.want {
			t.Errorf("%d: %q, want %q", c.n, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for text, want := range map[string]string{
		"-1h":         "no time",
		"0s":          "no time",
		"1ns":         "less than a second",
		"999999999ns": "less than a second",
		"1s":          "1 s",
		"1400ms":      "1 s",
		"59.4s":       "59 s",
		"59.6s":       "1 min",
		"90s":         "1 min 30 s",
		"9m59s":       "9 min 59 s",
		"9m59.6s":     "10 min",
		"44m40s":      "45 min",
		"59m29s":      "59 min",
		"59m31s":      "1 h",
		"1h20m":       "1 h 20 min",
		"1h0m1s":      "1 h",
		"8h59m40s":    "9 h",
		"14h29m":      "14 h",
		"23h31m":      "1 day",
		"24h":         "1 day",
		"25h":         "1 day 1 h",
		"48h":         "2 days",
		"83h0m59s":    "3 days 11 h",
		"240h":        "10 days",
		"251h":        "10 days",
		"253h":        "11 days",
		"8736h":       "364 days",
	} {
		d, err := time.ParseDuration(text)
		if got := Span(d); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// Rounding changes no duration by more than a nineteenth or half a second.
func TestSpanRounds(t *testing.T) {
	const day = 24 * time.Hour
	units := map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "day": day, "days": day}
	for d := time.Second; d < 100*day; d += d/97 + 1 {
		var back time.Duration
		words := strings.Fields(Span(d))
		for i := 0; i+1 < len(words); i += 2 {
			n, err := strconv.Atoi(words[i])
			if err != nil {
				t.Fatal(err)
			}
			back += time.Duration(n) * units[words[i+1]]
		}
		if off := (back - d).Abs(); off > max(d/19, time.Second/2) {
			t.Errorf("%v is %q, which is off by %v", d, Span(d), off)
		}
	}
}

// Lines fit the width, a number stays with its unit, and long words are split.
func TestWrap(t *testing.T) {
	for width, want := range map[int]string{
		11: "one two|three 4 min|five", 100: "one two three 4 min five", 0: "one two|three|4 min five",
	} {
		if got := strings.Join(Wrap("one two  three\n4 min five", width), "|"); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	if got := strings.Join(Wrap("a 0123456789abc", 10), "|"); got != "a|0123456789|abc" {
		t.Errorf("%q", got)
	}
}
