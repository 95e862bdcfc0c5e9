package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/money"
)

// Unit is the unit of a cost that is read from the body of the response.
type Unit uint8

const (
	NoUnit  Unit = iota // the cost does not come from the body
	Tokens              // tokens of a model
	USD                 // counted in micro-USD
	Numbers             // numbers at the paths of response_json
)

// String returns "tokens", "USD" or "units", or "" for NoUnit.
func (u Unit) String() string { return [...]string{"", "tokens", "USD", "units"}[u] }

// unitOfCost returns the unit of a cost.
func unitOfCost(c *Cost) Unit {
	switch {
	case c.Tokens != "":
		return Tokens
	case c.USD != "":
		return USD
	case c.ResponseJSON != nil:
		return Numbers
	}
	return NoUnit
}

// Budget is a rule with a cost that is read from the body of the response.
type Budget struct {
	Rule string
	Unit Unit
}

// Budgets returns the rules with costs that are read from bodies of responses, in the order of the document.
func (p *Policy) Budgets() (all []Budget) {
	for i := range p.rules {
		if r := &p.rules[i]; r.cost.usage != nil {
			all = append(all, Budget{r.name, r.cost.unit})
		}
	}
	return all
}

// UnitOf returns the unit of a rule's cost. It is NoUnit for an unknown rule.
func (p *Policy) UnitOf(rule string) Unit {
	i, known := p.byName[rule]
	if !known {
		return NoUnit
	}
	return p.rules[i].cost.unit
}

// checkMoney complains about a limit in USD in a rule that does not count money, and about any other limit in a rule
// that does. It reports whether the limit is valid.
func (c *compiler) checkMoney(field string, l sluice.Limit, r *rule) bool {
	switch inUSD := l.Money > 0; {
	case inUSD && !r.cost.usd:
		c.fail(field, `write "cost: {usd: prices}" in the rule, or leave USD out`, "the limit %v is in USD, and the rule's costs are not", l)
	case !inUSD && r.cost.usd:
		c.fail(field, `write for example "50 USD/day", or use a separate rule`, "the limit %v is not in USD, and the rule's costs are", l)
	default:
		return true
	}
	return false
}

// tooMuch complains about a limit in USD that is too large to be counted, and suggests limits that are possible. It
// reports whether the limit is too large.
func (c *compiler) tooMuch(field string, l sluice.Limit) bool {
	most := money.Most(l)
	if most == 0 || most >= l.Count {
		return false
	}
	fits := l
	fits.Count, fits.Burst = most, min(most, l.Burst)
	hint := "use at most " + spelling.Quote(fits.String())
	var use []string
	for _, a := range sluice.Algorithms() {
		other := l
		if other.Algorithm = a; a > sluice.GCRA {
			other.Burst = 0
		}
		if _, err := money.NewPlan(other); err == nil && a != sluice.LeakyBucket {
			use = append(use, a.String())
		}
	}
	if len(use) > 0 {
		hint += ", or the algorithm " + spelling.OneOf(use)
	}
	c.fail(field, hint, "a %s cannot count the limit %v exactly, even in units of %s", l.Algorithm, l, printable.FormatMoney(money.Coarsest))
	return true
}

// Prices are the prices of models, by their names or by patterns such as "gpt-5*", which match every name that starts
// with "gpt-5". A price by the name of a model takes precedence; otherwise the longest pattern that matches applies.
// Case makes no difference. A model without a price has the price of "*". Without a price for "*", it has the highest
// price of each kind in the table. In JSON and YAML, Prices are an object of prices, or an object with the name of a
// file.
type Prices struct {
	Models map[string]Price
	// File is the name of a file with the models. The name is relative to the file of the policy. Package policyfile
	// reads the file. Programs set Models instead, which may be empty.
	File string
}

// Price is the price of a model, in USD for a million tokens, which is the same as micro-USD for a token. Prices
// have up to six digits after the point.
type Price struct {
	Input Decimal `json:"input,omitempty"`
	// Cached is the price of input that the model has read from its cache: Input if empty.
	Cached Decimal `json:"cached,omitempty"`
	// CacheWrite is the price of input that the model has written to its cache: Input if empty.
	CacheWrite Decimal `json:"cache_write,omitempty"`
	// Output is the price of the output, including reasoning.
	Output Decimal `json:"output,omitempty"`
	// Most is the largest number of tokens that the model can write in one answer; zero means unknown.
	Most int64 `json:"most,omitempty"`
}

// Decimal is a decimal number as text, such as "1.25". In JSON it is a number.
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

// prices compiles the prices of a document. The result is nil for a document without prices.
func (c *compiler) prices(in *Prices) *money.Prices {
	if in.File != "" && in.Models == nil {
		c.fail("prices", "load the policy with package policyfile, or set Models", "the prices are in the file %s, which has not been read", spelling.Quote(in.File))
	}
	if len(in.Models) == 0 {
		if in.File != "" && in.Models != nil {
			c.fail("prices", `write for example "gpt-5*: {input: 1.25, output: 10}" into it`, "the file %s has no prices", spelling.Quote(in.File))
		}
		return nil
	}
	out := money.NewPrices()
	seen := make(map[string]string)
	for _, name := range sortedKeys(in.Models) {
		field := fmt.Sprintf("prices[%q]", name)
		folded := strings.ToLower(name)
		if before, twice := seen[folded]; twice {
			c.fail(field, "keep one of them", "the prices of %s and %s apply to the same models", spelling.Quote(before), spelling.Quote(name))
			continue
		}
		seen[folded] = name
		model := in.Models[name]
		one := c.price(field, &model)
		begins, isPattern := strings.CutSuffix(folded, "*")
		switch {
		case strings.Contains(begins, "*"):
			c.fail(field, `write a name such as "gpt-5-mini", or a prefix, as in "gpt-5*"`, "the model %s has a \"*\" that is not at its end", spelling.Quote(name))
		case begins == "" && !isPattern:
			c.fail(field, `write "*" for all other models`, "the model has no name")
		default:
			out.Add(begins, isPattern, one)
		}
	}
	return out
}

// price compiles the price of a model.
func (c *compiler) price(field string, in *Price) *money.Price {
	out := &money.Price{Most: in.Most}
	if in.Most != 0 {
		c.between(field+".most", in.Most, math.MaxInt64)
	}
	out.Input = c.decimal(field, "input", in.Input)
	out.Output = c.decimal(field, "output", in.Output)
	out.Cached, out.Written = out.Input, out.Input
	if in.Cached != "" {
		out.Cached = c.decimal(field, "cached", in.Cached)
	}
	if in.CacheWrite != "" {
		out.Written = c.decimal(field, "cache_write", in.CacheWrite)
	}
	return out
}

// mostPrice is the highest possible price, in USD for a million tokens.
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
	case n > mostPrice*money.Millionths:
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
