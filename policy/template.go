package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	nodes "text/template/parse"
	"time"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/spelling"
)

// bodyKind says what a value has to be made of for a body to stay what it is.
type bodyKind uint8

const (
	plainBody bodyKind = iota // values are printable ASCII
	jsonBody
	xmlBody
	htmlBody
)

const htmlType = "text/html"

// kindOf returns the kind of a media type. Of an unknown one values are as in strings of JSON,
// which most languages read as their own.
func kindOf(media string) bodyKind {
	switch {
	case media == htmlType:
		return htmlBody
	case strings.HasSuffix(media, "+xml"), strings.HasSuffix(media, "/xml"):
		return xmlBody
	case media == "text/plain":
		return plainBody
	}
	return jsonBody
}

// madeBody is a compiled [Body].
type madeBody struct {
	media       string
	contentType string
	kind        bodyKind
	template    interface{ Execute(io.Writer, any) error }
	fixed       string // what it makes, if it has no values
}

func (b *madeBody) append(dst []byte, v *AnswerValues) ([]byte, error) {
	if b.fixed != "" {
		return append(dst, b.fixed...), nil
	}
	out := &boundedText{dst, len(dst) + maxAnswer, maxSteps}
	if err := b.template.Execute(out, v); err != nil {
		return dst, err
	}
	return out.text, nil
}

// boundedText is what a template writes.
type boundedText struct {
	text  []byte
	most  int
	steps int // that are left
}

// maxSteps is how often a template may write: see [addStep].
const maxSteps = 4 * maxAnswer

var (
	errTooLong = fmt.Errorf("what it makes has more than %d bytes", maxAnswer)
	errTooSlow = fmt.Errorf("to make it takes more than %d steps", maxSteps)

	errCircular = errors.New("a template includes itself")
	errLongText = fmt.Errorf("a function makes a text of more than %d bytes", maxShort)
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

// bodyCompiler compiles a body of the answer with a status.
type bodyCompiler struct {
	*compiler
	field   string
	refusal int // the status
	status  int // that is sent
	*Body
}

var mediaType = regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}$`)

// compile returns nil for a body that it has complained about.
func (b bodyCompiler) compile() *madeBody {
	switch {
	case b.Type == "":
		b.fail(b.field, `write for example "type: text/html"`, "the body has no type")
		return nil
	case !mediaType.MatchString(b.Type):
		b.fail(b.field+".type", typeHint(b.Type), "%s is not a media type", spelling.Quote(b.Type))
		return nil
	case b.Text == "" && b.File != "":
		b.fail(b.field+".file", "load the policy with package policyfile, or set Text", "the body is in the file %s, which nobody has read", spelling.Quote(b.File))
		return nil
	case b.Text == "":
		b.fail(b.field, `write "body: …", or "file: …" with the name of a file beside the policy`, "there is no body of type %s", b.Type)
		return nil
	case len(b.Text) > maxAnswer:
		b.fail(b.at(), "refusals have to be cheap: have it load the rest from elsewhere", "the body has %d bytes, and %d are the most", len(b.Text), maxAnswer)
		return nil
	case !utf8.ValidString(b.Text):
		b.fail(b.at(), "write it in UTF-8", "the body is not UTF-8")
		return nil
	}
	out := &madeBody{media: b.Type, contentType: b.Type, kind: kindOf(b.Type)}
	if strings.HasPrefix(b.Type, "text/") || out.kind == xmlBody {
		out.contentType += "; charset=utf-8"
	}
	if !b.parse(out) || !b.try(out) {
		return nil
	}
	return out
}

// typeHint says what to write in place of a type.
func typeHint(s string) string {
	short := map[string]string{"html": "text/html", "json": "application/json", "xml": "application/xml", "text": "text/plain", "plain": "text/plain"}
	before, _, parameters := strings.Cut(s, ";")
	full := strings.ToLower(strings.TrimSpace(before))
	if short[full] != "" {
		full = short[full]
	}
	switch {
	case !mediaType.MatchString(full):
		return "write it as in text/html or application/json"
	case parameters:
		return fmt.Sprintf("write %q, without parameters: text is sent as UTF-8", full)
	}
	return fmt.Sprintf("write %q", full)
}

// at is where the text is written.
func (b bodyCompiler) at() string {
	if b.File != "" {
		return b.field + ".file"
	}
	return b.field + ".body"
}

// templateName is what the packages call a template in their errors.
const templateName = "line"

func (b bodyCompiler) parse(out *madeBody) bool {
	var err error
	if out.kind == htmlBody {
		out.template, err = parseHTML(b.Text)
	} else {
		out.template, err = parseText(b.Text, out.kind)
	}
	if err != nil {
		b.refuse(err)
	}
	return err == nil
}

// try makes the body of samples, and keeps it if it is always the same.
func (b bodyCompiler) try(out *madeBody) bool {
	for _, v := range samples(b.refusal, b.status) {
		text, err := out.append(nil, &v)
		if err != nil {
			b.refuse(err)
			return false
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil && isJSON(out.media) {
			b.fail(b.at(), `write values of text as in "rule": "{{.Rule}}", and others as in "rules": {{json .ViolatedPolicies}}`, "what the body makes is not JSON: %v", err)
			return false
		}
		if !strings.Contains(b.Text, "{{") {
			out.fixed = string(text)
			return true
		}
	}
	return true
}

func isJSON(media string) bool {
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// samples are what a refusal may have, and what it has at least.
func samples(refusal, status int) []AnswerValues {
	least := AnswerValues{Type: "about:blank", Title: "Title", Status: status, Detail: "A sentence.", Error: "error"}
	if refusal == http.StatusTooManyRequests {
		least.ViolatedPolicies = []string{"rule"}
	}
	most := least
	most.RetryAfter, most.Rule, most.Limit, most.Remaining, most.Wait = 90, "rule", 100, 1, 90*time.Second
	most.Reset, most.ViolatedPolicies = time.Unix(1_795_219_270, 0).UTC(), []string{"rule", "rule-1h"}
	return []AnswerValues{most, least}
}

var (
	templateError = regexp.MustCompile(`(?s)^(?:template: |html/template: ?)` + templateName + `:(?:(\d+):(?:\d+:)?)? ?(.*)$`)
	executing     = regexp.MustCompile(`executing "[^"]*" at `)
	noValue       = regexp.MustCompile(`can't evaluate field (\w+) in type \*?policy\.AnswerValues`)
	noFunction    = regexp.MustCompile(`function "(\w+)" not defined`)
)

