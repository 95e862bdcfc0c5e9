package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/sluicehq/sluice"
)

// single decides by one limiter.
type single struct {
	limiter *sluice.Limiter
	key     func(*http.Request) string
	name    string
	deny    bool
}

func (s *single) decide(c *call) {
	c.key = s.key(c.r)
	d, err := s.limiter.Take(c.r.Context(), c.key, 1)
	one, all := &c.results[0], &c.decision
	one.Rule, one.Plan, one.Cost, one.Decision = s.name, s.limiter.Plan(), 1, d
	all.Allowed, all.RetryAfter, all.Delay, all.Now, all.Results = d.Allowed, d.RetryAfter, d.Delay, d.Now, c.results[:]
	if err != nil || d.Local {
		c.decision.Degraded, c.decision.Err, c.decision.Now = true, err, 0
		c.decision.Allowed, c.decision.Unavailable = !s.deny, s.deny
		c.decision.RetryAfter = time.Second
	}
}

func (s *single) giveBack(ctx context.Context, c *call) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_, _ = s.limiter.Refund(ctx, c.key, 1)
}
