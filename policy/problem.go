package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong, or looks wrong, with a policy document.
type Problem struct {
	File    string
	Line    int    // counted from 1
	Rule    string // the rule that it is in, if any
	Message string // what is wrong
	Hint    string // what to do about it, if there is something to say
}

// String returns `api.yaml:12: rule "login": unknown key "limt"; did you mean "limit"?`.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	if p.Rule != "" {
		fmt.Fprintf(&b, "rule %q: ", p.Rule)
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Errors is what is wrong with a policy document, in the order of its lines. Of very
// many problems it has the first 100, and then one that says how many more there are.
// [Parse] returns it as its error; errors.As finds it.
type Errors []Problem

const maxErrors = 100

func (e Errors) first(n int) Errors {
	if len(e) <= n {
		return e
	}
	more := Problem{File: e[0].File, Line: e[n].Line, Message: fmt.Sprintf("… and %d more", len(e)-n)}
	return append(slices.Clone(e[:n]), more)
}

// Error returns the problems, one on each line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

// quote returns s in quotes, cut where it is long: a document may hold anything.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// oneOf returns `"a", "b" or "c"`.
func oneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// suggest returns what to write in place of a name that is not one of names.
func suggest(name string, names []string) string {
	if len(name) > 60 {
		return "use " + oneOf(names)
	}
	best, distance := "", len(name)/3+2
	for _, n := range names {
		if d := editDistance(strings.ToLower(name), n); d < distance {
			best, distance = n, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "use " + oneOf(names)
}

// editDistance counts the bytes to insert, delete, replace or swap with their
// neighbour to make b of a.
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
