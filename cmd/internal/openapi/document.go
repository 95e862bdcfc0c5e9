// Package openapi translates an OpenAPI document to a policy, and compares a policy with an OpenAPI document. It
// reads the operations, the paths of servers, the credentials that operations require, and limits in extensions. It
// imports packages policy and policyfile; package cli imports it.
//
// The package reads versions 3.0 to 3.2 and Swagger 2.0, as YAML and JSON. It follows references within the document,
// but not references to other files.
package openapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/jsonnode"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// MaxDocument is the maximum size of a document in bytes.
const MaxDocument = 64 << 20

// Document is an OpenAPI document.
type Document struct {
	File       string
	Title      string
	Operations []Operation
	// Left has a problem for each operation or path that could not be read.
	Left policy.Errors

	root    *yaml.Node
	targets map[*yaml.Node]*yaml.Node // the targets of references that were followed
	swagger bool                      // the document is Swagger 2.0
}

// Read parses a document. name is the name of the file in messages. The error is a [policy.Errors] with a line.
func Read(name string, data []byte) (*Document, error) {
	root, problem := parse(name, data)
	if problem == nil {
		d := &Document{File: name, root: root, targets: map[*yaml.Node]*yaml.Node{}}
		if problem = d.check(); problem == nil {
			d.Title = text(d.field(d.field(root, "info"), "title"))
			d.readPaths()
			return d, nil
		}
	}
	return nil, policy.Errors{*problem}
}

// parse parses the YAML or JSON in data, and returns the root.
func parse(name string, data []byte) (*yaml.Node, *policy.Problem) {
	if len(data) > MaxDocument {
		return nil, &policy.Problem{File: name, Line: 1, Message: fmt.Sprintf("the document is larger than %d MiB", MaxDocument>>20), Hint: "leave out descriptions and examples"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		root, err := jsonnode.Read(data)
		if err == nil {
			return root, nil
		}
		if strings.HasSuffix(name, ".json") {
			wrong, _ := errors.AsType[*jsonnode.Error](err)
			return nil, &policy.Problem{File: name, Line: wrong.Line, Message: wrong.Message, Hint: wrong.Hint}
		}
	}
	var doc yaml.Node
	switch err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &policy.Problem{File: name, Line: 1, Message: "the document is empty", Hint: `the first line is "openapi: 3.1.0"`}
	case err != nil:
		p := policyfile.YAMLProblem(name, data, err)
		return nil, &p
	}
	return doc.Content[0], nil
}

// check returns the reason why the document cannot be read, or nil.
func (d *Document) check() *policy.Problem {
	wrong := func(n *yaml.Node, hint, format string, args ...any) *policy.Problem {
		return &policy.Problem{File: d.File, Line: max(1, n.Line), Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	version, swagger := d.field(d.root, "openapi"), d.field(d.root, "swagger")
	switch {
	case version == nil && swagger == nil:
		return wrong(d.root, `the first line is "openapi: 3.1.0", or "swagger: \"2.0\""`, "this is not an OpenAPI document: the version is missing")
	case swagger != nil && text(swagger) == "2.0":
		d.swagger = true
	case version != nil && (text(version) == "3" || strings.HasPrefix(text(version), "3.")):
	case version != nil:
		return wrong(version, "convert it to 3.1", "version %.20q of OpenAPI is not supported", text(version))
	default:
		return wrong(swagger, "convert it to OpenAPI 3", "version %.20q of Swagger is not supported", text(swagger))
	}
	if paths := d.field(d.root, "paths"); paths == nil {
		return wrong(d.root, "give the document that describes the API", "the document has no paths")
	} else if paths.Kind != yaml.MappingNode {
		return wrong(paths, `write "paths:" and beneath it "/path:"`, "paths is not a mapping")
	}
	return nil
}

// leave adds the problem for which an operation or a path is omitted.
func (d *Document) leave(line int, hint, format string, args ...any) {
	d.Left = append(d.Left, policy.Problem{File: d.File, Line: line, Message: fmt.Sprintf(format, args...), Hint: hint})
}
