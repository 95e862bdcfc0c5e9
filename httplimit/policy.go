package httplimit

import (
	"github.com/sluicehq/sluice/internal/exchange"
)

// maxResults is the most results that memory is kept for from one request to the next.
const maxResults = 64

func (d *door) decideByPolicy(c *call) {
	r := c.r
	c.request.Method, c.request.Door, c.request.Ends = r.Method, d.config.Door, !d.config.AuthOnly
	c.request.Timed = c.request.Ends
	c.request.Path, c.request.RawQuery = r.URL.EscapedPath(), r.URL.RawQuery
	c.describe()
	if d.config.RequestID != nil {
		c.request.ID = d.config.RequestID(r)
	}
	d.engine.DecideInto(r.Context(), &c.request, &c.decision)
}

// describe fills in the peer and the host of a request.
func (c *call) describe() {
	r, config := c.r, &c.door.config
	c.request.Host, c.request.Header = r.Host, r.Header
	c.request.ForwardedHeader = config.ForwardedHeader
	if x, ok := c.w.(*exchange.Exchange); ok && x.Client.IsValid() {
		c.request.Peer, c.request.Client = x.Peer, x.Client
	} else {
		c.request.Peer = peer(r)
	}
	if config.TLSFingerprint != nil {
		c.request.TLSFingerprint = config.TLSFingerprint(r)
	}
	if config.Attributes != nil {
		config.Attributes(r, c.request.Attributes)
	}
}
