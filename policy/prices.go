package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
)

// Prices are the prices of models, by their names or by patterns such as "gpt-5*", which match every name with that
// beginning. The longest pattern that matches a model has its price, and a name without a "*" comes before them
// all. Case makes no difference. A model without a price costs what "*" does or, without that, the highest of each
// price. As JSON and YAML they are an object of prices, or an object with the name of a file.
type Prices struct {
	Models map[string]Price
	// File is the file with the models, if they are in one. Package policyfile reads it, relative to the file of the
	// policy. A program sets Models, even if empty.
	File string
}

// Price is the price of a model, in USD for a million tokens, which is micro-USD for a token. Prices have up to six
// digits after the point.
type Price struct {
	Input Decimal `json:"input,omitempty"`
	// Cached is the price of input that the model has read from its cache: Input if empty.
	Cached Decimal `json:"cached,omitempty"`
	// CacheWrite is the price of input that the model has written to its cache: Input if empty.
	CacheWrite Decimal `json:"cache_write,omitempty"`
	// Output is the price of the output, including reasoning.
	Output Decimal `json:"output,omitempty"`
	// Most is the most tokens that the model can write in one answer; unknown if zero.
	Most int64 `json:"most,omitempty"`
}

// Decimal is a number as it is written, such as "1.25". As JSON it is a number.
type Decimal string

var jsonNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

func (d Decimal) MarshalJSON() ([]byte, error) {
	if jsonNumber.MatchString(string(d)) {
		return []byte(d), nil
	}
	return json.Marshal(string(d))
}

func (d *Decimal) UnmarshalJSON(data []byte) error {
	var n json.Number
	if json.Unmarshal(data, (*string)(d)) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return errors.New("policy: a price is a number such as 1.25")
	}
	*d = Decimal(n)
	return nil
}

// pricesFile is Prices in a file, as JSON.
type pricesFile struct {
	File string `json:"file"`
}

func (p Prices) MarshalJSON() ([]byte, error) {
	if p.File != "" {
		return json.Marshal(pricesFile{p.File})
	}
	return json.Marshal(p.Models)
}

func (p *Prices) UnmarshalJSON(data []byte) error {
	var f pricesFile
	if json.Unmarshal(data, &f) == nil && f.File != "" {
		*p = Prices{File: f.File}
		return nil
	}
	var models map[string]Price
	if err := json.Unmarshal(data, &models); err != nil {
		return errors.New(`policy: prices are an object such as {"gpt-5*": {"input": 1.25, "output": 10}}, or {"file": "prices.yaml"}`)
	}
	*p = Prices{Models: models}
	return nil
}

// tokens are the tokens that a model has read and written. Input includes Cached and Written.
type tokens struct{ input, cached, written, output int64 }

// price is the price of a token in millionths of a micro-USD: prices for a million tokens are whole numbers.
type price struct {
	input, cached, written, output int64
	most                           int64 // tokens of the longest output; 0: unknown
}

// prices are the prices of models, compiled.
type prices struct {
	exact    map[string]*price
	patterns []pricePattern // the longest first
	unknown  *price
}

// pricePattern is the price of models whose names start with prefix.
type pricePattern struct {
	prefix string
	*price
}

// of returns the price of a model, which is that of "*" or the highest of each if the model is unknown. Without
// prices it is nil.
func (p *prices) of(model string) *price {
	if p == nil {
		return nil
	}
	model = strings.ToLower(model)
	if known := p.exact[model]; known != nil {
		return known
	}
	for i := range p.patterns {
		if strings.HasPrefix(model, p.patterns[i].prefix) {
			return p.patterns[i].price
		}
	}
	return p.unknown
}

// cost returns what tokens cost in micro-USD: their exact sum, rounded up once, and at most the largest int64.
func (p *price) cost(t tokens) int64 {
	cached, written := max(t.cached, 0), max(t.written, 0)
	var sum sum128
	sum.add(max(0, t.input-cached-written), p.input)
	sum.add(cached, p.cached)
	sum.add(written, p.written)
	sum.add(max(t.output, 0), p.output)
	return sum.ceilDiv(millionths)
}

const millionths = 1_000_000

// sum128 is a sum of products, in 128 bits.
type sum128 struct{ hi, lo uint64 }

