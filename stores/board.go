package stores

import (
	"context"
	"errors"
	"time"
)

// Board carries messages between instances that share a store: see [redisstore.Store.Post].
type Board struct{ store *Store }

// Board returns that of a shared store, or nil.
func (s *Store) Board() *Board {
	if s.failover == nil {
		return nil
	}
	return &Board{s}
}

var errNotOpen = errors.New("stores: the shared store could not be opened yet")

// Post stores a part of an instance's message until it expires.
func (b *Board) Post(ctx context.Context, part, instance string, said []byte, expires time.Duration) error {
	shared := b.store.shared.Load()
	if shared == nil {
		return errNotOpen
	}
	return shared.Post(ctx, part, instance, said, expires)
}

// Posted returns one part of the messages of all instances, by instance.
func (b *Board) Posted(ctx context.Context, part string) (map[string][]byte, error) {
	shared := b.store.shared.Load()
	if shared == nil {
		return nil, errNotOpen
	}
	return shared.Posted(ctx, part)
}
