package httplimit

import (
	"context"

	"github.com/sluicehq/sluice/policy"
)

// maxRoom is the most results that there is room for from one request to the next.
const maxRoom = 64

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
	if n := cap(c.decision.Results); n > cap(c.request.Room) && n <= maxRoom {
		c.request.Room = c.decision.Results
	}
}

func (p *whole) giveBack(ctx context.Context, c *call) { p.engine.Refund(ctx, c.decision) }
