package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The YAML parser often fails some lines after a mistake, and reports the wrong line. So after a failure, slip
// examines the document for common mistakes. If it knows a correction, it applies the correction to a copy, and
// reports the mistake only if the parser accepts the copy.

const (
	maxMended  = 1 << 18 // the size of the largest document that is examined, in bytes
	maxGuesses = 20      // the number of wrong guesses after which the search ends
	farthest   = 3       // levels that are more columns away are not tried
)

var (
	tightColon = regexp.MustCompile(`^( *(?:- )?)([a-z_]+):([^\s/].*)$`)
	noColon    = regexp.MustCompile(`^( *(?:- )?)([a-z_]+)( *= *| +)([^\s=:][^:]*)$`)
	comment    = regexp.MustCompile(`\s#.*$`)
	textBelow  = regexp.MustCompile(`(^|\s)[|>][-+0-9]*$`)
)

// slip returns the line of the mistake that made the parser fail, and a hint, or 0 if it finds no mistake. The
// parameter at is the line at which the parser failed.
func slip(data []byte, at int, message string) (line int, hint string) {
	if len(data) > maxMended {
		return 0, ""
	}
	d := draft(strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"))
	at = min(max(at, 1), len(d))
	for n := max(1, at-1); n <= at; n++ {
		m := tightColon.FindStringSubmatch(d[n-1])
		if m != nil && d.mendedBy(n, m[1]+m[2]+": "+m[3], at) {
			return n, fmt.Sprintf("put a space after the colon: \"%s: %.60s\"", m[2], m[3])
		}
	}
	switch {
	case strings.Contains(message, "alphabetic or numeric"):
		return at, "quote text that starts with * or &"
	case strings.Contains(message, "end of stream"):
		return at, "close the quotes opened here"
	case strings.Contains(message, "',' or"):
		return at, "close each { and [, separate entries by commas, and quote text that contains { } [ ] : or #"
	}
	if line, hint = d.misindented(); line > 0 {
		return line, hint
	}
	m := noColon.FindStringSubmatch(d[at-1])
	if m != nil && (homes[m[2]] != "" || strings.Contains(m[3], "=")) && d.mendedBy(at, m[1]+m[2]+": "+m[4], at) {
		return at, fmt.Sprintf("write \"%s: %.60s\", with a colon", m[2], m[4])
	}
	return 0, ""
}

// draft is the lines of a document that the parser does not accept.
type draft []string

// mendedBy reports whether the parser rejects the lines from 1 to upTo, and accepts them after line n is replaced. If
// line upTo opens brackets, the lines up to the closing brackets are included.
func (d draft) mendedBy(n int, line string, upTo int) bool {
	for open := balance(d[upTo-1]); open > 0 && upTo < len(d); upTo++ {
		open += balance(d[upTo])
	}
	lines := slices.Clone(d[:upTo])
	if parses(lines) {
		return false
	}
	lines[n-1] = line
	return parses(lines)
}

// parses reports whether lines are YAML.
func parses(lines []string) bool {
	dec := yaml.NewDecoder(strings.NewReader(strings.Join(lines, "\n")))
	for {
		if err := dec.Decode(new(yaml.Node)); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// level is an open list or mapping, which begins in a column.
type level struct {
	column int
	list   bool
	line   int    // the line in which the level begins
	word   string // its first word: see the function word
}

// indentation follows the levels of a document, line by line.
type indentation struct {
	open   []level
	opener bool // the previous line has nothing after its colon or dash, so a new level may begin
	last   level
	// guesses counts the lines that seemed wrong and were not.
	guesses int
}

// misindented returns the first line that begins in a column where nothing can begin, but parses in another column,
// and a hint to move it there. It returns 0 if it finds none.
func (d draft) misindented() (int, string) {
	x := indentation{opener: true}
	var text struct{ of, column int } // the least column of text below a key, and the column of its first line; 0 if unknown
	brackets := 0                     // how many { and [ are open
	for i, line := range d {
		content := strings.TrimLeft(line, " ")
		column := len(line) - len(content)
		content = strings.TrimSpace(comment.ReplaceAllString(content, ""))
		switch {
		case content == "" || content[0] == '#' || strings.HasPrefix(content, "---"):
			continue
		case text.of > 0 && column >= max(text.of, text.column):
			text.column = cmp.Or(text.column, column)
			continue
		case brackets > 0:
			brackets += balance(content)
			continue
		}
		text.of, text.column = 0, 0
		if levels, ok := x.line(i+1, column, content); !ok {
			for _, to := range levels {
				if d.mendedBy(i+1, strings.Repeat(" ", to.column)+content, i+1) {
					return i + 1, fmt.Sprintf("begin %q in column %d, under %q in line %d", word(content), to.column+1, to.word, to.line)
				}
			}
			if x.guesses++; x.guesses > maxGuesses {
				return 0, ""
			}
			continue // probably it continues the text of the previous line
		}
		brackets = balance(content)
		if textBelow.MatchString(content) {
			text.of = column + 1
		}
	}
	return 0, ""
}

// balance returns how many more brackets a line opens than it closes.
func balance(content string) int {
	return strings.Count(content, "{") + strings.Count(content, "[") - strings.Count(content, "}") - strings.Count(content, "]")
}

// word returns the first word of a line: "-", or a key.
func word(content string) string {
	if strings.HasPrefix(content, "- ") {
		return "-"
	}
	key, _, _ := strings.Cut(content, ":")
	return key
}

// line records the line with number n, in which content begins in the given column. If nothing can begin there, it
// returns the levels to which the line may belong, the most probable first.
func (x *indentation) line(n, column int, content string) (levels []level, ok bool) {
	list := strings.HasPrefix(content, "- ") || content == "-"
	was := slices.Clone(x.open)
	for len(x.open) > 0 && x.top().column > column {
		x.open = x.open[:len(x.open)-1]
	}
	if !list && len(x.open) > 1 && x.top().column == column && x.top().list && x.open[len(x.open)-2].column == column {
		x.open = x.open[:len(x.open)-1] // a list in the column of its key has ended
	}
	switch {
	case len(x.open) > 0 && x.top().column == column && x.top().list == list:
	case x.opener && len(x.open) == len(was) && (len(x.open) == 0 || column > x.top().column || list && column == x.top().column):
		x.open = append(x.open, level{column, list, n, word(content)})
	default:
		x.open = was
		return x.near(column, list), false
	}
	if list {
		inner := strings.TrimLeft(content[1:], " ")
		if strings.Contains(inner, ": ") || strings.HasSuffix(inner, ":") {
			x.open = append(x.open, level{column + len(content) - len(inner), false, n, word(inner)})
		}
		content = inner
	}
	x.opener = content == "" || strings.HasSuffix(content, ":")
	x.last = level{column, list, n, word(content)}
	return nil, true
}

func (x *indentation) top() level { return x.open[len(x.open)-1] }

// near returns the open levels of the same kind, list or mapping, that are at most farthest columns away. The nearest
// level comes first. Of two equally near levels, the inner one comes first. If the last line opens a level, this
// level comes before all others.
func (x *indentation) near(column int, list bool) (levels []level) {
	distance := func(l level) int { return max(l.column-column, column-l.column) }
	for _, l := range slices.Backward(x.open) {
		if l.list == list && distance(l) <= farthest {
			levels = append(levels, l)
		}
	}
	slices.SortStableFunc(levels, func(a, b level) int { return distance(a) - distance(b) })
	if x.opener {
		below := x.last
		below.column += 2
		levels = slices.Insert(levels, 0, below)
	}
	return levels
}
