package httplimit

import (
	"context"
	"net/http"

	"github.com/sluicehq/sluice/policy"
)

type decisionKey struct{}

// withDecision returns r with a copy of d in its context.
func withDecision(r *http.Request, d *policy.Decision) *http.Request {
	kept := d.Clone()
	return r.WithContext(context.WithValue(r.Context(), decisionKey{}, &kept))
}

// DecisionFrom returns the decision that let a request pass, from the request's context. It is found behind a
// middleware with [Config] KeepDecision; behind several, it is that of the innermost. The decision stays valid. Its
// results are shared by all callers: do not change them.
func DecisionFrom(ctx context.Context) (d policy.Decision, found bool) {
	kept, _ := ctx.Value(decisionKey{}).(*policy.Decision)
	if kept == nil {
		return policy.Decision{}, false
	}
	return *kept, true
}
