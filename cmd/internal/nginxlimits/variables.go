package nginxlimits

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// piece is a variable in a text, or the text between two variables.
type piece struct {
	variable string // without "$"; empty for text
	text     string
}

var variableSyntax = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// piecesOf splits a text at its variables.
func piecesOf(s string) (all []piece) {
	for s != "" {
		at := variableSyntax.FindStringSubmatchIndex(s)
		if at == nil {
			return append(all, piece{text: s})
		}
		if at[0] > 0 {
			all = append(all, piece{text: s[:at[0]]})
		}
		name := at[2:4]
		if name[0] < 0 {
			name = at[4:6]
		}
		all = append(all, piece{variable: strings.ToLower(s[name[0]:name[1]])})
		s = s[at[1]:]
	}
	return all
}

// condition is a condition on the requests of a branch.
type condition struct {
	clients, notClients []string
	methods, notMethods []string
	hosts               []string
	paths, notPaths     pathSet
	headers             map[string]string
	notes               []string // differences from nginx
}

// always reports whether all requests meet the condition.
func (c *condition) always() bool { return reflect.ValueOf(*c).IsZero() }

// branch is a value of a variable, with the condition for requests that have this value.
type branch struct {
	condition
	value []piece
}

// literal returns the value if it contains no variables.
func (b *branch) literal() (string, bool) {
	var text strings.Builder
	for _, p := range b.value {
		if p.variable != "" {
			return "", false
		}
		text.WriteString(p.text)
	}
	return text.String(), true
}

// variables are the variables that a configuration defines.
type variables struct {
	geo, maps map[string]*conf.Directive
	others    map[string]*conf.Directive // variables that are defined by "set" and similar directives
	pieces    int                        // the number of pieces of the current key that were read
}

func newVariables() variables {
	return variables{geo: map[string]*conf.Directive{}, maps: map[string]*conf.Directive{}, others: map[string]*conf.Directive{}}
}

// add records the variable that a directive defines, if any.
func (v *variables) add(d *conf.Directive) {
	name := func(i int) string {
		if i < 0 || i >= len(d.Args) {
			return ""
		}
		return strings.ToLower(strings.TrimPrefix(d.Args[i], "$"))
	}
	switch d.Name {
	case "geo":
		v.geo[name(len(d.Args)-1)] = d
	case "map":
		v.maps[name(1)] = d
	case "set":
		v.others[name(0)] = d
	case "split_clients", "auth_request_set":
		v.others[name(len(d.Args)-1)] = d
		if d.Name == "auth_request_set" {
			v.others[name(0)] = d
		}
	}
}

// Bounds for a key: the number of its values, the depth of references between variables, and the number of pieces.
const maxBranches, maxReferences, maxPieces = 64, 16, 1000

// valuesOfKey returns the values of the key of a zone.
func (v *variables) valuesOfKey(key string) ([]branch, error) {
	v.pieces = 0
	return v.branches(piecesOf(key), 0)
}

// branches returns the values of a text after replacing the variables that the configuration defines.
func (v *variables) branches(pieces []piece, depth int) ([]branch, error) {
	if depth > maxReferences {
		return nil, errors.New("its variables refer to each other")
	}
	out := []branch{{}}
	replaced := false
	for _, p := range pieces {
		if v.pieces++; v.pieces > maxPieces {
			return nil, errors.New("it has too many variables")
		}
		values, err := v.valuesOf(p, depth)
		if err != nil {
			return nil, err
		}
		if len(values) == 1 && values[0].always() {
			for i := range out {
				out[i].value = append(out[i].value, values[0].value...)
			}
			continue
		}
		if replaced {
			return nil, errors.New("it contains several variables that depend on the request")
		}
		replaced = true
		before := out[0].value
		out = nil
		for _, b := range values {
			out = append(out, branch{b.condition, slices.Concat(before, b.value)})
		}
	}
	return out, nil
}

// valuesOf returns the values of a piece.
func (v *variables) valuesOf(p piece, depth int) ([]branch, error) {
	if p.variable == "" {
		return []branch{{value: []piece{p}}}, nil
	}
	if d := v.geo[p.variable]; d != nil {
		all, err := geoBranches(d)
		return all, at(d, "$"+p.variable, err)
	}
	if d := v.maps[p.variable]; d != nil {
		all, err := v.mapBranches(d, depth+1)
		return all, at(d, "$"+p.variable, err)
	}
	if d := v.others[p.variable]; d != nil {
		return nil, fmt.Errorf("%q at %s sets $%s to a value that depends on how nginx processes the request", d.Name, d.Where(), p.variable)
	}
	return []branch{{value: []piece{p}}}, nil
}

// at adds the variable and its definition to an error.
func at(d *conf.Directive, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s (%s of %s): %w", name, d.Name, d.Where(), err)
}
