package fields

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLetters(t *testing.T) {
	t.Parallel()
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		if want := unicode.IsPrint(r) && !unicode.IsSpace(r); letter(r) != want {
			t.Fatalf("letter(%U) = %v, not %v", r, !want, want)
		}
		if want := r == '\uFEFF' || !unicode.IsGraphic(r) || unicode.IsSpace(r); dropped(r) != want {
			t.Fatalf("dropped(%U) = %v, not %v", r, !want, want)
		}
	}
}
