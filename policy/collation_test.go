package policy

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
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
	{"s", "latin1_swedish_ci"},
	{"p", "lower(unaccent())"},
}

// TestCollationsAreWhatServersSay asks the servers themselves. With SLUICE_COLLATIONS=write
// it writes what they say.
func TestCollationsAreWhatServersSay(t *testing.T) {
	mode := os.Getenv("SLUICE_COLLATIONS")
	if mode == "" {
		t.Skip("make collations asks MariaDB and PostgreSQL")
	}
	said := askCollations(startMariaDB(t), startPostgres(t))
	if mode == "write" {
		if err := os.WriteFile(collationsFile, []byte(said), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(collationsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != said {
		t.Errorf("%s is not what the servers say: SLUICE_COLLATIONS=write writes it anew", collationsFile)
	}
}

// askCollations returns what collationsFile has.
func askCollations(maria, postgres *sqlServer) string {
	type pair struct {
		word string
		same rune
	}
	by := map[pair]string{} // the letters of the collations
	for _, c := range collationLetters {
		var words map[string][]rune
		switch {
		case c.letter == "p":
			words = unaccentWords(postgres)
		case c.letter == "s":
			words = wordsOf(latin1Weights(maria))
			// Those of å, ä and ö are as old as its ASCII, and left alone.
			maps.DeleteFunc(words, func(w string, _ []rune) bool { return strings.Contains(`[\]`, w) })
		default:
			words = wordsOf(weights(maria, c.name))
		}
		for word, same := range words {
			for _, r := range same {
				by[pair{word, r}] += c.letter
			}
		}
	}
	lines := map[string][]rune{}
	for p, letters := range by {
		line := letters + " " + hexWord(p.word)
		lines[line] = append(lines[line], p.same)
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "%s %s\n", line, hexRanges(lines[line]))
	}
	return b.String()
}

// weights asks for the weights of all characters, which are made of units of four digits.
func weights(s *sqlServer, collation string) map[rune][]string {
	rows := s.ask(`select hex(seq), hex(weight_string(cast(char(seq using utf32) as char character set utf8mb4)  collate ` + collation + `))
from seq_1_to_1114111 where seq < 0xd800 or seq > 0xdfff;`)
	all := make(map[rune][]string, len(rows))
	for _, row := range rows {
		code, weight, _ := strings.Cut(row, "\t")
		all[fromHex(code)] = units(weight)
	}
	return all
}

// units splits a weight. What begins with FB40 to FBFF goes with what follows.
func units(weight string) []string {
	var all []string
	for weight != "" {
		n := 4
		if weight[:2] == "FB" && weight >= "FB4" && len(weight) >= 8 {
			n = 8
		}
		all = append(all, weight[:n])
		weight = weight[n:]
	}
	return all
}

func latin1Weights(s *sqlServer) map[rune][]string {
	rows := s.ask(`select hex(convert(convert(char(seq using latin1) using utf8mb4) using utf32)), hex(weight_string(char(seq using latin1) collate latin1_swedish_ci)) from seq_32_to_255;`)
	all := make(map[rune][]string, len(rows))
	for _, row := range rows {
		code, weight, _ := strings.Cut(row, "\t")
		all[fromHex(code)] = []string{weight}
	}
	return all
}

// wordsOf groups characters by what they are the same as: one of them, several, or nothing.
func wordsOf(weights map[rune][]string) map[string][]rune {
	letter := map[string]rune{} // that has this weight and no other
	better := func(a, b rune) bool {
		rank := func(r rune) (n int) {
			if unicode.Is(unicode.M, r) {
				n += 2
			}
			if unicode.ToLower(r) != r {
				n++
			}
			return n
		}
		return rank(a) < rank(b) || rank(a) == rank(b) && a < b
	}
	for r, w := range weights {
		if len(w) == 1 {
			if old, ok := letter[w[0]]; !ok || better(r, old) {
				letter[w[0]] = r
			}
		}
	}
	words := map[string][]rune{}
	for r, w := range weights {
		if word, ok := spell(w, letter); ok && word != string(r) && listed(r) {
			words[word] = append(words[word], r)
		}
	}
	return words
}

// spell returns the characters that have these weights, one by one.
func spell(weight []string, letter map[string]rune) (string, bool) {
	var word []rune
	for _, unit := range weight {
		r, ok := letter[unit]
		if !ok || r == utf8.RuneError {
			return "", false
		}
		word = append(word, r)
	}
	return string(word), true
}

// listed reports whether a character is listed. Hangul syllables are their letters by rule.
func listed(r rune) bool {
	return unicode.IsGraphic(r) && !('가' <= r && r <= '힣') || unicode.Is(unicode.Cf, r)
}

// unaccentWords asks PostgreSQL for what lower(unaccent()) makes of all characters.
func unaccentWords(s *sqlServer) map[string][]rune {
	rows := s.ask(`create extension unaccent;
select to_hex(c) || ' ' || encode(convert_to(lower(unaccent(chr(c))), 'UTF8'), 'hex')
from generate_series(1, 1114111) c where (c < 55296 or c > 57343) and lower(unaccent(chr(c))) <> chr(c);`)
	words := map[string][]rune{}
	for _, row := range rows {
		code, text, _ := strings.Cut(row, " ")
		var word []byte
		for ; text != ""; text = text[2:] {
			word = append(word, byte(fromHex(text[:2])))
		}
		if r := fromHex(code); listed(r) {
			words[string(word)] = append(words[string(word)], r)
		}
	}
	return words
}

func fromHex(s string) rune {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		panic(err)
	}
	return rune(n)
}

func hexWord(word string) string {
	if word == "" {
		return "-"
	}
	var all []string
	for _, r := range word {
		all = append(all, fmt.Sprintf("%X", r))
	}
	return strings.Join(all, "+")
}

// hexRanges writes characters in their order: 41 C0-C5.
func hexRanges(all []rune) string {
	slices.Sort(all)
	var out []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		s := fmt.Sprintf("%X", all[i])
		if j > i {
			s += fmt.Sprintf("-%X", all[j])
		}
		out = append(out, s)
		i = j + 1
	}
	return strings.Join(out, " ")
}
