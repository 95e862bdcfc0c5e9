package policy

// Unit is the unit of a cost that is read from the body of the response.
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

// Amounts returns the charge before the response and the final one, in units of Unit: in micro-USD for USD.
func (s *Settlement) Amounts() (reserved, settled int64) {
	return s.Limit.Value(s.Estimate), s.Limit.Value(s.Cost)
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
