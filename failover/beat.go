package failover

import (
	"context"
	"time"
)

const (
	lookEvery    = time.Second
	beatDeadline = time.Second
	fewerFor     = 5 * time.Second
	maxInstances = 1 << 10
	beatsInVain  = 3 // in a row, while the shared store is in use, are worth a line
)

// look keeps an eye on the shared store, so that an instance without traffic learns as well
// that it is away, and keeps the number of instances up to date.
func (s *Store) look() {
	b := beats{s: s}
	for s.ctx.Err() == nil {
		if s.beats {
			b.beat()
		}
		pause(s.ctx, jittered(lookEvery))
		suspect(*s.shards.Load())
	}
}

// beats is what is known from the heartbeats so far.
type beats struct {
	s     *Store
	fewer time.Time // since when there are fewer instances than before
	vain  int       // heartbeats that have failed in a row
}

func (b *beats) beat() {
	ctx, cancel := context.WithTimeout(b.s.ctx, beatDeadline)
	defer cancel()
	n, err := b.s.shared.Heartbeat(ctx, b.s.id)
	switch {
	case err == nil:
		if b.vain >= beatsInVain {
			b.s.log.Info("the instances are counted again", "instances", n)
		}
		b.vain = 0
		b.counted(int64(min(max(1, n), maxInstances)))
	case b.s.ctx.Err() == nil:
		b.failed(err)
	}
}

// failed says once if only heartbeats fail. That the shared store is away is said elsewhere.
func (b *beats) failed(err error) {
	b.fewer = time.Time{}
	if b.vain < beatsInVain && b.s.Status().Degraded() {
		b.vain = 0
		return
	}
	if b.vain++; b.vain == beatsInVain {
		b.s.log.Warn("the instances cannot be counted: while the shared store is away, each one limits to its share of the number known last",
			"instances", b.s.instances.Load(), "error", err)
	}
}

// counted takes over a count of the instances. If there are fewer than before, that has to
// last: a store that was restarted has forgotten all of them, and counts those first whose
// heartbeats come first.
func (b *beats) counted(n int64) {
	if n < b.s.instances.Load() {
		if b.fewer.IsZero() {
			b.fewer = time.Now()
		}
		if time.Since(b.fewer) < fewerFor {
			return
		}
	}
	b.fewer = time.Time{}
	b.s.instances.Store(n)
}
