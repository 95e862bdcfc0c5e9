package show

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/replay"
)

func TestCount(t *testing.T) {
	for _, c := range []struct {
		n           int64
		thing, want string
	}{{0, "line", "0 lines"}, {1, "line", "1 line"}, {2000, "line", "2,000 lines"}, {2, "address", "2 addresses"}, {1, "address", "1 address"}} {
		if got := counted(c.n, c.thing); got != c.want {
			t.Errorf("counted(%d, %q) = %q, want %q", c.n, c.thing, got, c.want)
		}
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		n, all int64
		want   string
	}{
		{0, 0, "–"}, {0, 5, "0 %"}, {5, 5, "100 %"}, {1, 2, "50.0 %"}, {1, 3, "33.3 %"}, {2, 3, "66.7 %"},
		{1, 11, "9.1 %"}, {1, 1000, "0.1 %"}, {3, 7000, "0.043 %"}, {1, 10_000, "0.01 %"}, {1, 10_001, "< 0.01 %"}, {1, math.MaxInt64, "< 0.01 %"},
		{999, 1000, "99.9 %"}, {9991, 10_000, "> 99.9 %"}, {math.MaxInt64 - 1, math.MaxInt64, "> 99.9 %"},
	} {
		if got := share(c.n, c.all); got != c.want {
			t.Errorf("share(%d, %d) = %q, want %q", c.n, c.all, got, c.want)
		}
	}
	// Nothing is told as nothing or as all that is not.
	for all := int64(2); all < 5000; all += 37 {
		for n := int64(1); n < all; n++ {
			switch got := share(n, all); got {
			case "0 %", "0.0 %", "100 %", "100.0 %", "1e+02 %":
				t.Fatalf("share(%d, %d) = %q", n, all, got)
			}
		}
	}
}

