// Command foldgen writes the table by which package fold folds names, on its standard
// output, from the rules of Unicode and from what databases were measured to take for the
// same (testdata/collations.txt of policy/internal/fold, on its standard input).
//
// Each line has a word and the characters that become it, in hexadecimal: "61+65 C6 E6" for
// æ. The word "-" is nothing, and "!" marks the characters that servers read differently. A
// character of the basic plane that is not there stays as it is; any other becomes nothing.
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

// table has what characters become.
type table struct {
	measured []equality
	// words has what characters become, as yet; each word is made of characters that may
	// become something else in turn. A character that is not there stays as it is.
	words map[rune]string
	// garbled are the characters of which some servers make one thing, and some another.
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

// addRules adds what follows from Unicode's properties of characters.
func (t *table) addRules() {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		switch word := compatible(r); {
		case unreadable(r):
			t.garbled[r] = true
		case r > maxBasic:
			// To some databases all of these are one character, to others nothing. What
			// is a letter of the basic plane in disguise is that letter to the others.
			t.garbled[r] = strings.ContainsFunc(word, basic)
		case word != string(r):
			t.words[r] = word
		}
	}
	// The only characters of ASCII that databases make equal, beside those that differ in
	// case. ß is "s" to some and "ss" to others, ü is "u" to some and "y" to others: so
	// is every y, and one s stands for any number of them (see trim).
	t.words['y'] = "u"
	// ŀ is "l" to some, and "l·" to others.
	t.words['·'] = ""
	// A small iota below a letter is nothing to some, and a letter to others.
	t.garbled['\u0345'], t.garbled['\u037A'] = true, true
}

func basic(r rune) bool { return r <= maxBasic }

// unreadable reports whether a character cannot be relied upon: it is not assigned, for
// private use, a control character, or has replaced bytes that are not UTF-8.
func unreadable(r rune) bool {
	return !unicode.IsPrint(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) || r == utf8.RuneError
}

// There and back, so that what is one letter in either case is one: σ and ς, i and ı.
var upper, lower = cases.Upper(language.Und), cases.Lower(language.Und)

// compatible returns a character in its decomposed form, with neither case nor marks nor
// width, with spaces that are plain and digits that are Arabic.
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

// space reports whether something takes a character for a space.
func space(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) }

// plain returns a character, a digit instead, or -1 for what is nothing: marks, what does
// not show, what is beyond the basic plane, and the vowels that Thai and its kind write
// before what they are spoken after, of which collations change the order.
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

// digit returns the value of a decimal digit, which come ten in a row, in order.
func digit(r rune) rune {
	start := r
	for unicode.Is(unicode.Nd, start-1) {
		start--
	}
	return (r - start) % 10
}

// trim makes one of every row of the letter s, and of spaces.
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

// become returns what a text becomes.
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

// addMeasured adds what was measured. What cannot be added, since it would make other
// characters the same that are not, is left to be garbled.
func (t *table) addMeasured() {
	for _, e := range t.measured {
		if t.disagree(e) {
			t.garbled[e.char] = true
		}
	}
	for t.equateAll(nil) > 0 { // what a word becomes may have changed
	}
	t.equateAll(func(e equality) { t.garbled[e.char] = true })
}

// disagree reports whether a database takes for a letter what is nothing to others: a mark,
// or a character beyond the basic plane.
func (t *table) disagree(e equality) bool {
	word := t.become(e.word)
	if e.char > maxBasic {
		return strings.ContainsFunc(word, basic)
	}
	return word != "" && t.become(string(e.char)) == ""
}

// equateAll makes equal what is measured to be, where that can be. It returns how many
// words it has changed.
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

// equate makes the single character a the same as b, and reports whether that can be. ASCII
// stays as it is.
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

// before reports whether of two characters the first one shall stay.
func before(r, s rune) bool {
	if a, b := unicode.Is(unicode.Unified_Ideograph, r), unicode.Is(unicode.Unified_Ideograph, s); a != b {
		return a
	}
	return r < s
}

// single returns the only character of s.
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
		case r > maxBasic || '가' <= r && r <= '힣': // by rule
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
