package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// single decides by one limiter.
type single struct {
	limiter *sluice.Limiter
	key     func(*http.Request) string
	name    string
}

func (s *single) decide(c *call) {
	c.key = s.key(c.r)
	d, err := s.limiter.Take(c.r.Context(), c.key, 1)
	c.results[0] = policy.Result{Rule: s.name, Plan: s.limiter.Plan(), Cost: 1, Decision: d}
	c.decision = policy.Decision{
		Allowed: d.Allowed, RetryAfter: d.RetryAfter, Delay: d.Delay,
		Now: d.Now, Results: c.results[:], Degraded: d.Local,
	}
	deny := s.limiter.OnError == sluice.Deny
	if err != nil {
		c.decision.Degraded, c.decision.Err, c.decision.Allowed = true, err, !deny
		c.decision.RetryAfter = time.Second
	}
	if c.decision.Degraded && deny {
		c.decision.Unavailable, c.decision.Now = true, 0
	}
}

func (s *single) giveBack(ctx context.Context, c *call) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_, _ = s.limiter.Refund(ctx, c.key, 1)
}
