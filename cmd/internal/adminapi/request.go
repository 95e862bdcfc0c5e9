package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// read returns the body, which must be JSON.
func (c *call) read() ([]byte, error) {
	kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, control.Problemf(http.StatusUnsupportedMediaType, "send the body as JSON, with \"Content-Type: application/json\"")
	}
	data, err := io.ReadAll(c.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, control.Problemf(http.StatusRequestTimeout, "the body took longer than %v", bodyTimeout)
	case err != nil:
		return nil, control.Problemf(http.StatusBadRequest, "the body ended early")
	case !utf8.Valid(data):
		return nil, control.Problemf(http.StatusBadRequest, "the body is not JSON: it is not UTF-8")
	case !json.Valid(data):
		return nil, control.Problemf(http.StatusBadRequest, "the body is not JSON: %v", syntax(data))
	}
	return data, nil
}

func syntax(data []byte) error {
	var v any
	return json.Unmarshal(data, &v)
}

// decode decodes a body. Unknown and duplicate fields are errors.
func decode[T any](c *call) (v T, err error) {
	data, err := c.read()
	if err != nil {
		return v, err
	}
	return v, decodeInto(data, &v)
}

func decodeInto(data []byte, v any) error {
	names := json.NewDecoder(bytes.NewReader(data))
	names.UseNumber() // Decode checks below whether a number fits
	if err := unique(names, nil, 0); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind):
		field := strings.TrimPrefix(kind.Field, "Target.") // an embedded struct
		if field != "" {
			field = "/" + strings.ReplaceAll(field, ".", "/")
		}
		return control.BadField(field, "the field must be %s", words(kind))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		field, _ := strconv.Unquote(name)
		return control.BadField("/"+field, "unknown field")
	}
	return control.Problemf(http.StatusUnprocessableEntity, "%s", strings.TrimPrefix(err.Error(), "policy: "))
}

// maxDepth is the maximum nesting of a body. The deepest valid body has a dozen levels.
const maxDepth = 100

// unique returns an error if an object has the same name twice: encoding/json would use the last value, but other
// parsers use the first. encoding/json also accepts "Rule" for the field rule, so names in the outermost object
// must differ in more than case. The parameter path has the names that lead to the value, and depth is the number
// of objects and lists around it.
func unique(d *json.Decoder, path []string, depth int) error {
	opening, err := d.Token()
	if err != nil || opening != json.Delim('{') && opening != json.Delim('[') {
		return err
	}
	if depth == maxDepth {
		return control.Problemf(http.StatusUnprocessableEntity, "the body is nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		below := path
		if opening == json.Delim('{') {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name := token.(string)
			below = append(path, name)
			if len(path) == 0 {
				name = strings.ToLower(strings.ToUpper(name)) // "ſ" is an "s"
			}
			if seen[name] {
				return control.BadField(control.PointerTo(below...), "the field occurs twice")
			}
			seen[name] = true
		}
		if err := unique(d, below, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// words describes the required type of a field.
func words(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "string":
		return "text"
	case "bool":
		return "true or false"
	case "map", "struct":
		return "an object"
	case "slice":
		return "a list"
	}
	return "a whole number"
}

// query is the query of a request.
type query struct {
	values   map[string]string
	prefixed map[string]map[string]string // parameters with a prefix, by prefix, such as "key."
	key      map[string]string            // parameters with the prefix "key."
	dry      bool                         // dry_run
	limit    int                          // 0 if missing
}

// maxPage is the maximum number of items on a page.
const maxPage = 1000

// readQuery parses a query, in which each parameter of the route may occur once.
func readQuery(raw, parameters string) (q query, err error) {
	known := strings.Fields(parameters)
	q = query{values: map[string]string{}, prefixed: map[string]map[string]string{}}
	for _, name := range known {
		if strings.HasSuffix(name, ".") {
			q.prefixed[name] = map[string]string{}
		}
	}
	q.key = q.prefixed["key."]
	all, err := url.ParseQuery(raw)
	if err != nil {
		return q, control.Problemf(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, rest, dotted := strings.Cut(name, ".")
		group := q.prefixed[before+"."]
		switch {
		case len(all[name]) > 1:
			return q, control.BadParameter(name, "the parameter occurs twice")
		case dotted && group != nil:
			group[rest] = all[name][0]
		case !dotted && slices.Contains(known, name):
			q.values[name] = all[name][0]
		default:
			return q, control.BadParameter(name, "unknown parameter")
		}
	}
	return q, q.parse()
}

// parse parses the parameters that are common to many operations.
func (q *query) parse() (err error) {
	if q.dry, err = q.flag("dry_run"); err != nil {
		return err
	}
	if text, given := q.values["limit"]; given {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > maxPage {
			return control.BadParameter("limit", "use a number from 1 to %d", maxPage)
		}
	}
	return nil
}

// flag returns a parameter that is true or false. The default is false.
func (q *query) flag(name string) (bool, error) {
	v, given := q.values[name]
	if given && v != "true" && v != "false" {
		return false, control.BadParameter(name, "write %s=true, or leave it out", name)
	}
	return v == "true", nil
}

// or returns the value of a parameter, or the given default if the query lacks the parameter. An empty parameter is not
// missing.
func (q *query) or(name, byDefault string) string {
	if v, given := q.values[name]; given {
		return v
	}
	return byDefault
}

// rule returns the parameter "rule", or "" if it is missing. An empty parameter is an error.
func (q *query) rule() (string, error) {
	rule, given := q.values["rule"]
	if given && rule == "" {
		return "", control.Problemf(http.StatusNotFound, "unknown rule %q", rule)
	}
	return rule, nil
}

func tooLarge() *control.Problem {
	return control.Problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
}
