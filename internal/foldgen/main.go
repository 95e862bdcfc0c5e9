// Command foldgen writes the table with which package fold folds names to its standard output. It derives the table
// from the rules of Unicode, and from measurements of which characters databases treat as equal
// (testdata/collations.txt of policy/internal/fold), which it reads from its standard input.
//
// Each line of the table has a word and the characters that become this word, in hexadecimal, such as "61+65 C6 E6"
// for æ. The word "-" is the empty word, and "!" marks the characters that servers read differently. A character of
// the basic plane that is not in the table is not changed. Any other character is dropped.
package main

import (
	"bufio"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

func main() {
	log.SetFlags(0)
	t := table{words: map[rune]string{}, garbled: map[rune]bool{}}
	if err := t.read(bufio.NewScanner(os.Stdin)); err != nil {
		log.Fatal(err)
	}
	t.addRules()
	t.addMeasured()
	t.print(os.Stdout)
}

// table has the words that characters become.
type table struct {
	measured []equality
	// words has the words that characters become so far. The characters of a word may have words, too. A character
	// without a word is not changed.
	words map[rune]string
	// garbled has the characters that servers read differently.
	garbled map[rune]bool
}

// equality is a character that a database treats as equal to a word.
type equality struct {
	char rune
	word string
}

// read reads the lines of collations.txt.
func (t *table) read(lines *bufio.Scanner) error {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		word := ""
		if fields[1] != "-" {
			for _, code := range strings.Split(fields[1], "+") {
				word += string(hex(code))
			}
		}
		for _, f := range fields[2:] {
			first, last, ok := strings.Cut(f, "-")
			if !ok {
				last = first
			}
			for r := hex(first); r <= hex(last); r++ {
				t.measured = append(t.measured, equality{r, word})
			}
		}
	}
	slices.SortFunc(t.measured, func(a, b equality) int {
		if a.char != b.char {
			return int(a.char - b.char)
		}
		return strings.Compare(a.word, b.word)
	})
	return lines.Err()
}

func hex(s string) rune {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		log.Fatal(err)
	}
	return rune(n)
}

// maxBasic is the last character of the basic plane.
const maxBasic = 0xFFFF

// addRules adds the words that follow from Unicode's properties of characters.
func (t *table) addRules() {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		switch word := compatible(r); {
		case unreadable(r):
			t.garbled[r] = true
		case r > maxBasic:
			// Some databases treat all these characters as equal, and others ignore them. But a variant of a letter
			// of the basic plane is that letter to other databases.
			t.garbled[r] = strings.ContainsFunc(word, basic)
		case word != string(r):
			t.words[r] = word
		}
	}
	// These are the only characters of ASCII that become equal, in addition to letters that differ in case. Some
	// databases treat ß as "s", and others as "ss"; so one s stands for any number of them (see trim). Some treat ü
	// as "u", and others as "y"; so u and y are equal.
	t.words['y'] = "u"
	// Some databases treat ŀ as "l", and others as "l·".
	t.words['·'] = ""
	// Some databases ignore a small iota below a letter, and others treat it as a letter.
	t.garbled['\u0345'], t.garbled['\u037A'] = true, true
}

func basic(r rune) bool { return r <= maxBasic }

// unreadable reports whether servers may read a character differently, because it is not assigned, for private use,
// a control character, or the replacement for bytes that are not UTF-8.
func unreadable(r rune) bool {
	return !unicode.IsPrint(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) || r == utf8.RuneError
}

// A conversion to upper case and back makes letters equal that share an upper case, such as σ and ς, or i and ı.
var upper, lower = cases.Upper(language.Und), cases.Lower(language.Und)

// compatible returns a character in its decomposed form: in lower case, without marks and width, with plain spaces
// and ASCII digits.
func compatible(r rune) string {
	if space(r) {
		return " "
	}
	s := string(r)
	for {
		next := strings.Map(plain, norm.NFKD.String(lower.String(upper.String(strings.Map(plain, norm.NFKD.String(s))))))
		if next == s {
			return s
		}
		s = next
	}
}

// space reports whether some server treats a character as a space.
func space(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) }

// plain returns the ASCII digit for a digit, and -1 for characters that are dropped: marks, invisible characters,
// characters outside of the basic plane, and the vowels of Thai and similar scripts that are written before the
// consonant after which they are spoken, because collations change their order. It returns any other character
// unchanged.
func plain(r rune) rune {
	switch {
	case unicode.In(r, unicode.M, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Logical_Order_Exception):
		return -1
	case unicode.Is(unicode.Nd, r):
		return '0' + digit(r)
	case r > maxBasic:
		return -1
	}
	return r
}

