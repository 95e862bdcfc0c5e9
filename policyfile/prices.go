package policyfile

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policy"
)

// prices reads prices of models, or the name of their file.
func (d *decoder) prices(n *yaml.Node, p *policy.Prices, what string) {
	if file, _ := value(n, "file", 0); file != nil && file.Kind == yaml.ScalarNode {
		d.fields(n, what, []field{{"file", func(n *yaml.Node) { p.File = d.text(n, "file") }}})
		return
	}
	d.models(n, p, what)
}

func (d *decoder) models(n *yaml.Node, p *policy.Prices, what string) {
	d.mapping(n, reflect.ValueOf(&p.Models).Elem(), what)
}

// readPrices reads the prices of doc that are in a file: a mapping, as in the policy. It adds a problem if the file
// cannot be read.
func (d *decoder) readPrices(doc *policy.Document, read func(path string) ([]byte, error)) {
	p := &doc.Prices
	if p.File == "" {
		return
	}
	file, text, err := d.readBeside(p.File, "the prices", read)
	if err != nil {
		d.path = path{}.field("prices")
		d.fail(lineOf(d.root, "prices"), "", "the prices: %v", err)
		d.path = nil
		return
	}
	p.Models = map[string]policy.Price{} // not nil: they have been read
	in := newDecoder(file, []byte(text))
	if in.root != nil {
		in.path = in.path.field("prices")
		in.models(in.root, p, "prices")
		d.pricesRoot, d.pricesFile = in.root, file
	}
	d.problems = append(d.problems, in.problems...)
}
