package httplimit

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// taken is the charge of a limiter that the outcome of the request may correct. It is zero without
// [Config].AwaitOutcome.
type taken struct {
	limiter *sluice.Limiter
	key     string
	at      time.Time // a time before the store counted the charge
}

// await records the charge that l is about to take, if [Config].AwaitOutcome is set.
func (c *call) await(l *sluice.Limiter, key string) {
	if c.door.config.AwaitOutcome {
		c.taken = taken{l, key, time.Now()}
	}
}

// settle corrects the charge by the outcome that the handler has set.
func (t *taken) settle(s *settling, o policy.Outcome) {
	switch {
	case o.Verdict == policy.CountsNot:
		t.adjust(s.request.Context(), &s.decision, 0)
	case o.Cost != 0:
		t.adjust(s.request.Context(), &s.decision, max(0, o.Cost))
	}
}

// adjust corrects the cost of the charge, only once.
func (t *taken) adjust(ctx context.Context, d *policy.Decision, cost int64) {
	if t.limiter != nil {
		answer.Adjust(ctx, t.limiter, t.key, d, t.at, cost)
		t.limiter = nil
	}
}
