package testkit

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Case is one case of a script, which is a text file with steps and the expected result of each step.
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
		open := false // whether further lines belong to the last step
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
				t.Fatalf("%s:%d: %q does not belong to a step", file, s.Line+i, line)
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

// Options cuts the first line off the setup if it begins with a name and a colon, and returns the words after the
// colon.
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

// Steps returns the steps that Play sends.
func (c *Case) Steps() (all []string) {
	for _, s := range c.steps {
		all = append(all, repeated(strings.Join(s.send, "\n")))
	}
	return all
}

// Play calls the function do with each step, and compares the result with the expected one. Empty lines at the end
// of the result do not count.
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

// repeated returns the text with its repetitions written out.
func repeated(text string) string {
	return repetition.ReplaceAllStringFunc(text, func(found string) string {
		part := repetition.FindStringSubmatch(found)
		n, _ := strconv.Atoi(part[1])
		return strings.Repeat(part[2], n)
	})
}

// Numbered finds texts in answers, and gives them names that later steps can use, such as PLACE1 and PLACE2.
type Numbered struct {
	Name    string
	Pattern *regexp.Regexp // its first group is the text
	found   []string       // pairs of a name and a text
}

// In returns a step with the found texts in place of their names.
func (n *Numbered) In(step string) string { return strings.NewReplacer(n.found...).Replace(step) }

// Note finds texts in an answer, and names them.
func (n *Numbered) Note(answer string) {
	for _, found := range n.Pattern.FindAllStringSubmatch(answer, -1) {
		n.found = append(n.found, n.Name+strconv.Itoa(len(n.found)/2+1), found[1])
	}
}

// Places finds the numbers of permits in JSON answers.
func Places() *Numbered {
	return &Numbered{Name: "PLACE", Pattern: regexp.MustCompile(`"place":"([^"]*)"`)}
}

// Authorize returns a function that accepts only the right token. For the token "many" it returns an error after
// too many wrong tokens, with a wait of 5 seconds.
func Authorize(right string) func(from, token string) error {
	return func(_, token string) error {
		switch token {
		case right:
			return nil
		case "many":
			return tooMany{}
		}
		return errors.New("wrong token")
	}
}

type tooMany struct{}

func (tooMany) Error() string     { return "too many: try again in 5 seconds" }
func (tooMany) RetrySeconds() int { return 5 }
