package testkit

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Case is one case of a script: a text file of steps and what each of them returns.
//
//	== the name of a case
//	lines for the test's setup, such as a policy
//
//	> a step
//	what it returns, where ... stands for any text
//
//	# a comment
//	> a step
//	> of two lines, and <<1000*x>> is a thousand times x
//	what it returns
type Case struct {
	Name, Setup string
	file        string
	steps       []step
}

type step struct {
	line       int
	send, want []string
}

// Script reads the cases of a file.
func Script(t testing.TB, file string) (all []Case) {
	t.Helper()
	_, sections := Split(read(t, file))
	for _, s := range sections {
		c := Case{Name: s.Name, file: file}
		open := false // the last step may get more lines
		for i, line := range strings.Split(strings.TrimSuffix(s.Text, "\n"), "\n") {
			sent, isStep := strings.CutPrefix(line, "> ")
			switch {
			case isStep && (!open || c.last().want != nil):
				c.steps, open = append(c.steps, step{line: s.Line + i, send: []string{sent}}), true
			case isStep:
				c.last().send = append(c.last().send, sent)
			case len(c.steps) == 0:
				c.Setup += line + "\n"
			case line == "":
				open = false
			case line[0] == '#':
			case !open:
				t.Fatalf("%s:%d: no step returns %q", file, s.Line+i, line)
			default:
				c.last().want = append(c.last().want, line)
			}
		}
		if len(c.steps) == 0 {
			t.Fatalf("%s: case %q has no steps", file, c.Name)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return all
}

// Options cuts the first line off the setup if it begins with a name and a colon, and returns the words behind that.
func (c *Case) Options(name string) []string {
	line, rest, _ := strings.Cut(c.Setup, "\n")
	words, found := strings.CutPrefix(line, name+":")
	if !found {
		return nil
	}
	c.Setup = rest
	return strings.Fields(words)
}

func (c *Case) last() *step { return &c.steps[len(c.steps)-1] }

// Steps returns what Play sends.
func (c *Case) Steps() (all []string) {
	for _, s := range c.steps {
		all = append(all, repeated(strings.Join(s.send, "\n")))
	}
	return all
}

// Play sends each step to do, and compares what it returns. Empty lines at the end of that do not count.
func (c *Case) Play(t testing.TB, do func(step string) string) {
	t.Helper()
	for _, s := range c.steps {
		sent, want := repeated(strings.Join(s.send, "\n")), strings.Join(s.want, "\n")
		if got := strings.TrimRight(do(sent), "\n"); !fits(want, got) {
			t.Errorf("%s:%d: %.300s\ngot\n%s\nwant\n%s", c.file, s.line, sent, got, want)
		}
	}
}

// fits reports whether text is pattern, in which each "..." stands for any text.
func fits(pattern, text string) bool {
	parts := strings.Split(pattern, "...")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == text
	}
	rest, found := strings.CutPrefix(text, first)
	if !found {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		if _, rest, found = strings.Cut(rest, part); !found {
			return false
		}
	}
	return strings.HasSuffix(rest, last)
}

var repetition = regexp.MustCompile(`<<(\d+)\*(.*?)>>`)

// repeated writes out repetitions.
func repeated(text string) string {
	return repetition.ReplaceAllStringFunc(text, func(found string) string {
		part := repetition.FindStringSubmatch(found)
		n, _ := strconv.Atoi(part[1])
		return strings.Repeat(part[2], n)
	})
}

// Numbered finds texts in answers. In later steps these have names and numbers: PLACE1, PLACE2 and so on.
type Numbered struct {
	Name    string
	Pattern *regexp.Regexp // with the text in parentheses
	found   []string       // names and texts
}

// In returns a step with texts in place of their names.
func (n *Numbered) In(step string) string { return strings.NewReplacer(n.found...).Replace(step) }

// Note finds the texts of an answer.
func (n *Numbered) Note(answer string) {
	for _, found := range n.Pattern.FindAllStringSubmatch(answer, -1) {
		n.found = append(n.found, n.Name+strconv.Itoa(len(n.found)/2+1), found[1])
	}
}

// Places are the numbers of places in answers as JSON.
func Places() *Numbered {
	return &Numbered{Name: "PLACE", Pattern: regexp.MustCompile(`"place":"([^"]*)"`)}
}

// Authorize accepts one token. It refuses "many" as one of which there were too many, to be tried again in 5 seconds.
func Authorize(right string) func(from, token string) error {
	return func(_, token string) error {
		switch token {
		case right:
			return nil
		case "many":
			return tooMany{}
		}
		return errors.New("another token")
	}
}

type tooMany struct{}

func (tooMany) Error() string     { return "too many: try again in 5 seconds" }
func (tooMany) RetrySeconds() int { return 5 }
