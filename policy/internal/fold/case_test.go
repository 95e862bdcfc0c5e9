package fold

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestCase goes through all characters: those that differ only in case are made equal,
// and what is folded stays as it is.
func TestCase(t *testing.T) {
	t.Parallel()
	for r := rune(0); r < 0x20000; r++ { // beyond are no letters with cases
		if !utf8.ValidRune(r) {
			continue
		}
		f := Rune(r)
		if Rune(f) != f {
			t.Fatalf("%U folds to %U, and that to %U", r, f, Rune(f))
		}
		for _, o := range []rune{unicode.SimpleFold(r), unicode.ToUpper(r), unicode.ToLower(r), unicode.ToTitle(r)} {
			if Rune(o) != f {
				t.Errorf("%U and %U differ only in case", r, o)
			}
		}
	}
	if got := string(AppendCase(nil, "\xff\xfeÀ\xed\xa0\x80")); got != "\xff\xfeà\xed\xa0\x80" {
		t.Errorf("what is not UTF-8 becomes %q", got)
	}
}
