package stores

import (
	"context"
	"errors"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

func kind(err error) redisstore.Kind {
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		return e.Kind
	}
	return 0
}

// logDangers logs settings of a server that endanger limits.
func (s *Store) logDangers(ctx context.Context, shared *redisstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found, err := shared.Dangers(ctx)
	if err != nil {
		s.log.Warn("the store's settings could not be read", "error", err)
	}
	if evicts, err := shared.EvictsByExpiry(ctx); err == nil {
		s.byExpiry.Store(evicts)
	}
	for _, d := range found {
		s.log.Warn("unsafe store settings", "danger", d)
	}
}

const (
	lossesEvery    = time.Second // how often the losses of the memory are read
	lossesLogEvery = time.Minute // how often they are logged, at most
)

// start starts the goroutine that runs until s is closed.
func start(s *Store) *Store {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watching.Go(func() { s.watchLosses(ctx) })
	return s
}

// watchLosses logs when more keys are limited than memory has room for.
func (s *Store) watchLosses(ctx context.Context) {
	ticker := time.NewTicker(lossesEvery)
	defer ticker.Stop()
	var logged memory.Losses
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l := s.memory.Losses()
			if l.Freed == logged.Freed && l.Refused == logged.Refused || now.Before(next) {
				continue
			}
			s.log.Warn("memory is too small for all limited keys: find the clients that send so many keys, or raise the memory size",
				"freed", l.Freed-logged.Freed, "refused", l.Refused-logged.Refused)
			logged, next = l, now.Add(lossesLogEvery)
		}
	}
}
