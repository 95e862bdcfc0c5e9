package fold

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestCase checks all characters that can have a case: characters that differ only in case fold to the same character,
// and folding again changes nothing.
func TestCase(t *testing.T) {
	t.Parallel()
	for r := rune(0); r < 0x20000; r++ { // no letters beyond have cases
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
		t.Errorf("invalid UTF-8 becomes %q", got)
	}
}
