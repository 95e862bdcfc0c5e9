// Package recipes has the code of docs/recipes.md, so that it is compiled and tested.
package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/policy"
)

// send sends the messages, each as soon as the limit allows it.
func send(ctx context.Context, limiter *sluice.Limiter, messages []string, one func(string) error) error {
	for _, m := range messages {
		if err := limiter.Wait(ctx, "mail", 1); err != nil {
			return fmt.Errorf("sending %q: %w", m, err)
		}
		if err := one(m); err != nil {
			return err
		}
	}
	return nil
}

type userKey struct{}

// byUser counts by the user that the program's own middleware has stored in the context.
func byUser(engine *policy.Engine) func(http.Handler) http.Handler {
	return httplimit.Config{
		Attributes: func(r *http.Request, attributes map[string]string) {
			attributes["user"], _ = r.Context().Value(userKey{}).(string)
		},
	}.Policy(engine)
}

// logins counts failed logins, and locks out a name after five.
type logins struct {
	failures *sluice.Limiter
	check    func(name, password string) bool
}

func newLogins(store sluice.Store, check func(name, password string) bool) (*logins, error) {
	limit, err := sluice.ParseLimit("5/hour")
	if err != nil {
		return nil, err
	}
	limit.Algorithm = sluice.SlidingWindowLog
	failures, err := sluice.NewLimiter(store, "login", limit)
	if err != nil {
		return nil, err
	}
	failures.OnError = sluice.Deny
	return &logins{failures, check}, nil
}

var errTooManyFailures = errors.New("too many failed logins")

// login takes a unit before it checks the password, and refunds the unit if the password is right. So even if
// many attempts arrive at once, at most five are checked.
func (l *logins) login(ctx context.Context, name, password string) (ok bool, err error) {
	d, err := l.failures.Take(ctx, name, 1)
	if err != nil {
		return false, err
	}
	if !d.Allowed {
		return false, errTooManyFailures
	}
	if !l.check(name, password) {
		return false, nil
	}
	_, err = l.failures.Refund(ctx, name, 1)
	return true, err
}
