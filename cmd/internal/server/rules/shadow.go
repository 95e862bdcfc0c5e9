package rules

import (
	"context"
	"time"
)

// followShadow logs the end of the shadow mode of the whole policy within a second. The mode can end without a new
// policy.
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

// logShadow logs the start and the end of the shadow mode of the whole policy, each once.
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
	until := "the setting is removed"
	if ends, _ := now.ShadowUntil(); !ends.IsZero() {
		until = ends.Format(time.RFC3339)
	}
	r.Log.Warn("NOTHING IS DENIED: the whole policy is in shadow mode; every rule only counts and reports", "until", until)
	r.note("reload", "nothing is denied any more: the whole policy is in shadow mode until "+until)
}
