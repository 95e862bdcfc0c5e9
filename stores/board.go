package stores

import (
	"context"
	"errors"
	"time"
)

// Board is where instances that share a store leave what they have to say for each other: see
// [redisstore.Store.Post].
type Board struct{ store *Store }

// Board returns that of a shared store, or nil.
func (s *Store) Board() *Board {
	if s.failover == nil {
		return nil
	}
	return &Board{s}
}

var errNotOpen = errors.New("stores: the shared store could not be opened yet")

// Post leaves a part of what an instance says, until it expires.
func (b *Board) Post(ctx context.Context, part, instance string, said []byte, expires time.Duration) error {
	shared := b.store.shared.Load()
	if shared == nil {
		return errNotOpen
	}
	return shared.Post(ctx, part, instance, said, expires)
}

// Posted returns a part of what all instances have said, by instance.
func (b *Board) Posted(ctx context.Context, part string) (map[string][]byte, error) {
	shared := b.store.shared.Load()
	if shared == nil {
		return nil, errNotOpen
	}
	return shared.Posted(ctx, part)
}
