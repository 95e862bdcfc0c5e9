package fold

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// A collation says which names are one account. What it makes of each character was asked
// of a server and is kept in testdata/collations.txt: the letters of the collations that say
// so, a word, and the characters that they cannot tell from that word.
//
//	gu 61 41 C0-C5 E0-E5
//	x 61+65 C6 E6
//	x - 301
//
// U+00C6 is the same as "ae" to uca1400_ai_ci, and U+0301 the same as nothing. A character
// that is not there for a collation is the same as no other.
const collationsFile = "testdata/collations.txt"

// collationLetters has the letters of the collations that are asked. Those of utf8mb4 have
// a weight for every character.
var collationLetters = []struct{ letter, name string }{
	{"g", "utf8mb4_general_ci"},
	{"u", "utf8mb4_unicode_ci"},
	{"5", "utf8mb4_unicode_520_ci"},
	{"x", "utf8mb4_uca1400_ai_ci"},
	{"d", "DUCET"},
	{"s", "latin1_swedish_ci"},
	{"p", "Lower(unaccent())"},
}

// checkEqual checks that a character and a word that a collation takes for the same are the
// same in names, unless one of them is refused.
func checkEqual(t *testing.T, collation, word string, r rune) {
	t.Helper()
	a, okA := AppendName(nil, "|"+word+"|")
	b, okB := AppendName(nil, "|"+string(r)+"|")
	if okA && okB && string(a) != string(b) {
		t.Errorf("%s: %U %c is %q, and %q is %q", collation, r, r, b, word, a)
	}
}

// readCollations calls f for everything in collationsFile.
func readCollations(t *testing.T, f func(letters, word string, r rune)) {
	t.Helper()
	kept, err := os.ReadFile(collationsFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(kept)) {
		fields := strings.Fields(line)
		word := ""
		if fields[1] != "-" {
			for _, code := range strings.Split(fields[1], "+") {
				word += string(fromHex(code))
			}
		}
		for _, chars := range fields[2:] {
			first, last, ok := strings.Cut(chars, "-")
			if !ok {
				last = first
			}
			for r := fromHex(first); r <= fromHex(last); r++ {
				f(fields[0], word, r)
			}
		}
	}
}

// TestNamesAreOneWhereDatabasesSaySo holds what is kept of the servers' answers against
// AppendName.
func TestNamesAreOneWhereDatabasesSaySo(t *testing.T) {
	t.Parallel()
	said := map[string]int{}
	type class struct {
		letter rune
		word   string
	}
	classes := map[class]string{}
	readCollations(t, func(letters, word string, r rune) {
		checkEqual(t, letters, word, r)
		got, ok := AppendName(nil, "|"+string(r)+"|")
		for _, letter := range letters {
			said[string(letter)]++
			// Also where the word itself is refused.
			c := class{letter, word}
			if old := classes[c]; ok && old != "" && old != string(got) {
				t.Errorf("%c: %U %c is %q, and another that is equal to %q is %q", letter, r, r, got, word, old)
			} else if ok {
				classes[c] = string(got)
			}
		}
	})
	for _, c := range collationLetters {
		if n := said[c.letter]; n < 1000 && c.letter != "s" || n == 0 {
			t.Errorf("%s says that %d characters are equal to others: that cannot be all", c.name, n)
		}
	}
}

func fromHex(s string) rune {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		panic(err)
	}
	return rune(n)
}