func TestSpan(t *testing.T) {
	const h = time.Hour
	for d, want := range map[time.Duration]string{
		-h: "no time", 0: "no time", 1: "less than a second", time.Second - 1: "less than a second",
		time.Second: "1 s", 1400 * time.Millisecond: "1 s", 59*time.Second + 400*time.Millisecond: "59 s", 59*time.Second + 600*time.Millisecond: "1 min",
		90 * time.Second: "1 min 30 s", 9*time.Minute + 59*time.Second: "9 min 59 s", 9*time.Minute + 59600*time.Millisecond: "10 min",
		44*time.Minute + 40*time.Second: "45 min", 59*time.Minute + 29*time.Second: "59 min", 59*time.Minute + 31*time.Second: "1 h",
		h + 20*time.Minute: "1 h 20 min", h + time.Second: "1 h", 8*h + 59*time.Minute + 40*time.Second: "9 h", 14*h + 29*time.Minute: "14 h", 23*h + 31*time.Minute: "1 day",
		24 * h: "1 day", 25 * h: "1 day 1 h", 48 * h: "2 days", 83*h + 59*time.Second: "3 days 11 h", 240 * h: "10 days", 251 * h: "10 days", 253 * h: "11 days",
		364 * 24 * h: "364 days",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
	// Rounding is never off by more than a twentieth.
	for d := time.Second; d < 100*24*h; d += d/97 + 1 {
		var back time.Duration
		words := strings.Fields(strings.ReplaceAll(span(d), "days", "day"))
		for i := 0; i+1 < len(words); i += 2 {
			n := time.Duration(0)
			for _, digit := range words[i] {
				n = 10*n + time.Duration(digit-'0')
			}
			back += n * map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": h, "day": 24 * h}[words[i+1]]
		}
		if off := (back - d).Abs(); off > max(d/19, time.Second/2) {
			t.Errorf("span(%v) = %q, which is off by %v", d, span(d), off)
		}
	}
}

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"198.51.100.7":                 "198.51.100.7",
		"Zoë 東京 नमस्ते":                "Zoë 東京 नमस्ते",
		"a\nb\tc\r":                    `a\nb\tc\r`,
		"\x1b[2J\x00\x7f":              `\x1b[2J\x00\x7f`,
		"\u009b31m\u0085":              `\u{9b}31m\u{85}`,
		"\xff\xc0\xafok":               `\xff\xc0\xafok`,
		"\ufffd":                       "\ufffd", // a real one
		"\u202eresu\u202c":             `\u{202e}resu\u{202c}`,
		"\u2066\u2069\u200e\u200f":     `\u{2066}\u{2069}\u{200e}\u{200f}`,
		"ad\u200bmin\u200d\ufeff":      `ad\u{200b}min\u{200d}\u{feff}`,
		"\u00ad\u2060\u061c\U000e0041": `\u{ad}\u{2060}\u{61c}\u{e0041}`,
		"\u3164\u115f\u2800\ufe0f":     `\u{3164}\u{115f}\u{2800}\u{fe0f}`, // letters, a symbol and a mark without a shape
		"\u2028\u2029\u00a0":           `\u{2028}\u{2029}\u{a0}`,
		"<script>&\"'":                 "<script>&\"'", // which is for html/template
		"e\u0301":                      "e\u0301",
		"e\u0301\u0301\u0301\u0301":    `e` + "\u0301\u0301" + `\u{301}\u{301}`,
		"\u0301e":                      `\u{301}e`, // there is nothing to put it on
	} {
		if got := safe(in, 100); got != want {
			t.Errorf("safe(%q) = %q, want %q", in, got, want)
		}
	}
	if got := safe(strings.Repeat("é", 10_000), 45); got != strings.Repeat("é", 45)+"…" {
		t.Errorf("a long key is %q", got)
	}
	if got := safe(strings.Repeat("é", 45), 45); got != strings.Repeat("é", 45) {
		t.Errorf("a key that fits is %q", got)
	}
	// Whatever Unicode calls a format character, a control or a separator is not passed on.
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r != ' ' && unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp, unicode.Zs) {
			if got := safe("x"+string(r)+"y", 10); strings.ContainsRune(got, r) || len(got) < 4 {
				t.Errorf("%U is passed on: %q", r, got)
			}
		}
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("a\x1b]0;title\x07", 20)
	f.Add("\xf0\x28\x8c\x28\u202e", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = max(0, min(most, 1<<20))
		got := safe(s, most)
		if strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("safe(%q) = %q", s, got)
		}
		if n := utf8.RuneCountInString(got); n > most+1 {
			t.Errorf("safe(%q, %d) has %d characters", s, most, n)
		}
		if most > 10*len(s) && strings.HasSuffix(got, "…") && !strings.HasSuffix(s, "…") {
			t.Errorf("safe(%q, %d) = %q, though there is room", s, most, got)
		}
	})
}

func TestHeadline(t *testing.T) {
	address := replay.Rule{Kind: "limit", Key: []string{"client_ip"}}
	for want, r := range map[string]*replay.Report{
		"There is no request to judge.":                                                               logged(replay.Report{}),
		"No line of this log could be read as a request.":                                             logged(replay.Report{Unreadable: 3}),
		"None of 3 requests would have been refused.":                                                 logged(replay.Report{Requests: 3}),
		"None of 3 requests would have been refused. The rules that only watch were exceeded 1 time.": logged(replay.Report{Requests: 3, Rules: map[string]replay.Rule{"a": {Shadow: true, Refused: 1}}}),
		"This policy would have refused 1 of 1 request (100 %), and 1 of 1 client at least once.": logged(replay.Report{
			Requests: 1, Refused: 1, Subjects: 1, SubjectsRefused: 1, Rules: map[string]replay.Rule{"a": address}}),
		"This policy would have refused 458 of 9,999 requests (4.6 %), and about 31 of 1,753 subjects at least once.": logged(replay.Report{
			Requests: 9999, Refused: 458, Subjects: 1753, SubjectsRefused: 31, Estimated: true,
			Rules: map[string]replay.Rule{"a": address, "b": {Kind: "limit", Key: []string{"header:X-Api-Key"}}}}),
		"This policy would have refused 2 of 9 requests (22.2 %).": logged(replay.Report{Requests: 9, Refused: 2}),
	} {
		if got := headline(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
