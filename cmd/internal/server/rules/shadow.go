package rules

import (
	"context"
	"time"
)

// followShadow logs within a second that the shadow mode of the whole policy has ended. The mode ends by itself,
// without a new policy.
func (r *Rules) followShadow(ctx context.Context) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
			r.logShadow()
		}
	}
}

// logShadow logs once that the shadow mode of the whole policy has started or ended.
func (r *Rules) logShadow() {
	now := r.engine.Policy()
	if r.shadowLogged.Swap(now.WatchOnly()) == now.WatchOnly() {
		return
	}
	if !now.WatchOnly() {
		const text = "the policy is enforced again: shadow mode has ended"
		r.Log.Info(text)
		r.note("reload", text)
		return
	}
	until := "that is taken away"
	if ends, _ := now.ShadowUntil(); !ends.IsZero() {
		until = ends.Format(time.RFC3339)
	}
	r.Log.Warn("NOTHING IS DENIED: the whole policy is in shadow mode; every rule only counts and reports", "until", until)
	r.note("reload", "nothing is denied any more: the whole policy is in shadow mode until "+until)
}
