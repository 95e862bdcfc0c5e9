package httplimit

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// Choice is the limit of a request.
type Choice struct {
	// Limiter decides. If it is nil, the request passes uncounted.
	Limiter *sluice.Limiter
	// Key is what the request counts under: requests with equal keys share the limit.
	Key string
	// Cost is how many units it takes. Below 1 it is 1.
	Cost int64
}

// MissingError names what a request lacks to be counted, for example "an API key".
type MissingError string

func (e MissingError) Error() string { return "the request lacks " + string(e) }

// LimitBy returns a middleware that asks choose for the limit of each request: for keys that
// not all requests have, and for limits that differ from client to client, such as those of
// plans in a program's own database. Make limiters once, one for each limit, and not for each
// request.
//
// If choose returns an error, the request is refused: a [MissingError] with 400, and a body that names what is
// missing; any other error with 503, and it is logged. To let such requests pass, return an empty Choice and no
// error.
func LimitBy(choose func(*http.Request) (Choice, error)) func(http.Handler) http.Handler {
	return Config{}.LimitBy(choose)
}

// LimitBy is [LimitBy] with settings.
func (c Config) LimitBy(choose func(*http.Request) (Choice, error)) func(http.Handler) http.Handler {
	if choose == nil {
		panic("httplimit: LimitBy needs a function that chooses a limit")
	}
	return c.middleware(&door{choose: choose})
}

func (d *door) decideByLimiter(c *call) {
	choice, err := d.choose(c.r)
	choice.Cost = max(1, choice.Cost)
	switch l := choice.Limiter; {
	case err != nil:
		d.fail(c, err)
	case l == nil:
		c.decision = policy.Decision{Allowed: true, Exempt: true, Results: c.decision.Results[:0]}
	default:
		c.choice = choice
		c.await(l, choice.Key)
		answer.Take(c.r.Context(), l, cmp.Or(d.config.Name, l.Name(), "default"), choice.Key, choice.Cost, &c.decision)
	}
}

// fail refuses a request without a limit.
func (d *door) fail(c *call, err error) {
	c.decision = policy.Decision{Results: c.decision.Results[:0]}
	if missing, ok := errors.AsType[MissingError](err); ok {
		c.decision.Missing = cmp.Or(string(missing), "what it is counted by")
		return
	}
	c.decision.Unavailable, c.decision.Err, c.decision.RetryAfter = true, err, time.Second
	if c.r.Context().Err() == nil && d.failures.Opens(time.Second) {
		d.logger().Warn("a request is refused, since its limit could not be chosen", "error", err)
	}
}
