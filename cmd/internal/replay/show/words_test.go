package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/internal/testkit"
)

// worded has the functions that testdata/words.txt tests.
var worded = map[string]func(args []string) string{
	"share": func(args []string) string { return share(number(args[0]), number(args[1])) },
	"short": func(args []string) string { return short(number(args[0])) },
	"scale": func(args []string) string {
		each, parts := scale(number(args[0]))
		return fmt.Sprint(parts, " of ", each)
	},
	"safe": func(args []string) string {
		text, err := strconv.Unquote(strings.Join(args, " "))
		if err != nil {
			panic(err)
		}
		return safe(text, 100)
	},
	"ticks": func(args []string) string {
		begin, err := time.Parse(time.RFC3339, args[0])
		step, wrong := time.ParseDuration(args[1])
		if err != nil || wrong != nil {
			panic(args)
		}
		var got []string
		for i, label := range ticks(replay.Series{Begin: begin, Step: step, Requests: make([]int64, number(args[2]))}, 10) {
			at := begin.Add(time.Duration(i) * step)
			if strings.Contains(label, ":") && !strings.HasPrefix(at.Format("15:04:05"), label) {
				label += " stands at " + at.String()
			}
			if label != "" {
				got = append(got, label)
			}
		}
		return strings.Join(got, " ")
	},
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// Each row of testdata/words.txt has a function, its arguments and its result.
func TestWords(t *testing.T) {
	for _, row := range testkit.SectionOf(t, "testdata/words.txt", "words").Rows(t) {
		f := strings.Split(row.In, " ")
		if worded[f[0]] == nil {
			t.Fatalf("line %d: unknown function %q", row.Line, f[0])
		}
		if got := worded[f[0]](f[1:]); got != row.Want {
			t.Errorf("%s is %q, want %q", row.In, got, row.Want)
		}
	}
}

// A fraction between none and all is never rounded to 0 % or 100 %.
func TestRounding(t *testing.T) {
	for all := int64(2); all < 5000; all += 37 {
		for n := int64(1); n < all; n++ {
			switch got := share(n, all); got {
			case "0 %", "0.0 %", "100 %", "100.0 %", "1e+02 %":
				t.Fatalf("share(%d, %d) = %q", n, all, got)
			}
		}
	}
	if got := share(math.MaxInt64-1, math.MaxInt64); got != "> 99.9 %" {
		t.Errorf("nearly all is %q", got)
	}
}

// Format characters, controls and separators of Unicode are escaped.
func TestSafe(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r != ' ' && unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp, unicode.Zs) {
			if got := safe("x"+string(r)+"y", 10); strings.ContainsRune(got, r) || len(got) < 4 {
				t.Errorf("%U is not escaped: %q", r, got)
			}
		}
	}
	fits := strings.Repeat("é", 45)
	if short, long := safe(fits, 45), safe(fits+"é", 45); short != fits || long != fits+"…" {
		t.Errorf("a key that fits is %q, and a longer one %q", short, long)
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
			t.Errorf("safe(%q, %d) = %q, although the text fits", s, most, got)
		}
	})
}

func TestHeadline(t *testing.T) {
	address := replay.Rule{Kind: "limit", Key: []string{"client_ip"}}
	for want, r := range map[string]*replay.Report{
		"No line of this log is a readable request.": logged(replay.Report{Unreadable: 3}),
		"This policy would have denied 1 of 1 request (100 %), and 1 of 1 client at least once.": logged(replay.Report{
			Requests: 1, Refused: 1, Subjects: 1, SubjectsRefused: 1, Rules: map[string]replay.Rule{"a": address}}),
		"This policy would have denied 458 of 9,999 requests (4.6 %), and about 31 of 1,753 subjects at least once.": logged(replay.Report{
			Requests: 9999, Refused: 458, Subjects: 1753, SubjectsRefused: 31, Estimated: true,
			Rules: map[string]replay.Rule{"a": address, "b": {Kind: "limit", Key: []string{"header:X-Api-Key"}}}}),
		"This policy would have denied 2 of 9 requests (22.2 %).": logged(replay.Report{Requests: 9, Refused: 2}),
	} {
		if got := headline(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