// add adds a·b, which are not negative. Four products of any numbers fit, and 2^20 of a number that a response reports
// with a weight.
func (s *sum128) add(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

// sub subtracts o. The difference is 0 if o is larger.
func (s *sum128) sub(o sum128) {
	lo, borrow := bits.Sub64(s.lo, o.lo, 0)
	hi, borrow := bits.Sub64(s.hi, o.hi, borrow)
	if *s = (sum128{hi, lo}); borrow > 0 {
		*s = sum128{}
	}
}

// ceilDiv returns the sum divided by d and rounded up, at most the largest int64.
func (s *sum128) ceilDiv(d uint64) int64 {
	if s.hi >= d {
		return math.MaxInt64
	}
	q, r := bits.Div64(s.hi, s.lo, d)
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// prices compiles the prices of a document. The result is nil for a document without prices.
func (c *compiler) prices(in *Prices) *prices {
	if in.File != "" && in.Models == nil {
		c.fail("prices", "load the policy with package policyfile, or set Models", "the prices are in the file %s, which has not been read", spelling.Quote(in.File))
	}
	if len(in.Models) == 0 {
		if in.File != "" && in.Models != nil {
			c.fail("prices", `write for example "gpt-5*: {input: 1.25, output: 10}" into it`, "the file %s has no prices", spelling.Quote(in.File))
		}
		return nil
	}
	out := &prices{exact: make(map[string]*price)}
	seen := make(map[string]string)
	highest := new(price)
	for _, name := range sortedKeys(in.Models) {
		field := fmt.Sprintf("prices[%q]", name)
		folded := strings.ToLower(name)
		if before, twice := seen[folded]; twice {
			c.fail(field, "keep one of them", "the prices of %s and %s are those of the same models", spelling.Quote(before), spelling.Quote(name))
			continue
		}
		seen[folded] = name
		model := in.Models[name]
		one := c.price(field, &model)
		highest.raise(one)
		begins, isPattern := strings.CutSuffix(folded, "*")
		switch {
		case strings.Contains(begins, "*"):
			c.fail(field, `write a name such as "gpt-5-mini", or its beginning as in "gpt-5*"`, "the model %s has a \"*\" before its end", spelling.Quote(name))
		case begins == "" && !isPattern:
			c.fail(field, `write "*" for all other models`, "the model has no name")
		case isPattern:
			out.patterns = append(out.patterns, pricePattern{begins, one})
		default:
			out.exact[begins] = one
		}
	}
	slices.SortFunc(out.patterns, func(a, b pricePattern) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	out.unknown = highest
	return out
}

// raise makes each price that of another if that is higher.
func (p *price) raise(o *price) {
	p.input, p.cached = max(p.input, o.input), max(p.cached, o.cached)
	p.written, p.output = max(p.written, o.written), max(p.output, o.output)
	p.most = max(p.most, o.most)
}

// price compiles the price of a model.
func (c *compiler) price(field string, in *Price) *price {
	out := &price{most: in.Most}
	if in.Most != 0 {
		c.between(field+".most", in.Most, math.MaxInt64)
	}
	out.input = c.decimal(field, "input", in.Input)
	out.output = c.decimal(field, "output", in.Output)
	out.cached, out.written = out.input, out.input
	if in.Cached != "" {
		out.cached = c.decimal(field, "cached", in.Cached)
	}
	if in.CacheWrite != "" {
		out.written = c.decimal(field, "cache_write", in.CacheWrite)
	}
	return out
}

// mostPrice is the highest price: a million USD for a million tokens.
const mostPrice = 1_000_000

// decimal reads a price.
func (c *compiler) decimal(field, name string, in Decimal) int64 {
	at := field + "." + name
	if in == "" {
		c.fail(field, fmt.Sprintf("write \"%s: 0\" if it costs nothing", name), "the price has no %s", name)
		return 0
	}
	n, err := printable.ParseDecimal(string(in))
	switch {
	case err != nil:
		c.fail(at, "write USD for a million tokens, as in 1.25", "the price %v", err)
	case n > mostPrice*millionths:
		c.fail(at, "write USD for a million tokens, as in 1.25", "the price %s is above %d USD for a million tokens", in, mostPrice)
	}
	return n
}

// prices warns of prices that no rule uses.
func (w *warner) prices() {
	if w.policy.prices != nil && !slices.ContainsFunc(w.policy.rules, func(r rule) bool { return r.cost.usd }) {
		w.add(nil, "prices", `write "cost: {usd: prices}" in a rule, or remove them`, "no rule counts by the prices")
	}
}
