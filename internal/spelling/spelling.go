// Package spelling suggests a known word in place of an unknown one.
package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// Quote returns s in quotes. It shortens long texts, because a document may contain anything.
func Quote(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// OneOf returns `"a", "b" or "c"`.
func OneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = Quote(n)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// Suggest returns a hint for a name that is not one of names.
func Suggest(name string, names []string) string {
	if len(names) == 0 {
		return "none is defined"
	}
	if best := Nearest(name, names); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "use " + OneOf(names)
}

// opens has the words of policies that allow requests. The correction of a typing error must not suggest such a
// word.
var opens = []string{"allow", "enforce", "exempt", "shadow", "skip"}

// Nearest returns the name that was most probably meant, or "" if that is not clear. It never returns a word that
// allows requests.
func Nearest(name string, names []string) string {
	if len(name) > 60 {
		return ""
	}
	best, distance := "", max(2, len(name)/3+1)
	for _, n := range names {
		if slices.Contains(opens, n) {
			continue
		}
		if Fold(n) == Fold(name) {
			return n
		}
		if d := editDistance(strings.ToLower(name), strings.ToLower(n)); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// Fold returns a form of the name that does not depend on case and separators: onError, on-error and ON_ERROR have
// the same form.
func Fold(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

// editDistance returns the number of bytes to insert, delete, replace, or swap with the next byte to turn a into b.
func editDistance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			d := last[j]
			if a[i] != b[j] {
				d++
			}
			row[j+1] = min(d, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
