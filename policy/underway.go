package policy

import (
	"container/list"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// underWay has the estimates that requests under way have been charged and that are not settled. A key may be
// denied only because of them, and then waits a short time instead of a whole period. It knows the requests of
// this engine alone.
//
// An estimate is added with an allowed decision whose integration knows when the request ends. It is removed when
// it is settled, or with Release, Refund or Place. It stops counting when it can no longer be refunded.
type underWay struct {
	mu      sync.Mutex
	byState map[stateID]*list.List // of *pending, the oldest first
	count   int
}

// maxUnderWay bounds the memory of underWay. Requests beyond it make no difference to a wait.
const maxUnderWay = 1 << 16

// pending is an estimate that has been charged and is not settled. Only its underWay changes it.
type pending struct {
	state stateID
	units int64
	since time.Time
	until time.Time // the end of refunds
	at    *list.Element
}

// add adds a charge made at a time, which can be refunded for so long. It returns nil if there is no memory.
func (u *underWay) add(c *sluice.Charge, since time.Time, lasts time.Duration) *pending {
	p := &pending{state: stateID{c.Key, c.Plan.Fingerprint}, units: c.Cost, since: since, until: since.Add(lasts)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == maxUnderWay {
		return nil
	}
	if u.byState == nil {
		u.byState = make(map[stateID]*list.List)
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

// remove removes estimates. One that is nil or has been removed is skipped.
func (u *underWay) remove(estimates []*pending) {
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

// wait returns when to try again for units that a state lacks, if the oldest estimates cover them: after as long as
// the last one of these has taken so far. It reports false if all estimates together do not cover them.
func (u *underWay) wait(state stateID, lacks int64) (time.Duration, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.byState[state]
	if all == nil {
		return 0, false
	}
	now := time.Now()
	for at := all.Front(); at != nil; at = at.Next() {
		p := at.Value.(*pending)
		if now.Before(p.until) {
			lacks -= p.units
		}
		if lacks <= 0 {
			return min(max(now.Sub(p.since), shortestUnderWay), longestUnderWay), true
		}
	}
	return 0, false
}

// The bounds of the wait for requests under way. SDKs sleep through the longest.
const (
	shortestUnderWay = time.Second
	longestUnderWay  = 30 * time.Second
)

// estimates is the counter of the estimates of requests under way. It charges nothing.
type estimates struct {
	noCounter
	underWay *underWay
}

// join shortens the wait of a limit that is exceeded only because of requests under way.
func (e *estimates) join(c *charges, i int, r *Result) (closed bool) {
	charge, receipt := &c.list[i], &c.receipts[i]
	if receipt.Fits || receipt.Origin == sluice.ByOnError || r.RetryAfter == sluice.Never {
		return false
	}
	remaining, _, _ := charge.Plan.Answer(&receipt.Receipt, 1)
	lacks := charge.Cost - remaining + charge.Plan.Owed(&receipt.Receipt)
	if lacks < 1 {
		return false // another counter denies
	}
	if wait, covered := e.underWay.wait(stateID{charge.Key, charge.Plan.Fingerprint}, lacks); covered && wait < r.RetryAfter {
		r.RetryAfter, r.UnderWay = wait, true
	}
	return false
}

// keep adds the estimates of an allowed request.
func (e *estimates) keep(w *work, d *Decision) {
	if d.unsettled == nil || !w.request.Ends {
		return
	}
	for i := range d.unsettled.open {
		if o := &d.unsettled.open[i]; o.cost.usage != nil {
			o.pending = e.underWay.add(&o.Charge, d.unsettled.taken, o.lasts)
		}
	}
}

// ended removes the estimates of a request that is not under way any more, whether it is settled or not.
func (e *Engine) ended(d *Decision) {
	if d.unsettled != nil {
		e.underWay.remove(d.unsettled.estimates())
	}
}

// estimates returns what is not settled.
func (u *unsettled) estimates() (all []*pending) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.open {
		all = append(all, u.open[i].pending)
	}
	return all
}
