package httplimit

import (
	"context"

	"github.com/sluicehq/sluice/policy"
)

// maxResults is the most results that memory is kept for from one request to the next.
const maxResults = 64

// policyDecider decides by a policy.
type policyDecider struct {
	engine *policy.Engine
	header string // see ClientIP.Header
}

func (p *policyDecider) decide(c *call) {
	r := c.r
	c.request.Method, c.request.Host = r.Method, r.Host
	c.request.Path, c.request.RawQuery = r.URL.EscapedPath(), r.URL.RawQuery
	c.request.Header = r.Header
	c.request.Client = clientAddr(r, p.engine.TrustedProxies(), p.header)
	c.request.Room = c.decision.Results
	c.decision = p.engine.Decide(r.Context(), &c.request)
	if c.decision.Results == nil {
		c.decision.Results = c.request.Room[:0]
	}
}

func (p *policyDecider) giveBack(ctx context.Context, c *call) { p.engine.Refund(ctx, c.decision) }
