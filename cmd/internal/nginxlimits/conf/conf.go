// Package conf reads configuration files of nginx and the files that they include. It parses the syntax, and does
// not interpret directives. Package nginxlimits imports it.
package conf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Directive is a directive, or an entry of a block such as map.
type Directive struct {
	Name  string
	Args  []string
	Block []*Directive // nil without a block
	File  string
	Line  int
}

// Where returns the file and the line.
func (d *Directive) Where() string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// Errorf returns an error that starts with the file and the line.
func (d *Directive) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", d.Where(), fmt.Errorf(format, args...))
}

// Missing is an included file that does not exist.
type Missing struct {
	Name string
	By   *Directive
}

// Bounds, which are much larger than configurations need.
const (
	maxDepth = 32
	maxFiles = 2000
	maxBytes = 32 << 20 // of all files
)

// Files is a configuration in several files.
type Files struct {
	Directives []*Directive
	Missing    []Missing

	base  string            // the directory to which names of included files are relative
	dump  map[string]string // the files in the output of "nginx -T", by name
	files int
	bytes int
}

// Add reads a file and appends its directives to Directives. As in nginx.conf, the names of included files are
// relative to the directory of the file.
func (f *Files) Add(name string) error {
	f.base = filepath.Dir(name)
	text, err := f.read(name, false)
	if err != nil {
		return err
	}
	return f.parse(name, text, &f.Directives, 0)
}

// dumped matches the line before each file in the output of "nginx -T".
var dumped = regexp.MustCompile(`(?m)^# configuration file (.+):$`)

// AddText is like Add, but reads a text. If the text is the output of "nginx -T", included files are read from this
// output. Otherwise, their names are relative to the working directory.
func (f *Files) AddText(name, text string) error {
	f.base = "."
	starts := dumped.FindAllStringSubmatchIndex(text, -1)
	if len(starts) == 0 {
		return f.parse(name, text, &f.Directives, 0)
	}
	f.dump = map[string]string{}
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		f.dump[text[at[2]:at[3]]] = strings.TrimPrefix(text[at[1]:end], "\n")
	}
	return f.Add(text[starts[0][2]:starts[0][3]])
}

// read returns the text of a file. If the file is too large, it returns one byte more than allowed. An included
// file must be a regular file, because reading a device or a pipe may block or never end.
func (f *Files) read(name string, included bool) (string, error) {
	if text, known := f.dump[name]; known {
		return text, nil
	}
	if info, err := os.Stat(name); err == nil && included && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return Read(file)
}

// Read reads to the end, but at most one byte more than [Files.AddText] accepts.
func Read(file io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	return string(text), err
}

// glob returns the names of the files that match a pattern with wildcards.
func (f *Files) glob(pattern string) (names []string, err error) {
	if f.dump == nil {
		return filepath.Glob(pattern)
	}
	for name := range f.dump {
		matches, err := filepath.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if matches {
			names = append(names, name)
		}
	}
	return names, nil
}

func (f *Files) parse(name, text string, into *[]*Directive, depth int) error {
	f.files++
	f.bytes += len(text)
	if f.files > maxFiles || f.bytes > maxBytes {
		return fmt.Errorf("%s: the configuration has more than %d files, or more than %d MiB", name, maxFiles, maxBytes>>20)
	}
	p := &parser{lexer: lexer{text: text, file: name, line: 1}, files: f, depth: depth}
	return p.block(into, nil)
}

// include reads the files that a directive names. The name may contain wildcards.
func (f *Files) include(d *Directive, into *[]*Directive, depth int) error {
	if len(d.Args) != 1 {
		return d.Errorf("include must have one name")
	}
	if depth == maxDepth {
		return d.Errorf("includes are nested more than %d levels deep", maxDepth)
	}
	pattern := d.Args[0]
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(f.base, pattern)
	}
	names := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		var err error
		if names, err = f.glob(pattern); err != nil {
			return d.Errorf("include %s: %w", d.Args[0], err)
		}
		slices.Sort(names)
	}
	for _, name := range names {
		text, err := f.read(name, true)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Missing = append(f.Missing, Missing{d.Args[0], d})
			continue
		case err != nil:
			return d.Errorf("include: %w", err)
		}
		if err := f.parse(name, text, into, depth+1); err != nil {
			return err
		}
	}
	return nil
}

type parser struct {
	lexer
	files *Files
	depth int
	open  int // number of open blocks
}

// maxNested is the maximum depth of blocks.
const maxNested = 100

// block reads directives up to the end of a directive's block, or of the file.
func (p *parser) block(into *[]*Directive, of *Directive) error {
	for {
		first, err := p.next()
		switch {
		case err != nil:
			return err
		case first.kind == endOfFile && of != nil:
			return of.Errorf("the block of %s is not closed", of.Name)
		case first.kind == endOfFile, first.kind == closes && of != nil:
			return nil
		case first.kind != word:
			return p.unexpected(first)
		}
		if err := p.directive(first, into); err != nil {
			return err
		}
	}
}

// directive reads a directive that starts with a word.
func (p *parser) directive(first token, into *[]*Directive) error {
	d := &Directive{Name: first.text, File: p.file, Line: first.line}
	for {
		t, err := p.next()
		switch {
		case err != nil:
			return err
		case t.kind == word:
			d.Args = append(d.Args, t.text)
			continue
		case t.kind == ends && d.Name == "include" && !first.quoted:
			return p.files.include(d, into, p.depth)
		case t.kind == ends:
			*into = append(*into, d)
			return nil
		case t.kind != opens:
			return p.unexpected(t)
		}
		*into = append(*into, d)
		d.Block = []*Directive{}
		if strings.HasSuffix(d.Name, "_by_lua_block") {
			return p.skipLua(d)
		}
		if p.open++; p.open > maxNested {
			return d.Errorf("blocks are nested more than %d levels deep", maxNested)
		}
		defer func() { p.open-- }()
		return p.block(&d.Block, d)
	}
}

func (p *parser) unexpected(t token) error {
	what := map[kind]string{endOfFile: "the end of the file", opens: `"{"`, closes: `"}"`, ends: `";"`}[t.kind]
	return fmt.Errorf("%s:%d: unexpected %s", p.file, t.line, what)
}
