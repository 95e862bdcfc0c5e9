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

// unit returns what the cost counts.
func (c *cost) unit() Unit {
	switch u := c.usage; {
	case u == nil:
		return NoUnit
	case u.prices != nil:
		return USD
	case u.terms != nil:
		return Numbers
	}
	return Tokens
}
