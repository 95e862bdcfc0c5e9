package source

import (
	"maps"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Inlined returns a document in which the contents of files replace the names of the files.
func Inlined(doc policy.Document) policy.Document {
	doc.Lists, doc.Answers = maps.Clone(doc.Lists), maps.Clone(doc.Answers)
	for name, l := range doc.Lists {
		l.File = ""
		doc.Lists[name] = l
	}
	for status, a := range doc.Answers {
		a.File, a.Bodies = "", slices.Clone(a.Bodies)
		for i := range a.Bodies {
			a.Bodies[i].File = ""
		}
		doc.Answers[status] = a
	}
	doc.Prices.File = ""
	return doc
}
