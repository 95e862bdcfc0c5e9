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
	warnAfter      = 3 // failures in a row, while the shared store is in use, before a warning
)

// watchIdle probes the shared store now and then, so that an instance without traffic also notices that the store
// is unavailable. It also keeps the number of instances up to date.
func (s *Store) watchIdle() {
	b := heartbeats{s: s}
	for s.ctx.Err() == nil {
		b.beat()
		pause(s.ctx, jittered(idleProbeEvery))
		suspect(*s.shards.Load())
	}
}

// heartbeats has the results of the heartbeats so far.
type heartbeats struct {
	s           *Store
	fewerSince  time.Time // when the number of instances last fell
	failedInRow int       // heartbeats that have failed in a row
}

func (b *heartbeats) beat() {
	ctx, cancel := context.WithTimeout(b.s.ctx, beatDeadline)
	defer cancel()
	n, err := b.s.shared.Heartbeat(ctx, b.s.id)
	switch {
	case !b.s.countInstances: // the heartbeat still lets others count this instance, and informs the wrapped stores
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

// failed logs once if only heartbeats fail. An unavailable shared store is logged elsewhere.
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

// counted accepts a count of the instances. A lower count has to last for a while, because a restarted store has
// forgotten all instances, and learns of them one heartbeat at a time.
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
