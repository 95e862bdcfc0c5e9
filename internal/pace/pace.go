// Package pace decides how long a client waits for a server's limits, and whether and when it repeats a denied
// request. Packages client and grpclimit import it. It does not use connections.
//
// An answer reports the state of the limits that it names. A request waits for the limits in the last answer on its
// route. On a route without an answer, it waits for the limits that every answer of the server has contained, if
// these answers were on at least two routes. After the reset of a limit with nothing remaining, one request is sent
// in each window/quota, and all others as soon as an answer shows that they fit.
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
	MaxWait    time.Duration                     // the longest wait for a limit, and the longest promise before a retry; zero: a minute
	MaxRetries int                               // the retries of one request; zero: 4, negative: none
	Random     func(time.Duration) time.Duration // returns a time from 0 to below its argument; nil: a random one

	mu    sync.Mutex
	peers map[uint64]*peer
	debt  int // the spent part of the budget of retries, in tenths of a retry
}

// Target is where a request goes.
type Target struct {
	Peer  uint64 // requests to one peer may share limits
	Route uint64 // requests on one route of a peer share all limits
}

var seed = maphash.MakeSeed()

// Hash returns a hash for a field of a [Target], so that a pacer keeps no names and no secrets.
func Hash(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, p := range parts {
		maphash.WriteComparable(&h, p)
	}
	return h.Sum64()
}

// Answer is the state of limits in the answer to a request.
type Answer struct {
	States  []State
	Refused bool
	Promise time.Duration // after a refusal, the time until another attempt may succeed; 0: unknown
}

// Pass is a request that may be sent.
type Pass struct {
	to     Target
	at     time.Time
	limits []*limit // the limits that were known to apply to it
}

// under reports whether a request counts under l, which applies to a route. l may not have been known when the
// request was sent.
func (p *Pass) under(l *limit, route uint64) bool {
	return slices.Contains(p.limits, l) || p.to.Route == route && !p.at.After(l.since)
}

const (
	defaultMaxWait    = time.Minute
	defaultMaxRetries = 4
)

func (p *Pacer) maxWait() time.Duration { return cmp.Or(p.MaxWait, defaultMaxWait) }

// Wait waits until the known limits have room for a request, at most for MaxWait. If the wait would end after the
// deadline of ctx, Wait returns at once, because an answer of the server is better than none. The error is the
// cause for which ctx has ended.
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

// latest returns the time at which a request must be sent at the latest.
func (p *Pacer) latest(ctx context.Context, now time.Time) time.Time {
	latest := now.Add(p.maxWait())
	if deadline, bounded := ctx.Deadline(); bounded && deadline.Before(latest) {
		return deadline
	}
	return latest
}

// take lets a request pass if it need not wait, or if the wait would not end before latest. Otherwise it returns
// the wait, and a channel that is closed when the request may pass earlier.
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

// Tell records the answer to a request. Call it or Done for each request after Wait.
func (p *Pacer) Tell(pass *Pass, a Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	peer := p.peer(pass.to.Peer, now)
	delete(peer.underWay, pass)
	if len(a.States) > 0 || a.Refused || len(pass.limits) > 0 {
		peer.tell(pass, a, now)
	}
}

// Done ends a request that gets no answer, or no further one.
func (p *Pacer) Done(pass *Pass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer := p.peers[pass.to.Peer]; peer != nil {
		delete(peer.underWay, pass)
	}
}

// Again reports whether to repeat a request that was denied for the nth time, counted from 0. It returns the wait
// before that: the promised time plus a random time, so that clients that were denied together do not return
// together. The deadline of ctx has to leave time for the wait, and for another attempt as long as this one. All
// requests of a pacer share a budget of retries: fifty, and one for each ten requests. So a server that denies
// everything gets hardly more than a tenth more requests.
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

// Sleep waits between two attempts. The error is the cause for which ctx has ended.
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
