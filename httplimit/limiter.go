package httplimit

import (
	"context"
	"net/http"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
)

// limiterDecider decides by one limiter.
type limiterDecider struct {
	limiter *sluice.Limiter
	key     func(*http.Request) string
	name    string
}

func (l *limiterDecider) decide(c *call) {
	c.key = l.key(c.r)
	answer.Take(c.r.Context(), l.limiter, l.name, c.key, &c.decision)
}

func (l *limiterDecider) giveBack(ctx context.Context, c *call) {
	answer.GiveBack(ctx, l.limiter, c.key)
}
