package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/jsonnode"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Encode returns a document as text, from which [Decode] returns an equal document. The text is JSON if the name ends
// with ".json", and otherwise YAML. The document need not be valid as a policy. Encode fails if a text in the document
// is not UTF-8, or is empty where a file cannot have an empty text, as in a list of patterns.
func Encode(name string, doc policy.Document) ([]byte, error) {
	if err := writable(reflect.ValueOf(doc), "Document"); err != nil {
		return nil, err
	}
	if doc.Rules == nil {
		doc.Rules = []policy.Rule{} // instead of null
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Version int `json:"version"`
		policy.Document
	}{1, doc})
	if err != nil || strings.HasSuffix(name, ".json") {
		return visible(b.Bytes(), true), err
	}
	root, err := jsonnode.Read(b.Bytes())
	if err != nil {
		return nil, err
	}
	return encodeYAML(root)
}

func encodeYAML(root *yaml.Node) ([]byte, error) {
	setStyles(root)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(root), enc.Close())
	return visible(b.Bytes(), false), err
}

// visible escapes the characters of YAML or JSON that reverse text, are invisible or control a terminal, so that people
// see the whole text of a policy, in its order. The escapes are valid because all characters beyond ASCII are in double
// quotes.
func visible(text []byte, isJSON bool) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || printable.Shows(r):
			out = utf8.AppendRune(out, r)
		case r <= 0xFFFF:
			out = fmt.Appendf(out, `\u%04X`, r)
		case isJSON:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04X\u%04X`, high, low)
		default:
			out = fmt.Appendf(out, `\U%08X`, r)
		}
	}
	return out
}

// setStyles gives n and the nodes below it the style that people use: lists and mappings of single values are on one
// line, and text is in quotes unless it is plain (see plainText). It reports whether n is a single value.
func setStyles(n *yaml.Node) (single bool) {
	if n.Kind == yaml.ScalarNode {
		if n.Tag == "!!str" && !plainText(n.Value) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return true
	}
	flow := true
	for _, c := range n.Content {
		flow = setStyles(c) && flow
	}
	if flow {
		n.Style = yaml.FlowStyle
	}
	return false
}

// typedInYAML11 matches texts of YAML 1.2 that have another type in YAML 1.1, which many readers still implement: truth
// values, numbers such as 12:30, and the default value "=".
var typedInYAML11 = regexp.MustCompile(`(?i)^([yn]|yes|no|on|off|true|false|=|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$`)

// plainText reports whether s is one line of ASCII without a space at its ends, and is text in YAML 1.1, too.
func plainText(s string) bool {
	return s != "" && printable.ASCII(s) && s[0] != ' ' && s[len(s)-1] != ' ' && !typedInYAML11.MatchString(s)
}

// writable returns an error for the first text in v that a file cannot contain.
func writable(v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return fmt.Errorf("policyfile: %s is not UTF-8: %.60q", path, v.String())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := writable(v.Field(i), path+"."+v.Type().Field(i).Name); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := writableItem(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			at := fmt.Sprintf("%s[%q]", path, k.String())
			if err := errors.Join(writable(k, at), writableItem(v.MapIndex(k), at)); err != nil {
				return err
			}
		}
	}
	return nil
}

func writableItem(v reflect.Value, path string) error {
	if (v.Kind() == reflect.String || v.Kind() == reflect.Slice) && v.Len() == 0 {
		return fmt.Errorf("policyfile: %s is empty: write a value, or leave it out", path)
	}
	return writable(v, path)
}
