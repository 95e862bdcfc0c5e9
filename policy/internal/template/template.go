// Package template compiles the templates with which operators write the bodies of responses. They are templates of
// text/template or html/template, with bounded costs. Values are escaped as the media type requires.
package template

import (
	"encoding/json"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	nodes "text/template/parse"

	"github.com/sluicehq/sluice/internal/spelling"
)

// MaxSize is the largest size of the text of a template, and of its output, in bytes.
const MaxSize = 64 << 10

// kind is the way in which values are escaped, so that they cannot change the structure of a body.
type kind uint8

const (
	plainText kind = iota // values are printable ASCII
	jsonText
	xmlText
	htmlText
)

// kindOf returns the kind of a media type. For an unknown type, values are escaped as in JSON strings, which most
// languages can read.
func kindOf(media string) kind {
	switch {
	case media == "text/html":
		return htmlText
	case strings.HasSuffix(media, "+xml"), strings.HasSuffix(media, "/xml"):
		return xmlText
	case media == "text/plain":
		return plainText
	}
	return jsonText
}

// Template is a compiled body.
type Template struct {
	Media       string
	ContentType string // Media, with charset=utf-8 for text types
	kind        kind
	exec        interface{ Execute(io.Writer, any) error }
	fixed       string // the body, if the template has no values
}

// Page reports whether the template is HTML.
func (t *Template) Page() bool { return t.kind == htmlText }

// Append appends the body with its values filled in. If there is an error, it returns dst unchanged.
func (t *Template) Append(dst []byte, values any) ([]byte, error) {
	if t.fixed != "" {
		return append(dst, t.fixed...), nil
	}
	out := &boundedText{dst, len(dst) + MaxSize, maxSteps}
	if err := t.exec.Execute(out, values); err != nil {
		return dst, err
	}
	return out.text, nil
}

// boundedText is the output of a template, bounded in size and steps.
type boundedText struct {
	text  []byte
	most  int
	steps int // remaining steps
}

// maxSteps is the maximum number of writes of a template: see [addStep].
const maxSteps = 4 * MaxSize

var (
	errTooLong = fmt.Errorf("the output has more than %d bytes", MaxSize)
	errTooSlow = fmt.Errorf("it takes more than %d steps", maxSteps)

	errCircular = errors.New("a template includes itself")
	errLongText = fmt.Errorf("a function returns more than %d bytes", maxShort)
)

func (b *boundedText) Write(p []byte) (int, error) {
	if b.steps == 0 {
		return 0, errTooSlow
	}
	if len(p) > b.most-len(b.text) {
		return 0, errTooLong
	}
	b.steps--
	b.text = append(b.text, p...)
	return len(p), nil
}

// Error is an error in a template.
type Error struct {
	Line    int // the line of the text, counted from 1; 0 means the whole text
	Message string
	Hint    string // how to correct the error
}

// templateName is the name of a template in the errors of the template packages.
const templateName = "line"

// New compiles a template for a media type. The samples are pointers to values of one type; the template can use the
// fields of this type, and must work for each sample.
func New(media, text string, samples ...any) (*Template, *Error) {
	t := &Template{Media: media, ContentType: media, kind: kindOf(media)}
	if strings.HasPrefix(media, "text/") || t.kind == xmlText {
		t.ContentType += "; charset=utf-8"
	}
	var err error
	if t.kind == htmlText {
		t.exec, err = parseHTML(text)
	} else {
		t.exec, err = parseText(text, t.kind)
	}
	if err != nil {
		return nil, explain(err, samples[0])
	}
	for _, v := range samples {
		made, err := t.Append(nil, v)
		if err != nil {
			return nil, explain(err, samples[0])
		}
		var value any
		if err := json.Unmarshal(made, &value); err != nil && isJSON(media) {
			hint := `write text values in quotes, as in "rule": "{{.Rule}}", and other values with json, as in "rules": {{json .ViolatedPolicies}}`
			return nil, &Error{Message: fmt.Sprintf("the output of the body is not JSON: %v", err), Hint: hint}
		}
		if !strings.Contains(text, "{{") {
			t.fixed = string(made)
			break
		}
	}
	return t, nil
}

