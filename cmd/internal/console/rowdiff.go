package console

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// fields has the fields of a row of the database by name.
type fields map[string]source.Row

// fieldsOf returns the fields of a row. A row that is not an object, which SQL may have written, becomes a field
// with an empty name.
func fieldsOf(row source.Row) (f fields) {
	if err := row.Decode(&f); err != nil && row != "" {
		return fields{"": row}
	}
	return f
}

// textOf returns the text of a value, or "" if the value is not a string.
func textOf(value source.Row) (text string) {
	_ = value.Decode(&text)
	return text
}

// fieldChange is a field before and after a change. Before or After is "" if the field was missing.
type fieldChange struct{ Field, Before, After string }

// diffFields returns the fields in which two rows differ. A field of an object in a row has a name such as
// "key.api_key".
func diffFields(before, after fields) (all []fieldChange) {
	a, b := map[string]string{}, map[string]string{}
	before.flatten(a, "")
	after.flatten(b, "")
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a[name] != b[name] {
			all = append(all, fieldChange{name, a[name], b[name]})
		}
	}
	return all
}

// flatten adds the fields, including the fields of objects, to a map. Each name starts with the prefix.
func (f fields) flatten(into map[string]string, prefix string) {
	for name, value := range f {
		if value == "null" {
			continue
		}
		if strings.HasPrefix(string(value), "{") {
			fieldsOf(value).flatten(into, prefix+name+".")
			continue
		}
		into[prefix+name] = valueWords(value)
	}
}

// valueWords formats a value for display.
func valueWords(value source.Row) string {
	var text string
	if value.Decode(&text) == nil {
		if text == "" {
			return strconv.Quote(text)
		}
		return text
	}
	var list []source.Row
	if value.Decode(&list) == nil {
		all := make([]string, len(list))
		for i := range list {
			all[i] = valueWords(list[i])
		}
		return strings.Join(all, ", ")
	}
	return string(value)
}
