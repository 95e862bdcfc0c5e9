package console

import (
	"slices"
	"testing"
)

func TestDiffFields(t *testing.T) {
	got := diffFields(fieldsOf(`{"a":1,"key":{"x":"old","y":"same"},"list":["p","q"],"gone":true,"none":null}`),
		fieldsOf(` {"a" : 2,"key":{"x":"new","y":"same"},"list":["p"],"empty":""}`))
	want := []fieldChange{{"a", "1", "2"}, {"empty", "", `""`}, {"gone", "true", ""}, {"key.x", "old", "new"}, {"list", "p, q", "p"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := diffFields(nil, fieldsOf(`{"a":"<b>"}`)); !slices.Equal(got, []fieldChange{{"a", "", "<b>"}}) {
		t.Errorf("%v", got)
	}
	// A row may contain any text, because SQL may have written it.
	if got := diffFields(nil, fieldsOf("no JSON")); !slices.Equal(got, []fieldChange{{"", "", "no JSON"}}) {
		t.Errorf("%v", got)
	}
}
