package fold

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// A collation determines which names belong to the same account. The file testdata/collations.txt contains answers of
// servers: letters for collations, a word, and the characters that are equal to this word in these collations.
//
//	gu 61 41 C0-C5 E0-E5
//	x 61+65 C6 E6
//	x - 301
//
// In uca1400_ai_ci, U+00C6 is equal to "ae", and U+0301 to nothing. A character that is not listed for a collation is
// equal to no other.
const collationsFile = "testdata/collations.txt"

// collationLetters has the letter of each collation. The collations of utf8mb4 have a weight for every character.
var collationLetters = []struct{ letter, name string }{
	{"g", "utf8mb4_general_ci"},
	{"u", "utf8mb4_unicode_ci"},
	{"5", "utf8mb4_unicode_520_ci"},
	{"x", "utf8mb4_uca1400_ai_ci"},
	{"d", "DUCET"},
	{"s", "latin1_swedish_ci"},
	{"p", "Lower(unaccent())"},
}

// checkEqual checks that a character and a word that are equal in a collation are equal in names, unless AppendName
// rejects one of them.
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

// TestNamesAreOneWhereDatabasesSaySo checks AppendName by the answers of servers in collationsFile.
func TestNamesAreOneWhereDatabasesSaySo(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	type class struct {
		letter rune
		word   string
	}
	classes := map[class]string{}
	readCollations(t, func(letters, word string, r rune) {
		checkEqual(t, letters, word, r)
		got, ok := AppendName(nil, "|"+string(r)+"|")
		for _, letter := range letters {
			seen[string(letter)]++
			// This is checked even if the word itself is rejected.
			c := class{letter, word}
			if old := classes[c]; ok && old != "" && old != string(got) {
				t.Errorf("%c: %U %c is %q, and another that is equal to %q is %q", letter, r, r, got, word, old)
			} else if ok {
				classes[c] = string(got)
			}
		}
	})
	for _, c := range collationLetters {
		if n := seen[c.letter]; n < 1000 && c.letter != "s" || n == 0 {
			t.Errorf("%s: only %d characters are equal to others: some are missing", c.name, n)
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
