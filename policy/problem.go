package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Problem is one thing that is wrong, or looks wrong, with a policy document.
type Problem struct {
	// File and Line, counted from 1, are the position of the problem in a file. A File without a Line is another
	// source, such as a database.
	File string
	Line int
	// Path is the field with the problem, as in rules[3].limit or overrides[0].key["client_ip"]; empty for the whole
	// document. In the text of an answer, as in answers["429"].body[2], the last index is the index of the line.
	Path    string
	Rule    string // the rule with the problem, if any
	Message string // what is wrong
	Hint    string // what to do about it, or empty
}

// String returns `api.yaml:12: rule "login": unknown key "limt"; did you mean "limit"?`. Without a file it starts
// with the path.
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

// at returns the problem with the file and line of its field.
func (p Problem) at(where func(string) (string, int)) Problem {
	if where != nil {
		p.File, p.Line = where(p.Path)
	}
	return p
}

// Errors are the problems of a policy document. Problems in a file are in the order of their lines. [Compile] returns
// Errors as its error; find them with errors.As.
type Errors []Problem

// maxErrors is the maximum number of problems that Error returns.
const maxErrors = 100

// Error returns the problems, one on each line, at most the first 100.
func (e Errors) Error() string {
	shown := e[:min(len(e), maxErrors)]
	lines := make([]string, len(shown), len(shown)+1)
	for i, p := range shown {
		lines[i] = p.String()
	}
	if more := len(e) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

// fail reports a problem with a field of the current item, or with the whole item if field is empty.
func (c *compiler) fail(field, hint, format string, args ...any) {
	p := Problem{Path: c.path(field), Rule: c.rule, Message: fmt.Sprintf(format, args...), Hint: hint}
	c.problems = append(c.problems, p.at(c.where))
}

func (c *compiler) path(field string) string {
	switch {
	case c.list == "":
		return field
	case field == "":
		return fmt.Sprintf("%s[%d]", c.list, c.item)
	}
	return fmt.Sprintf("%s[%d].%s", c.list, c.item, field)
}

// warn adds a warning about the current item.
func (c *compiler) warn(found *[]Problem, hint, format string, args ...any) {
	*found = append(*found, Problem{Path: c.path(""), Rule: c.rule, Message: fmt.Sprintf(format, args...), Hint: hint}.at(c.where))
}

// first returns the position of the first of two duplicates, in words.
func (c *compiler) first(item int) string {
	path := fmt.Sprintf("%s[%d]", c.list, item)
	if c.where != nil {
		if _, line := c.where(path); line > 0 {
			return fmt.Sprintf("the first in line %d", line)
		}
	}
	return "the first is " + path
}

// maxEnded is the maximum number of warnings about expired items of one list. A database may keep any number of them.
const maxEnded = 10

// ended warns of the current item if it has expired.
func (c *compiler) ended(found *[]Problem, what string, until int64) {
	if until == 0 || until >= c.now {
		return
	}
	if c.endings++; c.endings <= maxEnded {
		at := time.UnixMicro(until).UTC().Format(time.RFC3339)
		*found = append(*found, Problem{Path: c.path(""), Rule: c.rule, Hint: "remove it", Message: "the " + what + " ended at " + at}.at(c.where))
	}
}

// endedMore adds a warning with the number of warnings that ended has left out.
func (c *compiler) endedMore(found *[]Problem) {
	if more := c.endings - maxEnded; more > 0 {
		*found = append(*found, Problem{Path: c.list, Message: fmt.Sprintf("%d more have ended", more), Hint: "remove them"}.at(c.where))
	}
	c.endings = 0
}
