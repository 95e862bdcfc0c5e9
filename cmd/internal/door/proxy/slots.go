package proxy

import (
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// slots bounds the number of connections to an upstream. A direct and its Transport share the slots.
type slots struct {
	*semaphore.Weighted
	waiting atomic.Int32
}

func newSlots(most int) *slots {
	if most <= 0 {
		most = math.MaxInt
	}
	return &slots{Weighted: semaphore.NewWeighted(int64(most))}
}

// take waits for a slot. If none is available, it first calls vacate, which may release one.
func (s *slots) take(ctx context.Context, vacate func()) error {
	if s.TryAcquire(1) {
		return nil
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	vacate()
	return s.Acquire(ctx, 1)
}

// wanted reports whether a caller waits for a slot.
func (s *slots) wanted() bool { return s.waiting.Load() > 0 }

func (s *slots) leave() { s.Release(1) }

// counted is a connection that releases a slot when it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// CloseWrite closes only the direction to the upstream.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// dialCounted is the DialContext of the Transport.
func (d *direct) dialCounted(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.slots.take(ctx, d.evict); err != nil {
		return nil, err
	}
	c, err := d.connect(ctx, network, address)
	if err != nil {
		d.slots.leave()
		return nil, err
	}
	return &counted{c, sync.OnceFunc(d.slots.leave)}, nil
}

// evict makes room for a connection of the Transport. It closes an idle connection of d. If d has none, it closes
// the idle connections of the Transport.
func (d *direct) evict() {
	d.mu.Lock()
	var l *link
	if len(d.idle) > 0 {
		l = d.idle[0]
		d.idle = append(d.idle[:0], d.idle[1:]...)
	}
	d.mu.Unlock()
	if l == nil {
		d.rest.CloseIdleConnections()
		return
	}
	l.end()
}
