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
}

func (s *single) decide(c *call) {
	c.key = s.key(c.r)
	d, err := s.limiter.Take(c.r.Context(), c.key, 1)
	one, all := &c.results[0], &c.decision
	one.Rule, one.Plan, one.Cost, one.Decision = s.name, s.limiter.Plan(), 1, d
	all.Allowed, all.RetryAfter, all.Delay, all.Now, all.Results = d.Allowed, d.RetryAfter, d.Delay, d.Now, c.results[:]
	all.Degraded = d.Local
	deny := s.limiter.OnError == sluice.Deny
	if err != nil {
		all.Degraded, all.Err, all.Allowed = true, err, !deny
		all.RetryAfter = time.Second
	}
	if all.Degraded && deny {
		all.Unavailable, all.Now = true, 0
	}
}

func (s *single) giveBack(ctx context.Context, c *call) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_, _ = s.limiter.Refund(ctx, c.key, 1)
}
