package policy

// Unit is what a cost counts that the body of a response reports.
type Unit uint8

const (
	NoUnit  Unit = iota // the body does not report the cost
	Tokens              // of a model
	USD                 // counted in micro-USD
	Numbers             // by the paths of response_json
)

// String returns tokens, USD or units. It is empty for NoUnit.
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

// Amounts returns what the request was charged before, and what it is charged in the end, in units of Unit: in
// micro-USD for USD.
func (s *Settlement) Amounts() (reserved, settled int64) {
	return s.Limit.Value(s.Estimate), s.Limit.Value(s.Cost)
}

// Budget is a rule whose cost the body of the response reports.
type Budget struct {
	Rule string
	Unit Unit
}

// Budgets returns the rules whose cost the bodies of responses report, in the order of the document.
func (p *Policy) Budgets() (all []Budget) {
	for i := range p.rules {
		if r := &p.rules[i]; r.cost.usage != nil {
			all = append(all, Budget{r.name, r.cost.unit})
		}
	}
	return all
}

// UnitOf returns what the cost of a rule counts, or NoUnit.
func (p *Policy) UnitOf(rule string) Unit {
	i, known := p.byName[rule]
	if !known {
		return NoUnit
	}
	return p.rules[i].cost.unit
}
