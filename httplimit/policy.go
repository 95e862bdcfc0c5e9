package httplimit

import (
	"context"

	"github.com/sluicehq/sluice/policy"
)

// whole decides by a whole policy.
type whole struct {
	engine *policy.Engine
	header string // see ClientIP.Header
}

func (p *whole) decide(c *call) {
	r := c.r
	c.request.Method, c.request.Host = r.Method, r.Host
	c.request.Path, c.request.RawQuery = r.URL.EscapedPath(), r.URL.RawQuery
	c.request.Header = r.Header
	c.request.Client = clientAddr(r, p.engine.TrustedProxies(), p.header)
	c.decision = p.engine.Decide(r.Context(), &c.request)
}

func (p *whole) giveBack(ctx context.Context, c *call) { p.engine.Refund(ctx, c.decision) }
