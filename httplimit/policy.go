package httplimit

import (
	"github.com/sluicehq/sluice/internal/exchange"
)

// maxResults is the capacity up to which the memory for results is reused for the next request.
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

// describe fills in the fields of the request that do not depend on its path: host, header, addresses, fingerprint
// and attributes.
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
