// Package pace decides how long a client waits for a server's limits, and whether and when it repeats a denied
// request. It does not send requests itself. Packages client and grpclimit import it.
//
// Answers can report limits and their states. A request waits for the limits that the latest such answer on its route
// has reported, until all of them have room. If no answer on the route has reported limits, the request waits for the
// limits that all such answers of the server contain, if these were on at least two routes. After the reset of a
// used-up limit, requests are sent one by one. The interval between them is the limit's window divided by its quota.
// As soon as an answer shows room for more requests, they are sent at once.
package pace

import (
	"cmp"
	"context"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Pacer paces requests. The zero value is ready, and safe for concurrent use.
type Pacer struct {
	MaxWait    time.Duration                     // the longest wait for a limit, and the longest promised time after which a request is repeated; zero means a minute
	MaxRetries int                               // how often one request is repeated at most; zero means 4, and negative means never
	Random     func(time.Duration) time.Duration // returns a time from 0 to below its argument; nil means a random time

	mu    sync.Mutex
	peers map[uint64]*peer
	debt  int // the spent part of the budget of retries, in tenths of a retry
}

// Target identifies the destination of a request.
type Target struct {
	Peer  uint64 // requests to one peer may share limits
	Route uint64 // requests on one route of a peer share all limits
}

var seed = maphash.MakeSeed()

// Hash returns a hash for a field of a [Target]. With hashes, a pacer keeps no names and no secrets.
func Hash(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, p := range parts {
		maphash.WriteComparable(&h, p)
	}
	return h.Sum64()
}

// Answer has the states of limits that the answer to a request reports.
type Answer struct {
	States  []State
	Refused bool
	Promise time.Duration // after a refusal, the time after which another attempt may succeed; 0 if unknown
}

// Pass is a request that [Pacer.Wait] has let through.
type Pass struct {
	to     Target
	at     time.Time
	limits []*limit // the limits that were known to apply to the request
}

// under reports whether a request counts under l, which applies to the given route. A request on this route counts
// even if l was still unknown when the request was sent.
func (p *Pass) under(l *limit, route uint64) bool {
	return slices.Contains(p.limits, l) || p.to.Route == route && !p.at.After(l.since)
}

const (
	defaultMaxWait    = time.Minute
	defaultMaxRetries = 4
)

func (p *Pacer) maxWait() time.Duration { return cmp.Or(p.MaxWait, defaultMaxWait) }

// Wait waits until the known limits have room for a request. If this would take longer than MaxWait, or until after
// the deadline of ctx, Wait lets the request through at once, because an answer of the server is better than no
// answer. If ctx ends, the error is its cause.
func (p *Pacer) Wait(ctx context.Context, to Target) (*Pass, error) {
	latest := p.latest(ctx, time.Now())
	for {
		now := time.Now()
		pass, wait, news := p.take(to, now, latest)
		if pass != nil {
			return pass, nil
		}
		wait += p.random(min(wait/10, latest.Sub(now)-wait))
		if err := sleep(ctx, wait, news); err != nil {
			return nil, err
		}
	}
}

// latest returns the latest time at which a request must be sent.
func (p *Pacer) latest(ctx context.Context, now time.Time) time.Time {
	latest := now.Add(p.maxWait())
	if deadline, bounded := ctx.Deadline(); bounded && deadline.Before(latest) {
		return deadline
	}
	return latest
}

// take lets a request pass if it need not wait, or if the wait would not end before the time latest. Otherwise it
// returns the wait, and a channel that is closed when a limit gets more room earlier.
func (p *Pacer) take(to Target, now, latest time.Time) (pass *Pass, wait time.Duration, news <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peer(to.Peer, now)
	limits := peer.limitsOf(to.Route, now)
	for _, l := range limits {
		wait = max(wait, l.wait(now))
	}
	if wait > 0 && now.Add(wait).Before(latest) {
		return nil, wait, peer.news()
	}
	for _, l := range limits {
		l.take(now)
	}
	pass = &Pass{to, now, limits}
	peer.underWay[pass] = struct{}{}
	return pass, 0, nil
}

// Tell records the answer to a request. After each Wait, call Tell or Done.
func (p *Pacer) Tell(pass *Pass, a Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	peer := p.peer(pass.to.Peer, now)
	delete(peer.underWay, pass)
	if len(a.States) > 0 || a.Refused || len(pass.limits) > 0 {
		peer.record(pass, a, now)
	}
}

// Done ends a request that gets no answer, or no further answer.
func (p *Pacer) Done(pass *Pass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer := p.peers[pass.to.Peer]; peer != nil {
		delete(peer.underWay, pass)
	}
}

// Again reports whether to repeat a request that was denied for the nth time, counted from 0. If so, it returns how
// long to wait first: the promised time plus a random time, so that clients that were denied at the same time do
// not all return at the same time. The deadline of ctx has to leave time for the wait, and for another attempt that
// takes as long as this one. All requests of a pacer share a budget of retries: fifty, and one for every ten
// requests. So retries add only about a tenth to the requests of a server that denies everything.
func (p *Pacer) Again(ctx context.Context, pass *Pass, n int, promise time.Duration) (wait time.Duration, ok bool) {
	retries := cmp.Or(p.MaxRetries, defaultMaxRetries)
	if n >= retries || promise > p.maxWait() {
		return 0, false
	}
	spread := min(max(time.Second, promise/2)<<min(n, 10), p.maxWait())
	if deadline, bounded := ctx.Deadline(); bounded {
		now := time.Now()
		room := deadline.Sub(now) - now.Sub(pass.at) - promise
		if room <= 0 {
			return 0, false
		}
		spread = min(spread, room)
	}
	return promise + p.random(spread), p.spend()
}

// Sleep waits between two attempts. If ctx ends, the error is its cause.
func Sleep(ctx context.Context, wait time.Duration) error { return sleep(ctx, wait, nil) }

func sleep(ctx context.Context, wait time.Duration, news <-chan struct{}) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-news:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// random returns a time from 0 to below d.
func (p *Pacer) random(d time.Duration) time.Duration {
	switch {
	case d <= 0:
		return 0
	case p.Random != nil:
		return p.Random(d)
	}
	return rand.N(d)
}

// The budget of retries is at most fifty, and grows by one for each ten requests. Both constants are in tenths of a
// retry.
const (
	perRetry = 10
	savings  = 50 * perRetry
)

// Earn counts a request that is not a retry.
func (p *Pacer) Earn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.debt = max(0, p.debt-1)
}

func (p *Pacer) spend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.debt+perRetry > savings {
		return false
	}
	p.debt += perRetry
	return true
}
