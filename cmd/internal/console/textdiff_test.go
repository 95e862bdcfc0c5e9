package console

import (
	"strings"
	"testing"
)

// A diff has the lines that differ, with three lines of context. A mark stands for omitted lines.
func TestDiffLines(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"the same":       {"a\nb\n", "a\nb\n", ""},
		"nothing before": {"", "a\nb\n", "+a +b"},
		"nothing after":  {"a\nb\n", "", "-a -b"},
		"a new end":      {"a\nb", "a\nb\nc\n", " a  b +c"},
		"at the top":     {"a\nb\nc\nd\ne\n", "x\nb\nc\nd\ne\n", "-a +x  b  c  d"},
		"far apart":      {"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", "a\nb\nc\nd\nx\nf\ng\nh\ni\nj\n", "…  b  c  d -e +x  f  g  h"},
		"like a mark":    {"@@ a\n-b\n", "@@ a\n+b\n", " @@ a --b ++b"},
	} {
		var got []string
		for _, l := range diffLines(c.before, c.after) {
			got = append(got, l.Sign+l.Text)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
	large := strings.Repeat("a\n", 5000)
	if got := diffLines(large, strings.Repeat("b\n", 5000)); len(got) != 10000 {
		t.Errorf("the diff of large texts has %d lines", len(got))
	}
}
