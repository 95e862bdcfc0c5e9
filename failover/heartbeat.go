package failover

import (
	"context"
	"time"
)

const (
	idleProbeEvery = time.Second
	beatDeadline   = time.Second
	fewerFor       = 5 * time.Second
	maxInstances   = 1 << 10
	warnAfter      = 3 // a warning is logged after this many failures in a row while the shared store is in use
)

// watchIdle probes the shared store once a second, so that even an instance without traffic notices when the store
// is unavailable. It also keeps the number of instances up to date.
func (s *Store) watchIdle() {
	b := heartbeats{s: s}
	for s.ctx.Err() == nil {
		b.beat()
		pause(s.ctx, jittered(idleProbeEvery))
		suspect(*s.shards.Load())
	}
}

// heartbeats has the results of the latest heartbeats.
type heartbeats struct {
	s           *Store
	fewerSince  time.Time // the time since which the count has been lower than the number in use, or zero
	failedInRow int       // heartbeats that have failed in a row
}

func (b *heartbeats) beat() {
	ctx, cancel := context.WithTimeout(b.s.ctx, beatDeadline)
	defer cancel()
	n, err := b.s.shared.Heartbeat(ctx, b.s.id)
	switch {
	case !b.s.countInstances: // the result is not needed, but the heartbeat is: other instances count this one by it, and wrapped stores use it
	case err == nil:
		if b.failedInRow >= warnAfter {
			b.s.log.Info("the number of instances is known again", "instances", n)
		}
		b.failedInRow = 0
		b.counted(int64(min(max(1, n), maxInstances)))
	case b.s.ctx.Err() == nil:
		b.failed(err)
	}
}

// failed logs once if heartbeats fail while the shared store answers other calls. Outages of the shared store are
// logged by the shards.
func (b *heartbeats) failed(err error) {
	b.fewerSince = time.Time{}
	if b.failedInRow < warnAfter && b.s.Status().Degraded() {
		b.failedInRow = 0
		return
	}
	if b.failedInRow++; b.failedInRow == warnAfter {
		b.s.log.Warn("cannot count the instances: if the shared store becomes unavailable, limits are divided by the last known number",
			"instances", b.s.instances.Load(), "error", err)
	}
}

// counted accepts a count of the instances. A lower count has to last for a while, because a store that was
// restarted has forgotten all instances, and counts each again only after its next heartbeat.
func (b *heartbeats) counted(n int64) {
	if n < b.s.instances.Load() {
		if b.fewerSince.IsZero() {
			b.fewerSince = time.Now()
		}
		if time.Since(b.fewerSince) < fewerFor {
			return
		}
	}
	b.fewerSince = time.Time{}
	b.s.instances.Store(n)
}
