package console

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Without what is folded, a diff has all lines of both texts in their order, and as few changes as
// a plain search over all ways to get from one to the other finds.
func TestDiffLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() []string {
		all := make([]string, r.IntN(7))
		for i := range all {
			all[i] = string(rune('a' + r.IntN(3)))
		}
		return all
	}
	for range 3000 {
		a, b := text(), text()
		var before, after []string
		changes := 0
		for _, l := range compared(a, b) {
			if l.Sign != "+" {
				before = append(before, l.Text)
			}
			if l.Sign != "-" {
				after = append(after, l.Text)
			}
			if l.Sign != " " {
				changes++
			}
		}
		if !slices.Equal(before, a) || !slices.Equal(after, b) {
			t.Fatalf("of %q and %q it makes %q and %q", a, b, before, after)
		}
		if want := distance(a, b); changes != want {
			t.Fatalf("%q to %q in %d changes, and %d do", a, b, changes, want)
		}
	}
}

// distance is how many lines have to go and come, by trying all ways.
func distance(a, b []string) int {
	switch {
	case len(a) == 0:
		return len(b)
	case len(b) == 0:
		return len(a)
	case a[0] == b[0]:
		return distance(a[1:], b[1:])
	}
	return 1 + min(distance(a[1:], b), distance(a, b[1:]))
}

func TestDiffFolds(t *testing.T) {
	lines := make([]string, 40)
	for i := range lines {
		lines[i] = strings.Repeat("x", i)
	}
	before := strings.Join(lines, "\n")
	lines[20] = "new"
	var signs strings.Builder
	for _, l := range diffLines(before, strings.Join(lines, "\n")) {
		signs.WriteString(l.Sign)
	}
	if got := signs.String(); got != "…   -+   …" {
		t.Errorf("it shows %q", got)
	}
	if got := diffLines(before, before); len(got) != 0 {
		t.Errorf("of the same text it shows %v", got)
	}
	large := strings.Repeat("a\n", 5000)
	if got := diffLines(large, strings.Repeat("b\n", 5000)); len(got) != 10000 {
		t.Errorf("of large texts it shows %d lines", len(got))
	}
}
