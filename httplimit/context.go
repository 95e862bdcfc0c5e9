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

// DecisionFrom returns the decision that allowed a request, from the request's context. It reports false unless the
// request has passed a middleware with [Config] KeepDecision. After several such middleware, the innermost one's
// decision is returned. The decision stays valid. All callers share its results: do not change them.
func DecisionFrom(ctx context.Context) (d policy.Decision, found bool) {
	kept, _ := ctx.Value(decisionKey{}).(*policy.Decision)
	if kept == nil {
		return policy.Decision{}, false
	}
	return *kept, true
}
