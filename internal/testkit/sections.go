package testkit

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Section is a part of a text file of test data: a line "== NAME" and the lines below it.
type Section struct {
	Name string
	Text string
	Line int // the number of the line at which Text begins in the file, from 1
}

// Row is a line "INPUT -> WANT" of a section. INPUT and WANT are written without quotes, or in quotes as in Go.
// Block has the indented lines below the row, without their first two spaces.
type Row struct {
	In, Want string
	Block    []string
	Line     int
}

// Sections reads a file of test data. Lines that begin with "#" are comments.
func Sections(t testing.TB, file string) []Section {
	t.Helper()
	head, all := Split(read(t, file))
	if head = comment.ReplaceAllString(head, ""); strings.TrimSpace(head) != "" {
		t.Fatalf("%s: text before the first section: %s", file, head)
	}
	for i := range all {
		all[i].Text = comment.ReplaceAllString(all[i].Text, "") // the lines stay, empty, so that line numbers do not change
	}
	return all
}

var comment = regexp.MustCompile(`(?m)^#.*$`)

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Split returns the sections of a text, and the text before the first section.
func Split(text string) (head string, all []Section) {
	line := 0
	for text := range strings.Lines(text) {
		line++
		if name, found := strings.CutPrefix(text, "== "); found {
			all = append(all, Section{Name: strings.TrimSpace(name), Line: line + 1})
		} else if len(all) > 0 {
			all[len(all)-1].Text += text
		} else {
			head += text
		}
	}
	return head, all
}

// SectionOf returns the section of a file with the given name.
func SectionOf(t testing.TB, file, name string) Section {
	t.Helper()
	for _, s := range Sections(t, file) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("%s: no section %q", file, name)
	return Section{}
}

// Rows returns the rows of a section.
func (s Section) Rows(t testing.TB) (all []Row) {
	t.Helper()
	empty := 0 // the number of empty lines since the last line of a block
	for i, line := range strings.Split(s.Text, "\n") {
		if text, indented := strings.CutPrefix(line, "  "); indented && len(all) > 0 {
			last := &all[len(all)-1]
			last.Block = append(last.Block, make([]string, empty)...)
			last.Block, empty = append(last.Block, text), 0
			continue
		}
		if line = strings.TrimSpace(line); line == "" {
			empty++
			continue
		}
		empty = 0
		in, want, found := strings.Cut(line, " -> ")
		if !found {
			in, found = strings.CutSuffix(line, " ->")
		}
		if !found {
			t.Fatalf("%s, line %d: a row has no %q: %s", s.Name, s.Line+i, " -> ", line)
		}
		all = append(all, Row{In: Unquoted(in), Want: Unquoted(want), Line: s.Line + i})
	}
	return all
}

// Unquoted returns a text without the quotes that may enclose it as a whole.
func Unquoted(text string) string {
	text = strings.TrimSpace(text)
	if s, err := strconv.Unquote(text); err == nil && text[0] != '\'' {
		return s
	}
	return text
}

// Words splits a line. A word may have parts in double quotes or backquotes, as in Go. "#" begins a comment.
func Words(line string) (all []string) {
	for rest := strings.TrimSpace(line); rest != "" && !strings.HasPrefix(rest, "# "); rest = strings.TrimSpace(rest) {
		word := ""
		for rest != "" && rest[0] != ' ' {
			if quoted, err := strconv.QuotedPrefix(rest); err == nil && rest[0] != '\'' {
				text, _ := strconv.Unquote(quoted)
				word, rest = word+text, rest[len(quoted):]
			} else {
				word, rest = word+rest[:1], rest[1:]
			}
		}
		all = append(all, word)
	}
	return all
}
