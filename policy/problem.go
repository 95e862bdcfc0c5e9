package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong, or looks wrong, with a policy document.
type Problem struct {
	// File and Line, counted from 1, say where it is written, if it is in a file. A file without
	// a line is where else it is from, such as a database.
	File string
	Line int
	// Path is the field that it is about, as in rules[3].limit or
	// overrides[0].key["client_ip"]; empty for the whole document. Of the text of an answer, as in
	// answers["429"].body[2], the last index is that of the line.
	Path    string
	Rule    string // the rule that it is in, if any
	Message string // what is wrong
	Hint    string // what to do about it, if there is something to say
}

// String returns `api.yaml:12: rule "login": unknown key "limt"; did you mean "limit"?`. Of what
// is in no file it begins with the path.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.File != "" && p.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	case p.File != "" && p.Path != "":
		b.WriteString(p.File + ": " + p.Path + ": ")
	case p.Path != "":
		b.WriteString(p.Path + ": ")
	}
	if p.Rule != "" {
		fmt.Fprintf(&b, "rule %q: ", p.Rule)
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Errors is what is wrong with a policy document, in its order. [Compile] returns it as its
// error; errors.As finds it.
type Errors []Problem

// maxErrors is how many problems Error tells.
const maxErrors = 100

// Error returns the problems, one on each line. Of very many it has the first 100.
func (e Errors) Error() string {
	told := e[:min(len(e), maxErrors)]
	lines := make([]string, len(told), len(told)+1)
	for i, p := range told {
		lines[i] = p.String()
	}
	if more := len(e) - len(told); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}
