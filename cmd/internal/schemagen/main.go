// Command schemagen writes the JSON Schema of policies for editors. It uses the types and the comments of package
// policy:
//
//	go generate ./cmd/internal/schemagen
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

//go:generate go run . ../../../policy ../../../docs/policy.schema.json

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "schemagen: give a package and an output file, as in schemagen policy docs/policy.schema.json")
		os.Exit(2)
	}
	text, err := generate(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

// generate returns the schema with the comments in the source files of dir.
func generate(dir string) ([]byte, error) {
	comments, err := readComments(dir)
	if err != nil {
		return nil, err
	}
	g := &generator{comments: comments, defs: object{"text": text(), "texts": texts(1)}}
	root := g.structure(reflect.TypeFor[policy.Document]())
	properties := root["properties"].(object)
	properties["version"] = object{"description": "1.", "enum": []any{1, "1"}}
	root["required"] = []string{"version", "rules"}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Policy of Sluice"
	root["description"] = "The limits of an API, and the requests that they apply to."
	root["$defs"] = g.defs
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

type object = map[string]any

// text is the schema of a text on one line. In YAML, numbers and words such as true may be texts.
func text() object {
	return object{"type": []string{"string", "number", "boolean"}, "minLength": 1}
}

// texts is the schema of one text, or of a list of atLeast texts or more.
func texts(atLeast int) object {
	list := object{"type": "array", "items": ref("text")}
	if atLeast > 0 {
		list["minItems"] = atLeast
	}
	return object{"anyOf": []any{ref("text"), list}}
}

// inFile is the schema of an object that names a file with the content.
func inFile() object {
	return object{"type": "object", "properties": object{"file": ref("text")}, "required": []string{"file"}, "additionalProperties": false}
}

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

// words has the possible words of fields, by "Type.Field".
var words = map[string][]string{
	"CORS.Preflights":    {"exempt", "count"},
	"Document.Ambiguous": {"refuse", "charge"},
	"Document.Fields":    {"both", "ietf", "x-ratelimit"},
	"Rule.Ambiguous":     {"refuse", "charge"},
	"Rule.Missing":       {"share", "skip", "refuse"},
	"Rule.Algorithm":     algorithms(),
	"Rule.OnError":       {"allow", "deny", "local"},
	"Rule.Consistency":   {"strict", "leased", "synced"},
	"Rule.Answer":        {"llm", "mcp"},
	"Rule.Class":         {"critical", "normal", "sheddable"},
	"Rule.Over":          {"refuse", "mark"},
	"Rule.ShowKey":       {"whole", "short", "hash"},
	"Cost.Tokens":        {"total", "uncached", "input", "output"},
	"Cost.Unknown":       {"estimate"},
	"Cost.Usage":         {"ask"},
}

func algorithms() (all []string) {
	for _, a := range sluice.Algorithms() {
		all = append(all, a.String())
	}
	return all
}

// short has the schemas of types that may also be written as a single value.
var short = map[reflect.Type]object{
	reflect.TypeFor[policy.Cost]():     {"type": "integer", "minimum": 1},
	reflect.TypeFor[policy.InFlight](): {"anyOf": []any{object{"type": "integer", "minimum": 1}, object{"const": "auto"}}},
	reflect.TypeFor[policy.Penalty]():  ref("text"),
	reflect.TypeFor[policy.Estimate](): {"type": "integer", "minimum": 1},
}

// generator makes schemas of types. The schemas of named types are in defs.
type generator struct {
	comments map[string]string
	defs     object
}

func (g *generator) schema(t reflect.Type, field string) object {
	if list := words[field]; list != nil {
		return object{"enum": list}
	}
	switch t {
	case reflect.TypeFor[policy.Limits](), reflect.TypeFor[[]policy.Status]():
		return ref("texts")
	case reflect.TypeFor[policy.List]():
		return object{"anyOf": append(texts(0)["anyOf"].([]any), inFile())}
	case reflect.TypeFor[policy.Prices]():
		models := object{"type": "object", "minProperties": 1, "additionalProperties": g.schema(reflect.TypeFor[policy.Price](), "")}
		return object{"anyOf": []any{models, inFile()}}
	case reflect.TypeFor[policy.Decimal]():
		return object{"anyOf": []any{object{"type": "number", "minimum": 0}, object{"type": "string", "pattern": `^[0-9]+(\.[0-9]+)?$`}}}
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "minimum": 1}
	case reflect.Map:
		return object{"type": "object", "minProperties": 1, "additionalProperties": g.schema(t.Elem(), "")}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.String {
			list := object{"type": "array", "items": g.schema(t.Elem(), "")}
			if field == "Answer.Bodies" {
				list["minItems"] = 1
			}
			return list
		}
		if field == "Document.TrustedProxies" { // the list may be empty
			return texts(0)
		}
		return ref("texts")
	case reflect.Struct:
		if g.defs[t.Name()] == nil {
			g.defs[t.Name()] = object{} // ends a recursion while the schema is being made
			g.defs[t.Name()] = g.structure(t)
		}
		if one := short[t]; one != nil {
			return object{"anyOf": []any{one, ref(t.Name())}}
		}
		return ref(t.Name())
	}
	return ref("text")
}

// structure returns the schema of an object with only the fields of a type.
func (g *generator) structure(t reflect.Type) object {
	properties := object{}
	g.fields(t, properties)
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if comment := g.comments[t.Name()]; comment != "" {
		o["description"] = comment
	}
	switch t.Name() {
	case "Rule":
		o["required"] = []string{"name"}
	case "Cost": // a number stands for an object with only a default
		var with []any
		for _, name := range []string{"header", "max", "response_header", "response_bytes", "tokens", "usd", "response_json", "estimate"} {
			with = append(with, object{"required": []string{name}})
		}
		o["anyOf"] = with
	case "InFlight": // a number stands for an object without auto
		properties["auto"] = object{"const": true, "description": properties["auto"].(object)["description"]}
		o["required"] = []string{"auto"}
	case "Price":
		o["required"] = []string{"input", "output"}
	case "CORS", "Tiers", "Share", "Count", "Penalty", "Estimate":
		o["minProperties"] = 1
	}
	return o
}

func (g *generator) fields(t reflect.Type, properties object) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			g.fields(f.Type, properties)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		field := t.Name() + "." + f.Name
		s := g.schema(f.Type, field)
		if comment := g.comments[field]; comment != "" {
			s["description"] = comment
		}
		properties[cmp.Or(name, f.Name)] = s
	}
}

// readComments returns the comments of types and of their fields, by "Type" and "Type.Field".
func readComments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			declared, _ := d.(*ast.GenDecl)
			if declared == nil || declared.Tok != token.TYPE {
				continue
			}
			for _, spec := range declared.Specs {
				t := spec.(*ast.TypeSpec)
				s, _ := t.Type.(*ast.StructType)
				if s == nil || !t.Name.IsExported() {
					continue
				}
				comments[t.Name.Name] = plain(declared.Doc)
				for _, f := range s.Fields.List {
					comment := f.Doc
					if comment == nil {
						comment = f.Comment
					}
					for _, n := range f.Names {
						comments[t.Name.Name+"."+n.Name] = plain(comment)
					}
				}
			}
		}
	}
	return comments, nil
}

// link matches a link in a Go comment, and the character before it. An index such as params[name] is no link.
var link = regexp.MustCompile(`(^|[^\w])\[([A-Za-z][\w./]*)\]`)

// plain returns the first paragraph of a comment as one line, without the brackets of links.
func plain(c *ast.CommentGroup) string {
	first, _, _ := strings.Cut(c.Text(), "\n\n")
	return link.ReplaceAllString(strings.Join(strings.Fields(first), " "), "$1$2")
}
