package rls

import (
	"fmt"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// overrideLimit is a limit that a request carries (Envoy's "limit" override), in the form in which the response
// reports the limit.
type overrideLimit struct {
	requests, multiplier uint32
	unit                 unit
}

func (l *overrideLimit) period() time.Duration {
	return time.Duration(units[l.unit].seconds) * time.Duration(l.multiplier) * time.Second
}

// maxPeriod is the longest period of a limit that a request may carry.
const maxPeriod = 10 * 365 * 24 * time.Hour

// broughtRule is used as the name of the rule for limits that requests carry.
const broughtRule = "envoy"

// override replaces all limits for a descriptor with the limit that the descriptor carries.
func (c *call) override(i int) error {
	d, p := &c.request.descriptors[i], &c.parts[i]
	o := &d.limit
	l := overrideLimit{requests: o.requests, unit: unit(o.unit), multiplier: 1}
	if o.hasMultiplier {
		l.multiplier = o.multiplier
	}
	switch limits := c.Limits(); {
	case limits != nil && limits.domains[c.request.domain] == nil:
		return nil // not limited, like any descriptor of an unknown domain
	case l.unit < second || l.unit > year:
		return fmt.Errorf("descriptors[%d].limit.unit: %d is not a unit", i, o.unit)
	case l.multiplier == 0:
		return fmt.Errorf("descriptors[%d].limit.unit_multiplier: it is 0", i)
	case int64(l.multiplier) > int64(maxPeriod/time.Second) || l.period() > maxPeriod:
		return fmt.Errorf("descriptors[%d].limit.unit_multiplier: the period is longer than ten years", i)
	}
	p.plan = l
	if l.requests == 0 {
		p.unasked, p.closed = true, c.request.cost(d) > 0 && !d.negative
		c.asked[i].Mode = policy.Peek // the rules only peek, and their results are not used
		return nil
	}
	plan, err := c.plans.Get(l, c.newPlan)
	if err != nil {
		return fmt.Errorf("descriptors[%d].limit: %w", i, err)
	}
	p.brought = true
	c.asked[i].Subject = c.Engine.Adhoc(broughtRule, c.keyOf(d), plan, c.OnError)
	return nil
}

func (s *service) newPlan(l overrideLimit) (*sluice.Plan, error) {
	return sluice.NewPlan(sluice.Limit{Count: int64(l.requests), Period: l.period(), Algorithm: s.Algorithm})
}

// keyOf returns a text that is different for each descriptor.
func (c *call) keyOf(d *descriptor) string {
	k := sluice.AppendKeyPart(c.shape[:0], c.request.domain)
	for _, e := range c.request.entriesOf(d) {
		k = append(sluice.AppendKeyPart(append(k, '/'), e.key), '/')
		k = sluice.AppendKeyPart(k, e.value)
	}
	c.shape = k
	return string(k)
}