// refuse reports what is wrong with the text, in its line.
func (b bodyCompiler) refuse(err error) {
	field, message, hint := b.at(), err.Error(), "the syntax is that of Go's text/template"
	if m := templateError.FindStringSubmatch(message); m != nil {
		message = executing.ReplaceAllString(m[2], "")
		if line, err := strconv.Atoi(m[1]); err == nil {
			field = fmt.Sprintf("%s[%d]", field, line-1)
		}
	}
	if m := noValue.FindStringSubmatch(message); m != nil {
		message, hint = "there is no value ."+m[1], spelling.Suggest("."+m[1], valueNames)
	} else if m := noFunction.FindStringSubmatch(message); m != nil {
		message, hint = fmt.Sprintf("there is no function %q", m[1]), "values have a point before their names, as in {{.RetryAfter}}"
	} else if message == "unexpected EOF" {
		message, hint = "it ends within an if, a range, a with or a block", "close each of them with {{end}}"
	} else if before, _, found := strings.Cut(message, " end in different contexts"); found {
		message, hint = before+" end in different places of the HTML", "have each of them end outside of tags and quotes, or where the others do"
	} else if errors.Is(err, errTooLong) {
		message, hint = errTooLong.Error(), "make it shorter: refusals have to be cheap"
	} else if errors.Is(err, errTooSlow) {
		message, hint = errTooSlow.Error(), "have it repeat less: refusals have to be cheap"
	} else if errors.Is(err, errCircular) {
		hint = "use {{range}}: refusals have to be cheap"
	}
	b.fail(field, hint, "the body cannot be made: %.300s", message)
}

var valueNames = func() (names []string) {
	for f := range reflect.TypeFor[AnswerValues]().Fields() {
		names = append(names, "."+f.Name)
	}
	return names
}()

// parseHTML makes a template that escapes its values as the place in the page asks for.
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

// parseText makes a template whose values cannot be more than the text of its kind.
func parseText(text string, kind bodyKind) (*template.Template, error) {
	t, err := template.New(templateName).Funcs(shortTexts).Funcs(template.FuncMap{"json": jsonValue, "_json": jsonText}).Parse(text)
	if err != nil {
		return nil, err
	}
	escaper := map[bodyKind]string{jsonBody: "_json", xmlBody: "html"}[kind]
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

// circular returns an error if a template includes itself: the packages let it do so 100,000 times,
// with a kilobyte of stack each time, which costs more than the steps that are counted.
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

// maxShort is how long the text may be that a function makes: longer ones could be made of each other
// without being written.
const maxShort = 4 << 10

// shortTexts are the functions of the packages that make text of text.
var shortTexts = template.FuncMap{
	"html":     short(template.HTMLEscaper),
	"js":       short(template.JSEscaper),
	"print":    short(fmt.Sprint),
	"println":  short(fmt.Sprintln),
	"urlquery": short(template.URLQueryEscaper),
	"printf": func(format string, values ...any) (string, error) {
		if widePrintf.MatchString(format) {
			return "", fmt.Errorf("the format %.60q has a width of more than three digits, or one by index or \"*\"", format)
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

// eachList calls do with a list of a template and with those in it.
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

// stepBytes is how much of the source of its pipelines a list evaluates in a step.
const stepBytes = 64

// addStep has a list write something first, though it be nothing, and more often if its pipelines are
// long: all that a template repeats is a list, and so boundedText can end it.
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

// escapeAll sends all that a list itself writes through a function, as html/template does.
func escapeAll(list *nodes.ListNode, escaper string) {
	for _, n := range list.Nodes {
		if n, ok := n.(*nodes.ActionNode); ok && len(n.Pipe.Decl) == 0 { // else it writes nothing
			name := nodes.NewIdentifier(escaper).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &nodes.CommandNode{NodeType: nodes.NodeCommand, Pos: n.Pos, Args: []nodes.Node{name}})
		}
	}
}

// written is JSON, and no more to be escaped.
type written string

// jsonValue returns v as a value of JSON.
func jsonValue(v any) (written, error) {
	text, err := json.Marshal(v)
	return written(text), err
}

// jsonText returns v as the inside of a string of JSON.
func jsonText(v any) (string, error) {
	if done, ok := v.(written); ok {
		return string(done), nil
	}
	text, err := json.Marshal(fmt.Sprint(v))
	if err != nil {
		return "", err
	}
	return string(text[1 : len(text)-1]), nil
}
