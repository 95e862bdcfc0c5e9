//go:build long

package fold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestLongServersCollations compares collationsFile with the answers of servers. With SLUICE_COLLATIONS=write, it
// writes the answers to the file first.
func TestLongServersCollations(t *testing.T) {
	t.Parallel()
	recorded := askCollations(t, startMariaDB(t), startPostgres(t))
	if os.Getenv("SLUICE_COLLATIONS") == "write" {
		if err := os.WriteFile(collationsFile, []byte(recorded), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(collationsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != recorded {
		t.Errorf("%s differs from the answers of the servers: SLUICE_COLLATIONS=write updates it", collationsFile)
	}
}

// askCollations returns the content of collationsFile by the answers of the servers. It checks AppendName by all
// answers, including those that are not listed.
func askCollations(t *testing.T, maria, postgres *sqlServer) string {
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
		case c.letter == "d":
			words = wordsOf(perlWeights(t))
		case c.letter == "s":
			words = wordsOf(latin1Weights(maria))
			// In this collation, [, \ and ] are equal to letters, as in the old Swedish ASCII. AppendName ignores that.
			maps.DeleteFunc(words, func(w string, _ []rune) bool { return strings.Contains(`[\]`, w) })
		default:
			words = wordsOf(weights(maria, c.name))
		}
		for word, same := range words {
			for _, r := range same {
				checkEqual(t, c.name, word, r)
				if listed(r) {
					by[pair{word, r}] += c.letter
				}
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

// TestLongServersNames makes pairs of names with differences that collations ignore, and asks MariaDB which pairs are
// equal.
func TestLongServersNames(t *testing.T) {
	t.Parallel()
	maria := startMariaDB(t)
	var pairs []nameTwins
	makeTwins(t, 20_000, func(n nameTwins) { pairs = append(pairs, n) })
	var rows strings.Builder
	rows.WriteString("create temporary table twins (i int, a varchar(200), b varchar(200)) character set utf8mb4;\n")
	for i, p := range pairs {
		fmt.Fprintf(&rows, "insert into twins values (%d, x'%x', x'%x');\n", i, p.a, p.b)
	}
	for _, c := range collationLetters[:4] {
		fmt.Fprintf(&rows, "select '%s', i from twins where a = b collate %s;\n", c.name, c.name)
	}
	equal := map[string]int{}
	for _, row := range maria.ask(rows.String()) {
		collation, i, _ := strings.Cut(row, "\t")
		n, err := strconv.Atoi(i)
		if err != nil {
			t.Fatal(row)
		}
		equal[collation]++
		pairs[n].check(t, collation)
	}
	for _, c := range collationLetters[:4] {
		if equal[c.name] < 1000 {
			t.Errorf("only %d pairs are equal in %s: too few for a test", equal[c.name], c.name)
		}
	}
}

// nameTwins are two names that may be equal.
type nameTwins struct{ a, b string }

func (n nameTwins) check(t *testing.T, why string) {
	t.Helper()
	a, okA := AppendName(nil, n.a)
	b, okB := AppendName(nil, n.b)
	if okA && okB && string(a) != string(b) {
		t.Errorf("%s: %q is %q, and %q is %q", why, n.a, a, n.b, b)
	}
}

// makeTwins makes names of characters that are equal to others in some collation. It replaces them in a second name,
// and sometimes swaps two neighbors.
func makeTwins(t *testing.T, n int, f func(nameTwins)) {
	same := map[string][]string{}
	readCollations(t, func(_, word string, r rune) {
		same[word] = append(same[word], string(r))
		same[string(r)] = append(same[string(r)], word)
	})
	words := slices.Sorted(maps.Keys(same))
	rnd := rand.New(rand.NewPCG(6, 28))
	for range n {
		var a, b []string
		for range 1 + rnd.IntN(5) {
			w := words[rnd.IntN(len(words))]
			if rnd.IntN(2) == 0 {
				w = string(rune('a' + rnd.IntN(26)))
			}
			a, b = append(a, w), append(b, w)
			if others := same[w]; len(others) > 0 {
				b[len(b)-1] = others[rnd.IntN(len(others))]
			}
			if nothing := same[""]; rnd.IntN(4) == 0 {
				b = append(b, nothing[rnd.IntN(len(nothing))])
			}
		}
		if i := rnd.IntN(len(b)); i > 0 && rnd.IntN(3) == 0 {
			b[i-1], b[i] = b[i], b[i-1]
		}
		f(nameTwins{strings.Join(a, ""), strings.Join(b, "")})
	}
}

// weights returns the weights of all characters by a server. A weight consists of units of four digits.
func weights(s *sqlServer, collation string) map[rune][]string {
	return byRune(s.ask(`select hex(seq), hex(weight_string(cast(char(seq using utf32) as char character set utf8mb4)  collate `+collation+`))
from seq_1_to_1114111 where seq < 0xd800 or seq > 0xdfff;`), "\t", units)
}

// byRune reads rows of a character in hexadecimal and its weight.
func byRune(rows []string, separator string, split func(weight string) []string) map[rune][]string {
	all := make(map[rune][]string, len(rows))
	for _, row := range rows {
		code, weight, _ := strings.Cut(row, separator)
		all[fromHex(code)] = split(weight)
	}
	return all
}

// units splits a weight. A unit from FB40 to FBFF belongs to the unit after it.
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

// perlWeights asks Perl's Unicode::Collate for the weights of the default table of Unicode, which MySQL's
// utf8mb4_0900_ai_ci uses as well.
func perlWeights(t *testing.T) map[rune][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "perl", "-MUnicode::Collate", "-e", `
		my $c = Unicode::Collate->new(level => 1, variable => "non-ignorable", normalization => undef);
		for my $r (0x20 .. 0xD7FF, 0xE000 .. 0x16FFF, 0x1AFF0 .. 0x323AF) {
			no warnings;
			printf "%X %s\n", $r, uc unpack "H*", $c->getSortKey(chr $r);
		}`).Output()
	if err != nil {
		t.Fatal(err)
	}
	return byRune(strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), " ", func(key string) []string {
		return units(strings.TrimSuffix(key, "000000000000")) // the separator of the other levels
	})
}

func latin1Weights(s *sqlServer) map[rune][]string {
	return byRune(s.ask(`select hex(convert(convert(char(seq using latin1) using utf8mb4) using utf32)),
	hex(weight_string(char(seq using latin1) collate latin1_swedish_ci))
	from seq_32_to_255;`), "\t", func(weight string) []string { return []string{weight} })
}

// wordsOf groups characters by the word that they are equal to: one character, several, or none.
func wordsOf(weights map[rune][]string) map[string][]rune {
	letter := map[string]rune{} // the character that has exactly this weight
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
		if word, ok := spell(w, letter); ok && word != string(r) {
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

// listed reports whether collationsFile lists a character. Hangul syllables are equal to their letters by rule, and are
// not listed.
func listed(r rune) bool {
	return unicode.IsGraphic(r) && !('가' <= r && r <= '힣') || unicode.Is(unicode.Cf, r)
}

// unaccentWords asks PostgreSQL for Lower(unaccent()) of all characters.
func unaccentWords(s *sqlServer) map[string][]rune {
	rows := s.ask(`create extension unaccent;
select to_hex(c) || ' ' || encode(convert_to(Lower(unaccent(chr(c))), 'UTF8'), 'hex')
from generate_series(1, 1114111) c where (c < 55296 or c > 57343) and Lower(unaccent(chr(c))) <> chr(c);`)
	words := map[string][]rune{}
	for _, row := range rows {
		code, text, _ := strings.Cut(row, " ")
		var word []byte
		for ; text != ""; text = text[2:] {
			word = append(word, byte(fromHex(text[:2])))
		}
		words[string(word)] = append(words[string(word)], fromHex(code))
	}
	return words
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
