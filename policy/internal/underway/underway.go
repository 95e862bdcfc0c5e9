// Package underway has the unsettled estimates that requests under way have been charged.
package underway

import (
	"container/list"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// Estimates are the unsettled estimates of one engine. If a key is denied only because of them, it waits a short
// time instead of a whole period. Estimates are safe for concurrent use.
//
// An estimate is added with an allowed decision, if the integration reports the end of the request. It is removed when
// it is settled, or with Release, Refund or Place. It stops counting when it can no longer be refunded.
type Estimates struct {
	mu      sync.Mutex
	byState map[state]*list.List // of *Estimate, the oldest first
	count   int
}

// maxEstimates bounds the memory. Requests beyond it make no difference to a wait.
const maxEstimates = 1 << 16

// state identifies the state of a charge.
type state struct {
	key         string
	fingerprint uint64
}

func stateOf(c *sluice.Charge) state { return state{c.Key, c.Plan.Fingerprint} }

// Estimate is an estimate that has been charged and is not settled.
type Estimate struct {
	state state
	units int64
	since time.Time
	until time.Time // the end of refunds
	at    *list.Element
}

// Add adds the charge of a request that was made at since and can be refunded for lasts. It returns nil if maxEstimates is reached.
func (u *Estimates) Add(c *sluice.Charge, since time.Time, lasts time.Duration) *Estimate {
	p := &Estimate{state: stateOf(c), units: c.Cost, since: since, until: since.Add(lasts)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == maxEstimates {
		return nil
	}
	if u.byState == nil {
		u.byState = make(map[state]*list.List)
	}
	all := u.byState[p.state]
	if all == nil {
		all = list.New()
		u.byState[p.state] = all
	}
	p.at = all.PushBack(p)
	u.count++
	return p
}

// Remove removes estimates. One that is nil or has been removed is skipped.
func (u *Estimates) Remove(estimates []*Estimate) {
	if len(estimates) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range estimates {
		if p == nil || p.at == nil {
			continue
		}
		all := u.byState[p.state]
		all.Remove(p.at)
		if p.at = nil; all.Len() == 0 {
			delete(u.byState, p.state)
		}
		u.count--
	}
}

// Wait returns how long to wait for units that the state of a charge lacks. The oldest estimates that cover these
// units are likely to be settled first; the wait is as long as the last of their requests has taken so far. It
// reports false if all estimates together do not cover the units.
func (u *Estimates) Wait(c *sluice.Charge, lacks int64) (time.Duration, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.byState[stateOf(c)]
	if all == nil {
		return 0, false
	}
	now := time.Now()
	for at := all.Front(); at != nil; at = at.Next() {
		p := at.Value.(*Estimate)
		if now.Before(p.until) {
			lacks -= p.units
		}
		if lacks <= 0 {
			return min(max(now.Sub(p.since), shortestUnderWay), longestUnderWay), true
		}
	}
	return 0, false
}

// The bounds of the wait for requests under way. Even the longest is short enough for SDKs to wait by themselves.
const (
	shortestUnderWay = time.Second
	longestUnderWay  = 30 * time.Second
)
