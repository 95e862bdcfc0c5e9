// Package underway records the estimated costs that requests under way have been charged, until they are settled.
package underway

import (
	"container/list"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// Estimates has the unsettled estimates of one engine. If a request is denied only because of such estimates, its
// client is sent a short wait instead of a whole period. An Estimates is safe for concurrent use.
//
// An estimate is added when a request is allowed, if the integration reports the end of the request. It is removed
// when it is settled, or by Release, Refund or Place of the engine. When an estimate can no longer be refunded, it
// stops counting.
type Estimates struct {
	mu      sync.Mutex
	byState map[state]*list.List // lists of *Estimate, the oldest first
	count   int
}

// maxEstimates bounds the memory. Further estimates are not recorded, and do not shorten waits.
const maxEstimates = 1 << 16

// state identifies the state of a charge.
type state struct {
	key         string
	fingerprint uint64
}

func stateOf(c *sluice.Charge) state { return state{c.Key, c.Plan.Fingerprint} }

// Estimate is an estimate that has been charged and is not yet settled.
type Estimate struct {
	state state
	units int64
	since time.Time
	until time.Time // the time until which the estimate can be refunded
	at    *list.Element
}

// Add adds a charge that was made at the given time, and can be refunded for the time lasts after that. It returns nil
// if there are already maxEstimates estimates.
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

// Remove removes estimates. It skips estimates that are nil or have been removed.
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

// Wait estimates how long a client has to wait for the units that the state of a charge lacks. It assumes that the
// oldest estimates are settled first, and counts from the oldest until the estimates cover the missing units. The
// result is the age of the last estimate that was counted, within the bounds below. Wait returns false if all
// estimates together do not cover the units.
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

// These are the bounds of the wait for requests under way. Even the longest wait is short enough for SDKs to retry
// by themselves.
const (
	shortestUnderWay = time.Second
	longestUnderWay  = 30 * time.Second
)
