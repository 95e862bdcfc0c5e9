package answer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Settle waits for the turn of a request that a leaky bucket has queued. If the client leaves before the turn, or the
// deadline of ctx is earlier than the turn, Settle makes d a denial and gives up the turn: it calls giveBack with a
// context that has not ended.
//
// Before the wait, Settle calls drain, if not nil, to read the rest of the request, because only then does a server
// notice that the client has left. An error of drain means that the client has left.
//
// If on_error has decided in place of the store, and ctx has ended by then, Settle makes d a denial. Otherwise, a client
// could leave before the store answers, and its request would be allowed without being counted.
func Settle(ctx context.Context, d *policy.Decision, drain func() error, giveBack func(context.Context)) {
	if d.Degraded || d.Delay > 0 {
		settle(ctx, d, drain, giveBack)
	}
}

func settle(ctx context.Context, d *policy.Decision, drain func() error, giveBack func(context.Context)) {
	switch {
	case d.Degraded && ctx.Err() != nil:
		if d.Held() || d.Unsettled() {
			giveBack(context.WithoutCancel(ctx))
		}
		*d = policy.Decision{Degraded: true, Unavailable: true, RetryAfter: time.Second, Results: d.Results[:0], Form: d.Form}
	case d.Allowed && d.Delay > 0:
		if !wait(ctx, d.Delay, drain) {
			giveBack(context.WithoutCancel(ctx))
			expire(d)
		}
	}
}

var waiting atomic.Int64

// Waiting returns how many requests in this process wait in [Settle] for their turn.
func Waiting() int { return int(waiting.Load()) }

// wait waits for the turn, which comes after the given delay, and reports whether it has come.
func wait(ctx context.Context, delay time.Duration, drain func() error) bool {
	turn := time.Now().Add(delay)
	if deadline, bounded := ctx.Deadline(); bounded && deadline.Before(turn) {
		return false
	}
	if drain != nil && drain() != nil {
		return false
	}
	waiting.Add(1)
	defer waiting.Add(-1)
	t := time.NewTimer(time.Until(turn))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// expire makes d a denial because its turn did not come in time. The state of the limits in d is no longer valid,
// because time has passed and the turn was given up.
func expire(d *policy.Decision) {
	d.Allowed, d.RetryAfter, d.Now = false, d.Delay, 0
	for i := range d.Results {
		if r := &d.Results[i]; r.Delay > 0 {
			r.Allowed, r.RetryAfter = false, r.Delay
		}
	}
}

// Outage logs when the store stops answering, and when it answers again: one line for each change, not for each
// request.
type Outage struct {
	Logger *slog.Logger // slog.Default() if nil
	lasts  atomic.Bool  // an outage has started and not ended
}

// Note logs a change if d shows one. With a failover.Store, Note logs nothing, because that store returns no errors,
// and logs outages itself.
func (o *Outage) Note(d *policy.Decision) {
	failed := d.Err != nil
	if !failed && d.Now == 0 || // the store was not called
		len(d.Results) == 0 || o.lasts.Load() == failed || !o.lasts.CompareAndSwap(!failed, failed) {
		return
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.Default()
	}
	if failed {
		logger.Warn("the store is unavailable: limits are decided without it", "error", d.Err)
	} else {
		logger.Info("the store is available again")
	}
}
