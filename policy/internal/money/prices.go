package money

import (
	"cmp"
	"slices"
	"strings"
)

// Tokens has the numbers of tokens that a model has read and written. Input includes Cached, the tokens read from a
// cache, and Written, the tokens written to a cache.
type Tokens struct{ Input, Cached, Written, Output int64 }

// Price has the prices of one token, in millionths of a micro-USD. These are also the prices of a million tokens in
// micro-USD.
type Price struct {
	Input, Cached, Written, Output int64
	Most                           int64 // the most tokens of an output; 0 if unknown
}

// Prices has the prices of models.
type Prices struct {
	exact    map[string]*Price
	patterns []pattern // the longest first
	unknown  *Price
}

// pattern is the price of models with a common prefix.
type pattern struct {
	prefix string
	*Price
}

// NewPrices returns a Prices without models.
func NewPrices() *Prices { return &Prices{exact: make(map[string]*Price), unknown: new(Price)} }

// Add adds the price of a model, or, if isPrefix is true, of all models with names that start with name. The name
// must be in lower case.
func (p *Prices) Add(name string, isPrefix bool, one *Price) {
	p.unknown.Raise(one)
	if !isPrefix {
		p.exact[name] = one
		return
	}
	p.patterns = append(p.patterns, pattern{name, one})
	slices.SortFunc(p.patterns, func(a, b pattern) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
}

// Of returns the price of a model. An unknown model has the highest price of each type of token. The result is nil
// if p is nil.
func (p *Prices) Of(model string) *Price {
	if p == nil {
		return nil
	}
	model = strings.ToLower(model)
	if known := p.exact[model]; known != nil {
		return known
	}
	for i := range p.patterns {
		if strings.HasPrefix(model, p.patterns[i].prefix) {
			return p.patterns[i].Price
		}
	}
	return p.unknown
}

// Cost returns the cost of tokens in micro-USD: the exact sum, rounded up once, and at most the largest int64.
func (p *Price) Cost(t Tokens) int64 {
	cached, written := max(t.Cached, 0), max(t.Written, 0)
	var sum Sum
	sum.Add(max(0, t.Input-cached-written), p.Input)
	sum.Add(cached, p.Cached)
	sum.Add(written, p.Written)
	sum.Add(max(t.Output, 0), p.Output)
	return sum.CeilDiv(Millionths)
}

// Raise raises each price of p to the price of o if that is higher.
func (p *Price) Raise(o *Price) {
	p.Input, p.Cached = max(p.Input, o.Input), max(p.Cached, o.Cached)
	p.Written, p.Output = max(p.Written, o.Written), max(p.Output, o.Output)
	p.Most = max(p.Most, o.Most)
}
