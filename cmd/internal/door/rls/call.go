package rls

import (
	"context"
	"math"
	"net/netip"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// call is the memory of one call. Later calls reuse it.
type call struct {
	*service
	request request
	parts   []part // one for each descriptor
	asked   []policy.Request
	asking  []*policy.Request
	ds      []policy.Decision
	shape   []byte
}

// part is the state of a descriptor.
type part struct {
	limit      *limit // the descriptor's limit in the configuration, or nil
	attributes map[string]string
	plan       overrideLimit // the limit that the request itself carries
	brought    bool          // plan is charged in place of rules
	unasked    bool          // plan is a limit of 0, which is not passed to the engine
	closed     bool          // denied, because plan is a limit of 0
	over       bool
}

// maxKept is the maximum number of descriptors for which a call keeps its memory.
const maxKept = 16

// end prepares the call for reuse.
func (c *call) end() {
	for i := range c.parts {
		clear(c.parts[i].attributes)
		c.asked[i] = policy.Request{}
	}
	if cap(c.parts) > maxKept {
		*c = call{service: c.service}
	}
}

// answer decides about the request, and encodes the response.
func (c *call) answer(ctx context.Context) (*reply, error) {
	if c.request.fault != nil {
		return nil, c.request.fault
	}
	if err := c.request.check(); err != nil {
		return nil, invalid(err)
	}
	c.grow(len(c.request.descriptors))
	c.find()
	if err := c.ask(); err != nil {
		return nil, invalid(err)
	}
	over := c.decide(ctx)
	return c.encode(over), nil
}

// grow sets the length of the call's slices to n, the number of descriptors.
func (c *call) grow(n int) {
	for len(c.parts) < n {
		c.parts = append(c.parts, part{attributes: make(map[string]string)})
	}
	c.parts = c.parts[:n]
	if cap(c.asked) < n {
		c.asked, c.asking, c.ds = make([]policy.Request, n), make([]*policy.Request, n), append(c.ds[:cap(c.ds)], make([]policy.Decision, n-cap(c.ds))...)
	}
	c.asked, c.asking, c.ds = c.asked[:n], c.asking[:n], c.ds[:n]
	for i := range c.asked {
		c.asking[i] = &c.asked[i]
	}
}

// find finds the limit of each descriptor in the configuration.
func (c *call) find() {
	limits := c.Limits()
	replaces := false
	for i := range c.request.descriptors {
		d, p := &c.request.descriptors[i], &c.parts[i]
		*p = part{attributes: p.attributes}
		if limits == nil || d.hasLimit {
			continue
		}
		if p.limit = limits.find(c.request.domain, c.request.entriesOf(d)); p.limit != nil {
			replaces = replaces || len(p.limit.replaces) > 0
		}
	}
	if replaces {
		c.replace()
	}
}

// replace drops each limit that another limit of the request replaces.
func (c *call) replace() {
	replaced := make(map[string]bool)
	for i := range c.parts {
		if l := c.parts[i].limit; l != nil {
			for _, name := range l.replaces {
				replaced[name] = true
			}
		}
	}
	for i := range c.parts {
		if l := c.parts[i].limit; l != nil && !l.unlimited && l.name != "" && replaced[l.name] {
			c.parts[i].limit = nil
		}
	}
}

// ask makes a policy.Request for each descriptor.
func (c *call) ask() error {
	for i := range c.request.descriptors {
		d, r := &c.request.descriptors[i], &c.asked[i]
		c.fill(d, &c.parts[i], r)
		switch r.Cost = c.request.cost(d); {
		case d.negative && r.Cost > 0:
			r.Mode = policy.GiveBack
		case r.Cost == 0:
			r.Mode, r.Cost = policy.Peek, 1
		}
		if d.hasLimit {
			if err := c.override(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill sets the attributes of a descriptor. Rules match by these attributes.
func (c *call) fill(d *descriptor, p *part, r *policy.Request) {
	entries := c.request.entriesOf(d)
	*r = policy.Request{Door: "rls", Attributes: p.attributes}
	p.attributes[domainAttribute] = c.request.domain
	c.shape = appendShape(c.shape[:0], entries)
	p.attributes[descriptorAttribute] = string(c.shape)
	if p.limit != nil && !p.limit.unlimited {
		p.attributes[limitAttribute] = p.limit.rule
	}
	for i := range entries {
		e := &entries[i]
		p.attributes[attributeName(e.key, countKeys(entries[:i], e.key))] = e.value
		if e.key == "remote_address" {
			r.Peer, _ = netip.ParseAddr(e.value)
		}
	}
}

// decide charges the descriptors, and reports whether the request is over a limit.
func (c *call) decide(ctx context.Context) (over bool) {
	charged := true
	switch {
	case len(c.asking) == 1:
		c.Engine.DecideInto(ctx, c.asking[0], &c.ds[0])
		charged = false
	case c.CountRefused:
		c.Engine.DecideEach(ctx, c.asking, c.ds)
	default:
		charged = c.Engine.DecideTogether(ctx, c.asking, c.ds)
	}
	over = c.weigh()
	switch {
	case c.CountRefused:
		c.useUp(ctx)
	case over && charged:
		c.giveBack(ctx)
	}
	return over
}

// weigh determines which descriptors are over a limit, and reports whether the whole request is over a limit.
// Quotas deny a request only if all quotas of the request are used up.
func (c *call) weigh() (over bool) {
	quotas, spent := 0, 0
	watchOnly := c.Engine.Policy().WatchOnly()
	for i := range c.parts {
		p, d := &c.parts[i], &c.ds[i]
		if c.outage.Note(d); watchOnly {
			p.over = false // even if a quota is used up, or the request carries a limit of 0
			continue
		}
		p.over = p.closed || !p.unasked && !d.Allowed && c.asked[i].Mode != policy.GiveBack
		over = over || p.over
		if p.limit != nil && p.limit.quota {
			quotas++
			if c.overQuota(i) {
				p.over = true
				spent++
			}
		}
	}
	return over || quotas > 0 && spent == quotas
}

// giveBack gives back the charges of a request that is denied for a reason that the engine does not know: a quota,
// or a limit at which the engine only peeked.
func (c *call) giveBack(ctx context.Context) {
	c.again(ctx, func(i int) bool {
		r := &c.asked[i]
		charged := r.Mode == policy.Charge && !c.parts[i].over
		c.Engine.LeaveQueue(c.ds[i])
		r.Mode = policy.GiveBack
		return charged
	})
}

// useUp charges the rest of the units. If the cost of a descriptor did not fit, it charges the descriptor the units
// that remain of its limits.
func (c *call) useUp(ctx context.Context) {
	c.again(ctx, func(i int) bool {
		r := &c.asked[i]
		if r.Mode != policy.Charge || r.Cost < 2 {
			return false
		}
		r.Cost = leftBy(&c.ds[i])
		return r.Cost > 0
	})
}

// againTimeout bounds the time of a second decision. The store may have no deadline of its own.
const againTimeout = time.Second

// again decides a second time about the selected descriptors, and ignores the decisions. It continues after the
// caller has left: by default, Envoy waits only 20 ms, but charges must be given back even then.
func (c *call) again(ctx context.Context, which func(i int) bool) {
	var some []*policy.Request
	for i := range c.asked {
		if which(i) {
			some = append(some, &c.asked[i])
		}
	}
	if len(some) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), againTimeout)
	defer cancel()
	c.Engine.DecideEach(ctx, some, make([]policy.Decision, len(some)))
}

// overQuota reports whether a descriptor is over its quota. The engine does not deny the descriptor, because the
// rule of a quota is in shadow mode.
func (c *call) overQuota(i int) bool {
	r := resultOf(&c.ds[i], c.parts[i].limit)
	return r != nil && !r.Allowed && c.asked[i].Mode != policy.GiveBack
}

// resultOf returns the result of a limit in the configuration, or nil.
func resultOf(d *policy.Decision, l *limit) *policy.Result {
	if l == nil {
		return nil
	}
	for i := range d.Results {
		if r := &d.Results[i]; r.Rule == l.rule {
			return r
		}
	}
	return nil
}

// leftBy returns the number of units that a descriptor can use up. This is the smallest remainder of the limits
// that its cost exceeds, including limits in shadow mode.
func leftBy(d *policy.Decision) int64 {
	least := int64(math.MaxInt64)
	for i := range d.Results {
		switch r := &d.Results[i]; {
		case r.Allowed:
		case r.Plan == nil: // a rule with block
			return 0
		default:
			least = min(least, r.Plan.Limit.Value(r.Remaining))
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}
