package stores

import (
	"context"
	"errors"
	"time"
)

// Board passes messages between instances that share a store: see [redisstore.Store.Post].
type Board struct{ store *Store }

// Board returns the Board of a shared store, or nil for memory.
func (s *Store) Board() *Board {
	if s.failover == nil {
		return nil
	}
	return &Board{s}
}

var errNotOpen = errors.New("stores: the shared store could not be opened yet")

// Post stores a message of an instance, which expires after the duration keepFor. The message replaces the previous
// one of the instance in the same part. Each part is a separate set of messages, at most one from each instance.
func (b *Board) Post(ctx context.Context, part, instance string, message []byte, keepFor time.Duration) error {
	shared := b.store.shared.Load()
	if shared == nil {
		return errNotOpen
	}
	return shared.Post(ctx, part, instance, message, keepFor)
}

// Posted returns the messages of all instances in a part, by the names of the instances.
func (b *Board) Posted(ctx context.Context, part string) (map[string][]byte, error) {
	shared := b.store.shared.Load()
	if shared == nil {
		return nil, errNotOpen
	}
	return shared.Posted(ctx, part)
}
