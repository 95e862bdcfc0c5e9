package httplimit

import (
	"context"
	"net/http"

	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/policy"
)

// maxResults is the most results that memory is kept for from one request to the next.
const maxResults = 64

// policyDecider decides by a policy.
type policyDecider struct {
	engine      *policy.Engine
	header      string                                 // see ClientIP.Header
	attributes  func(*http.Request, map[string]string) // see Config
	id          func(*http.Request) string             // likewise RequestID
	door        string                                 // likewise
	fingerprint func(*http.Request) string             // likewise
	ends        bool                                   // see policy.Request
}

// attributes returns the map for those of the request, which is empty.
func (c *call) attributes() map[string]string {
	if c.request.Attributes == nil {
		c.request.Attributes = make(map[string]string)
	}
	return c.request.Attributes
}

func (p *policyDecider) decide(c *call) {
	r := c.r
	c.request.Method, c.request.Door, c.request.Ends = r.Method, p.door, p.ends
	c.request.Path, c.request.RawQuery = r.URL.EscapedPath(), r.URL.RawQuery
	p.describe(c)
	if p.id != nil {
		c.request.ID = p.id(r)
	}
	p.engine.DecideInto(r.Context(), &c.request, &c.decision)
}

// describe fills in whom a request is from, and for which host.
func (p *policyDecider) describe(c *call) {
	r := c.r
	c.request.Host, c.request.Header = r.Host, r.Header
	c.request.ForwardedHeader = p.header
	if x, ok := c.w.(*exchange.Exchange); ok && x.Client.IsValid() {
		c.request.Peer, c.request.Client = x.Peer, x.Client
	} else {
		c.request.Peer = peer(r)
	}
	if p.fingerprint != nil {
		c.request.TLSFingerprint = p.fingerprint(r)
	}
	if p.attributes != nil {
		p.attributes(r, c.attributes())
	}
}

func (p *policyDecider) giveBack(ctx context.Context, c *call) { p.engine.Refund(ctx, c.decision) }

func (p *policyDecider) settle(s *settling, o policy.Outcome) {
	p.engine.Settle(s.request.Context(), s.decision, o)
}
