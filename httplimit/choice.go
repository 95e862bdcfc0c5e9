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
	// Limiter has the limit. If it is nil, the request passes uncounted.
	Limiter *sluice.Limiter
	// Key is the key under which the request counts: requests with equal keys share the limit.
	Key string
	// Cost is the number of units that the request takes. A value below 1 means 1.
	Cost int64
}

// MissingError is the error for a request without a key. Its text names the value that is missing, for example "an
// API key".
type MissingError string

func (e MissingError) Error() string { return "the request lacks " + string(e) }

// LimitBy returns a middleware that calls choose to find the limit of each request. Use it if some requests have no
// key, or if limits differ from client to client, such as limits in your database. Make one limiter for each limit,
// and not for each request, or use [sluice.Limiter.With].
//
// If choose returns a [MissingError], the request is answered with 400 and a body that names what is missing. After
// any other error, the request is answered with 503, and the error is logged, at most once a second. To let such
// requests pass, return an empty Choice and no error.
func LimitBy(choose func(*http.Request) (Choice, error)) func(http.Handler) http.Handler {
	return Config{}.LimitBy(choose)
}

// LimitBy does what the function [LimitBy] does, with the settings of c.
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

// fail denies a request for which choose has returned an error.
func (d *door) fail(c *call, err error) {
	c.decision = policy.Decision{Results: c.decision.Results[:0]}
	if missing, ok := errors.AsType[MissingError](err); ok {
		c.decision.Missing = cmp.Or(string(missing), "the value that it is counted by")
		return
	}
	c.decision.Unavailable, c.decision.Err, c.decision.RetryAfter = true, err, time.Second
	if c.r.Context().Err() == nil && d.failures.Opens(time.Second) {
		d.logger().Warn("request denied: its limit could not be chosen", "error", err)
	}
}
