package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policyfile"
)

func schemaFile() string { return filepath.Join(testkit.Root(), "docs", "policy.schema.json") }

func TestUpToDate(t *testing.T) {
	want, err := generate(filepath.Join(testkit.Root(), "policy"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(schemaFile()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date: run go generate ./cmd/internal/schemagen (%v)", schemaFile(), err)
	}
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// policies returns the valid policies of the repository, by file and position.
func policies(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	fence := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	err := filepath.WalkDir(testkit.Root(), func(path string, d fs.DirEntry, err error) error {
		markdown := strings.HasSuffix(path, ".md")
		switch {
		case err != nil || d.IsDir() && d.Name() == "bad" || d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			if err == nil {
				err = fs.SkipDir
			}
			return err
		case !markdown && !strings.HasSuffix(path, ".yaml"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		blocks := [][][]byte{{nil, text}}
		if markdown {
			blocks = fence.FindAllSubmatch(text, -1)
		}
		for i, b := range blocks {
			if regexp.MustCompile(`(?m)^version: 1\n`).Match(b[1]) && regexp.MustCompile(`(?m)^rules:`).Match(b[1]) {
				all[path+strings.Repeat("'", i)] = b[1]
			}
		}
		return nil
	})
	if err != nil || len(all) < 15 {
		t.Fatalf("%d policies found (%v)", len(all), err)
	}
	return all
}

func parse(t *testing.T, data []byte) *yaml.Node {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		t.Fatal(err)
	}
	return n.Content[0]
}

// value returns a node as JSON would represent it: keys are strings, and so are values that YAML reads as times.
func value(t *testing.T, n *yaml.Node) (v any) {
	t.Helper()
	switch {
	case n.Kind == yaml.MappingNode:
		all := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			all[n.Content[i].Value] = value(t, n.Content[i+1])
		}
		return all
	case n.Kind == yaml.SequenceNode:
		all := []any{}
		for _, item := range n.Content {
			all = append(all, value(t, item))
		}
		return all
	case n.Tag == "!!str" || n.Tag == "!!timestamp":
		return n.Value
	}
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Every policy of the repository is valid according to the schema, so editors accept it.
func TestExamples(t *testing.T) {
	s := schema(t)
	for name, data := range policies(t) {
		if err := s.Validate(value(t, parse(t, data))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A field accepts exactly the words of its list.
func TestWords(t *testing.T) {
	s := schema(t)
	for field, list := range words {
		name, ok := map[string]string{
			"CORS.Preflights": "cors: {origins: [https://a.example], preflights: %}", "Document.Ambiguous": "ambiguous: %", "Document.Fields": "fields: %", "Rule.Ambiguous": "- ambiguous: %", "Rule.Missing": "- missing: %", "Rule.Algorithm": "- algorithm: %",
			"Rule.OnError": "- on_error: %", "Rule.Consistency": "- consistency: %", "Rule.ShowKey": "- show_key: %",
			"Rule.Answer": "- answer: %", "Rule.Over": "- over: %", "Rule.Class": "- class: %", "Cost.Tokens": "- cost: {tokens: %}", "Cost.Unknown": "- cost: {tokens: total, unknown: %}", "Cost.Usage": "- cost: {tokens: total, usage: %}",
		}[field]
		if !ok {
			t.Fatalf("%s has no example in this test", field)
		}
		for _, word := range append([]string{"zzz"}, list...) {
			top, rule := strings.ReplaceAll(name, "%", word), ""
			if of, is := strings.CutPrefix(top, "- "); is {
				top, rule = "", of+", "
			}
			text := "version: 1\n" + top + "\nrules: [{name: a, key: [client_ip], " + rule + "limit: 5/minute}]\n"
			_, wrong := policyfile.Parse("policy.yaml", []byte(text))
			if invalid := s.Validate(value(t, parse(t, []byte(text)))); (wrong == nil) != (word != "zzz") || (invalid == nil) != (wrong == nil) {
				t.Errorf("%s\nParse: %v; schema: %v", text, wrong, invalid)
			}
		}
	}
}