// digit returns the value of a decimal digit. Unicode has the ten digits of a script in a row, in order.
func digit(r rune) rune {
	start := r
	for unicode.Is(unicode.Nd, start-1) {
		start--
	}
	return (r - start) % 10
}

// trim reduces each run of the letter s, and each run of spaces, to one.
func trim(s string) string {
	var b strings.Builder
	last := rune(-1)
	for _, r := range s {
		if r != last || r != 's' && r != ' ' {
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// become replaces the characters of a text by their words until nothing changes, and returns the trimmed result.
func (t *table) become(s string) string {
	for {
		var b strings.Builder
		for _, r := range s {
			if word, ok := t.words[r]; ok {
				b.WriteString(word)
			} else {
				b.WriteRune(r)
			}
		}
		if b.String() == s {
			return trim(s)
		}
		s = b.String()
	}
}

// addMeasured adds the measured equalities. If an equality cannot be added, because it would make other characters
// equal, its character becomes garbled.
func (t *table) addMeasured() {
	for _, e := range t.measured {
		if t.disagree(e) {
			t.garbled[e.char] = true
		}
	}
	for t.equateAll(nil) > 0 { // the last round may have changed the words of characters in other words
	}
	t.equateAll(func(e equality) { t.garbled[e.char] = true })
}

// disagree reports whether an equality makes a letter of a character that other databases ignore: a mark, or a
// character outside of the basic plane.
func (t *table) disagree(e equality) bool {
	word := t.become(e.word)
	if e.char > maxBasic {
		return strings.ContainsFunc(word, basic)
	}
	return word != "" && t.become(string(e.char)) == ""
}

// equateAll applies the measured equalities, and calls its argument for each equality that cannot be applied. It
// returns the number of words that it has changed.
func (t *table) equateAll(otherwise func(equality)) (changed int) {
	for _, e := range t.measured {
		if e.char > maxBasic || t.garbled[e.char] || strings.ContainsFunc(e.word, t.isGarbled) {
			continue
		}
		switch a, b := t.become(string(e.char)), t.become(e.word); {
		case a == b:
		case t.equate(a, b) || t.equate(b, a):
			changed++
		case otherwise != nil:
			otherwise(e)
		}
	}
	return changed
}

func (t *table) isGarbled(r rune) bool { return t.garbled[r] }

// equate makes a equal to b, if a is a single character, and reports whether it has done so. It does not change
// ASCII characters.
func (t *table) equate(a, b string) bool {
	r, ok := single(a)
	if !ok || r < utf8.RuneSelf || strings.ContainsRune(b, r) {
		return false
	}
	if s, ok := single(b); ok && before(r, s) {
		return false
	}
	t.words[r] = b
	return true
}

// before reports whether, of two equal characters r and s, r is kept.
func before(r, s rune) bool {
	if a, b := unicode.Is(unicode.Unified_Ideograph, r), unicode.Is(unicode.Unified_Ideograph, s); a != b {
		return a
	}
	return r < s
}

// single returns the only character of s. It reports false if s has no or several characters.
func single(s string) (rune, bool) {
	r, n := utf8.DecodeRuneInString(s)
	return r, n > 0 && n == len(s)
}

// print writes the table.
func (t *table) print(out *os.File) {
	lines := map[string][]rune{}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		switch word := t.become(string(r)); {
		case t.garbled[r]:
			lines["!"] = append(lines["!"], r)
		case r > maxBasic || '가' <= r && r <= '힣': // package fold handles these by rule
		case word == "":
			lines["-"] = append(lines["-"], r)
		case word != string(r):
			lines[codes(word)] = append(lines[codes(word)], r)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(out, "%s%s\n", word, ranges(lines[word]))
	}
}

func codes(word string) string {
	var all []string
	for _, r := range word {
		all = append(all, fmt.Sprintf("%X", r))
	}
	return strings.Join(all, "+")
}

func ranges(all []rune) string {
	var b strings.Builder
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		fmt.Fprintf(&b, " %X", all[i])
		if j > i {
			fmt.Fprintf(&b, "-%X", all[j])
		}
		i = j + 1
	}
	return b.String()
}