func isJSON(media string) bool {
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

var (
	inTemplate = regexp.MustCompile(`(?s)^(?:template: |html/template: ?)` + templateName + `:(?:(\d+):(?:\d+:)?)? ?(.*)$`)
	executing  = regexp.MustCompile(`executing "[^"]*" at `)
	noValue    = regexp.MustCompile(`can't evaluate field (\w+) in type \*?([\w.]+)`)
	noFunction = regexp.MustCompile(`function "(\w+)" not defined`)
)

// explain converts an error of the template packages to an Error that operators understand.
func explain(err error, sample any) *Error {
	values := reflect.TypeOf(sample).Elem()
	out := &Error{Hint: "templates have the syntax of Go's text/template"}
	message := err.Error()
	if m := inTemplate.FindStringSubmatch(message); m != nil {
		message = executing.ReplaceAllString(m[2], "")
		out.Line, _ = strconv.Atoi(m[1])
	}
	if m := noValue.FindStringSubmatch(message); m != nil && m[2] == values.String() {
		message, out.Hint = "unknown value ."+m[1], spelling.Suggest("."+m[1], namesOf(values))
	} else if m := noFunction.FindStringSubmatch(message); m != nil {
		message, out.Hint = fmt.Sprintf("unknown function %q", m[1]), "values start with a dot, as in {{.RetryAfter}}"
	} else if message == "unexpected EOF" {
		message, out.Hint = "an if, a range, a with or a block is not closed", "close each with {{end}}"
	} else if before, _, found := strings.Cut(message, " end in different contexts"); found {
		message, out.Hint = before+" end in different contexts of the HTML", "end each branch outside of tags and quotes, or in the same context"
	} else if errors.Is(err, errTooLong) {
		message, out.Hint = errTooLong.Error(), "shorten the template: denials have to be cheap"
	} else if errors.Is(err, errTooSlow) {
		message, out.Hint = errTooSlow.Error(), "repeat less in the template: denials have to be cheap"
	} else if errors.Is(err, errCircular) {
		out.Hint = "use {{range}}: denials have to be cheap"
	}
	out.Message = fmt.Sprintf("the template fails: %.300s", message)
	return out
}

// namesOf returns the names of the fields of a type, with a dot as in templates.
func namesOf(values reflect.Type) (names []string) {
	for f := range values.Fields() {
		names = append(names, "."+f.Name)
	}
	return names
}

// parseHTML returns a template that escapes each value for its context in the page.
func parseHTML(text string) (*htmltemplate.Template, error) {
	t, err := htmltemplate.New(templateName).Funcs(shortTexts).Parse(text)
	if err != nil {
		return nil, err
	}
	trees := map[string]*nodes.Tree{}
	for _, one := range t.Templates() {
		if one.Tree != nil {
			trees[one.Name()] = one.Tree
			eachList(one.Tree.Root, addStep)
		}
	}
	return t, circular(trees)
}

// parseText returns a template that escapes its values for its kind.
func parseText(text string, of kind) (*template.Template, error) {
	t, err := template.New(templateName).Funcs(shortTexts).Funcs(template.FuncMap{"json": jsonValue, "_json": escapedJSON}).Parse(text)
	if err != nil {
		return nil, err
	}
	escaper := map[kind]string{jsonText: "_json", xmlText: "html"}[of]
	trees := map[string]*nodes.Tree{}
	for _, one := range t.Templates() {
		if one.Tree == nil {
			continue
		}
		trees[one.Name()] = one.Tree
		eachList(one.Root, addStep)
		if escaper != "" {
			eachList(one.Root, func(list *nodes.ListNode) { escapeAll(list, escaper) })
		}
	}
	return t, circular(trees)
}

// circular returns an error if a template includes itself. The template packages permit 100,000 nested inclusions,
// with a kilobyte of stack each, which costs much more than the steps that are counted.
func circular(trees map[string]*nodes.Tree) error {
	const under, done = 1, 2
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) (err error) {
		tree := trees[name]
		switch {
		case state[name] == under:
			return fmt.Errorf("%w: %.60q", errCircular, name)
		case state[name] == done || tree == nil:
			return nil
		}
		state[name] = under
		eachList(tree.Root, func(list *nodes.ListNode) {
			for _, n := range list.Nodes {
				if n, ok := n.(*nodes.TemplateNode); ok && err == nil {
					err = visit(n.Name)
				}
			}
		})
		state[name] = done
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}

// maxShort is the length of the longest result of a function, in bytes. Without this bound, functions could make
// long texts from each other's results without writing them.
const maxShort = 4 << 10

// shortTexts replaces the functions of the template packages that return a text. The replacements bound its length.
var shortTexts = template.FuncMap{
	"html":     short(template.HTMLEscaper),
	"js":       short(template.JSEscaper),
	"print":    short(fmt.Sprint),
	"println":  short(fmt.Sprintln),
	"urlquery": short(template.URLQueryEscaper),
	"printf": func(format string, values ...any) (string, error) {
		if widePrintf.MatchString(format) {
			return "", fmt.Errorf("the format %.60q has a width of more than three digits, an index, or \"*\"", format)
		}
		return short(func(values ...any) string { return fmt.Sprintf(format, values...) })(values...)
	},
}

var widePrintf = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|[*\[])`)

func short(f func(...any) string) func(...any) (string, error) {
	return func(values ...any) (string, error) {
		size := 0
		for _, v := range values {
			if text := reflect.ValueOf(v); text.Kind() == reflect.String {
				size += text.Len()
			}
		}
		if size <= maxShort {
			if text := f(values...); len(text) <= maxShort {
				return text, nil
			}
		}
		return "", errLongText
	}
}

// eachList calls the function do with a list of a template and with all lists inside it.
func eachList(list *nodes.ListNode, do func(*nodes.ListNode)) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *nodes.IfNode:
			eachList(n.List, do)
			eachList(n.ElseList, do)
		case *nodes.RangeNode:
			eachList(n.List, do)
			eachList(n.ElseList, do)
		case *nodes.WithNode:
			eachList(n.List, do)
			eachList(n.ElseList, do)
		}
	}
	do(list)
}

// stepBytes is the number of bytes of the source of pipelines that count as a step.
const stepBytes = 64

// addStep makes a list start with an empty write, or with several if its pipelines are long. Everything that a
// template can repeat is a list, so boundedText can count these writes, and end the template when there are too
// many.
func addStep(list *nodes.ListNode) {
	size := 0
	for _, n := range list.Nodes {
		if pipe := pipeOf(n); pipe != nil {
			size += len(pipe.String())
		}
	}
	step := nodes.Node(&nodes.TextNode{NodeType: nodes.NodeText, Pos: list.Pos})
	list.Nodes = slices.Insert(list.Nodes, 0, slices.Repeat([]nodes.Node{step}, 1+size/stepBytes)...)
}

// pipeOf returns the pipeline of a node, or nil.
func pipeOf(n nodes.Node) *nodes.PipeNode {
	switch n := n.(type) {
	case *nodes.ActionNode:
		return n.Pipe
	case *nodes.IfNode:
		return n.Pipe
	case *nodes.RangeNode:
		return n.Pipe
	case *nodes.WithNode:
		return n.Pipe
	case *nodes.TemplateNode:
		return n.Pipe
	}
	return nil
}

// escapeAll passes all output of the list, except that of lists inside it, through the function escaper, as
// html/template does.
func escapeAll(list *nodes.ListNode, escaper string) {
	for _, n := range list.Nodes {
		if n, ok := n.(*nodes.ActionNode); ok && len(n.Pipe.Decl) == 0 { // an action with a declaration has no output
			name := nodes.NewIdentifier(escaper).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &nodes.CommandNode{NodeType: nodes.NodeCommand, Pos: n.Pos, Args: []nodes.Node{name}})
		}
	}
}

// written is JSON that must not be escaped again.
type written string

// jsonValue returns v as a value of JSON.
func jsonValue(v any) (written, error) {
	text, err := json.Marshal(v)
	return written(text), err
}

// escapedJSON returns v as the inside of a JSON string.
func escapedJSON(v any) (string, error) {
	if done, ok := v.(written); ok {
		return string(done), nil
	}
	text, err := json.Marshal(fmt.Sprint(v))
	if err != nil {
		return "", err
	}
	return string(text[1 : len(text)-1]), nil
}
