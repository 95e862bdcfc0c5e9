package policy

// tokens are what a model has read and written. Input includes Cached and Written.
type tokens struct{ input, cached, written, output int64 }

type prices struct{}
type price struct{ most int64 }

// of returns the price of a model. It is nil for nil.
func (p *prices) of(model string) *price {
	if p == nil {
		return nil
	}
	return &price{}
}

func (p *price) cost(t tokens) int64 { return t.input + t.output }

func (c *compiler) usd(in *Cost) *prices { return &prices{} }
