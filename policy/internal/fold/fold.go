// Package fold gives the same spelling to names that servers treat as equal: names that differ only in case, and
// names that common databases or frameworks treat as one account.
//
// A folded name folds to itself, and folding takes nanoseconds for each character. The documentation of package
// policy describes which names are equal, and internal/foldgen makes the table. Collations contradict each other.
// If x equals y in one collation and x equals z in another, then y and z become equal if this merges few names.
// Otherwise AppendName returns false for all names that contain x.
package fold

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// AppendCase appends s in a form in which letters that differ only in case are equal. Bytes that are not UTF-8 are
// not changed.
func AppendCase(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, Lower(c))
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, s[i])
		} else {
			dst = utf8.AppendRune(dst, Rune(r))
		}
		i += n
	}
	return dst
}

// Rune returns the same rune for all letters that differ only in case. It also converts to upper case, because some
// letters, such as the long s, share only their upper case with another letter.
func Rune(r rune) rune {
	if r < utf8.RuneSelf {
		return rune(Lower(byte(r)))
	}
	return unicode.ToLower(unicode.ToUpper(unicode.ToLower(r)))
}

// Lower returns c in lower case, if it is an ASCII letter.
func Lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// Folded reports whether s is ASCII that AppendCase does not change.
func Folded(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || Lower(c) != c {
			return false
		}
	}
	return true
}

// maxName is the maximum number of bytes of a name that is not all ASCII. Names of accounts are shorter.
const maxName = 1 << 10

// AppendName appends the folded name of an account. Two folded names are the same if the names are one account to a
// database or framework in common use: see "Names" in the documentation of package policy. AppendName returns false
// if servers may read s differently, if s has only characters that some servers drop, or if s has more than maxName
// bytes and is not all ASCII.
func AppendName(dst []byte, s string) ([]byte, bool) {
	start := len(dst)
	last := byte(' ') // so that spaces before the name are dropped
	for i := range len(s) {
		c := asciiNames[s[i]]
		switch {
		case c == 0:
			if s[i] < utf8.RuneSelf || len(s) > maxName {
				return dst[:start], false
			}
			return appendUnicodeName(dst[:start], s)
		case c == last && (c == 's' || c == ' '):
			continue
		}
		dst = append(dst, c)
		last = c
	}
	return trimSpace(dst, start), true
}

// asciiNames maps each byte to its folded form, or to 0 for control characters and bytes that are not ASCII.
var asciiNames = func() (to [256]byte) {
	for c := byte(' '); c <= '~'; c++ {
		to[c] = Lower(c)
	}
	to['y'], to['Y'] = 'u', 'u' // see foldgen
	for _, c := range []byte("\t\n\v\f\r") {
		to[c] = ' '
	}
	return to
}()

func trimSpace(dst []byte, start int) []byte {
	if n := len(dst); n > start && dst[n-1] == ' ' {
		dst = dst[:n-1]
	}
	return dst
}

func appendUnicodeName(dst []byte, s string) ([]byte, bool) {
	table := nameWords()
	start := len(dst)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		word := s[i : i+n]
		i += n
		switch entry := table.entry(r); entry {
		case staysItself:
		case neverRead:
			return dst[:start], false
		case hangulSyllable:
			dst = appendSyllable(dst, r)
			continue
		default:
			word = table.words[entry]
		}
		dst = appendWord(dst, start, word)
	}
	dst = trimSpace(dst, start)
	return dst, len(dst) > start || strings.TrimSpace(s) == ""
}

// appendWord appends a word, but never a second space or a second "s" in a row.
func appendWord(dst []byte, start int, word string) []byte {
	if word == "" {
		return dst
	}
	last := byte(' ')
	if len(dst) > start {
		last = dst[len(dst)-1]
	}
	if c := word[0]; c == last && (c == 's' || c == ' ') {
		word = word[1:]
	}
	return append(dst, word...)
}

// appendSyllable appends the two or three letters of a Hangul syllable.
func appendSyllable(dst []byte, r rune) []byte {
	const vowels, finals = 21, 28
	r -= '가'
	dst = utf8.AppendRune(dst, 'ᄀ'+r/(vowels*finals))
	dst = utf8.AppendRune(dst, 'ᅡ'+r/finals%vowels)
	if final := r % finals; final > 0 {
		dst = utf8.AppendRune(dst, 'ᆧ'+final)
	}
	return dst
}

// nameTable maps characters to their folded form in a name.
type nameTable struct {
	basic [maxBasic + 1]uint16 // the index of the word of each character of the basic plane
	words []string
	// refused has the sorted ranges of the characters outside of the basic plane that servers read differently. All
	// other characters outside of the basic plane are dropped.
	refused []runeRange
}

const maxBasic = 0xFFFF

type runeRange struct{ first, last rune }

// These entries of a nameTable are not indexes of words.
const (
	staysItself = iota
	neverRead
	hangulSyllable
	nothing
)

func (t *nameTable) entry(r rune) uint16 {
	if r <= maxBasic {
		return t.basic[r]
	}
	_, found := slices.BinarySearchFunc(t.refused, r, func(a runeRange, r rune) int {
		switch {
		case a.last < r:
			return -1
		case a.first > r:
			return 1
		}
		return 0
	})
	if found {
		return neverRead
	}
	return nothing
}

// fold.txt is written and described by foldgen.
//
//go:generate sh -c "go run ../../../internal/foldgen <testdata/collations.txt >fold.txt"
//go:embed fold.txt
var foldText string

// Prepare reads the table of names, so that no request has to wait for it.
func Prepare() { nameWords() }

// nameWords reads the table when a name first needs it.
var nameWords = sync.OnceValue(readNameTable)

func readNameTable() *nameTable {
	t := &nameTable{words: make([]string, nothing+1)}
	t.fill('가', '힣', hangulSyllable)
	for line := range strings.Lines(foldText) {
		word, chars, _ := strings.Cut(line, " ")
		entry := t.number(word)
		for chars := range strings.FieldsSeq(chars) {
			first, last, ok := strings.Cut(chars, "-")
			if !ok {
				last = first
			}
			t.fill(hexRune(first), hexRune(last), entry)
		}
	}
	return t
}

// number returns the entry for a word in the form of fold.txt.
func (t *nameTable) number(word string) uint16 {
	switch word {
	case "!":
		return neverRead
	case "-":
		return nothing
	}
	var b strings.Builder
	for code := range strings.SplitSeq(word, "+") {
		b.WriteRune(hexRune(code))
	}
	t.words = append(t.words, b.String())
	return uint16(len(t.words) - 1)
}

func hexRune(s string) rune {
	n, err := strconv.ParseUint(s, 16, 21)
	if err != nil {
		panic("fold: fold.txt: " + err.Error()) // the tests read the whole table
	}
	return rune(n)
}

// fill sets the entry of the characters from first to last.
func (t *nameTable) fill(first, last rune, entry uint16) {
	for r := first; r <= min(last, maxBasic); r++ {
		t.basic[r] = entry
	}
	if last > maxBasic {
		t.refused = append(t.refused, runeRange{max(first, maxBasic+1), last})
	}
}
