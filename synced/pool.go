package synced

import (
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// pool is the local state of a key. It combines the shared store's last receipt and the units that this process has
// taken since. Together these may exceed the limit, so the pool counts by a plan with more room: the field wide.
type pool struct {
	mu         sync.Mutex
	serial     int64
	plan, wide *sluice.Plan
	instances  int // the number of instances for which wide has room

	// state includes all known units. When the local clock showed the time back, the store's clock showed the time now,
	// in microseconds since the Unix epoch.
	state kernel.State
	now   int64
	// The shared store gave its last answer between the times sent and back, by this process's clock (Store.clock).
	// back is 0 before the first answer. storeNow and storeUsed are from its receipt.
	sent, back          time.Duration
	storeNow, storeUsed int64

	own      int64         // units taken in this process and not reported yet; negative if units were given back
	underWay int64         // units in the report that is on its way to the store
	window   int64         // number of the window in which own was taken, for fixed windows
	taken    time.Duration // when own last changed
	asked    time.Duration // when a Take last used the pool
	pins     int           // calls that use the pool
}

// use sets the plan and the current number of instances by which p counts. Both may have changed.
func (p *pool) use(s *Store, plan *sluice.Plan) {
	if n := s.Instances(); p.plan != plan || p.instances != n {
		p.plan, p.wide, p.instances = plan, s.widened(plan, n), n
	}
}

// fresh reports whether the store's last answer is recent enough for p to decide.
func (p *pool) fresh(at time.Duration) bool { return p.back > 0 && at-p.sent <= staleAfter }

// clock returns the earliest time that the shared store's clock can show at a local time: the clocks do not run at
// exactly the same speed.
func (p *pool) clock(at time.Duration) int64 {
	if p.back == 0 {
		return time.Now().UnixMicro()
	}
	elapsed := max(0, (at - p.back).Microseconds())
	return p.now + elapsed - elapsed/1000
}

// look returns the receipt of a charge that costs nothing.
func (p *pool) look(at time.Duration) (r sluice.Receipt) {
	p.step(at, 0, &r)
	return r
}

// step takes units, or gives them back if cost is negative. It may exceed the limit.
func (p *pool) step(at time.Duration, cost int64, r *sluice.Receipt) {
	now := p.clock(at)
	p.roll(now)
	p.state = p.wide.Owe(p.state, now, cost, &r.Receipt)
	r.Origin = sluice.BySync
}

// roll forgets unreported units of a fixed window that has ended.
func (p *pool) roll(now int64) {
	if p.plan.Limit.Algorithm != sluice.FixedWindow {
		return
	}
	if n, _, _ := p.plan.WindowAt(now); n != p.window {
		p.window, p.own, p.underWay = n, 0, 0
	}
}

// fits reports whether that many units fit. r is the receipt of look.
func (p *pool) fits(r *sluice.Receipt, cost int64) bool {
	var d sluice.Decision
	p.plan.DecideInto(0, r, &d)
	return cost <= d.Remaining
}

// take takes units that fit or are owed, and returns the receipt. A cost of 0 takes nothing.
func (p *pool) take(at time.Duration, cost int64, owe bool) sluice.Receipt {
	r := p.look(at)
	if r.Fits = p.fits(&r, cost); cost > 0 && (r.Fits || owe) {
		p.step(at, cost, &r)
		p.own, p.taken = p.own+cost-r.Cut, at
	}
	return r
}

// received records the store's receipt of a charge. The returned receipt also includes the units that the store
// does not know of.
func (p *pool) received(at time.Duration, r *sluice.Receipt, sentAt time.Duration) sluice.Receipt {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learn(r, sentAt, at)
	all := p.look(at)
	all.Fits, all.Origin = r.Fits, r.Origin
	return all
}

// learn records a receipt of the store, and reports whether it is the newest. Answers can arrive in any order.
func (p *pool) learn(r *sluice.Receipt, sent, back time.Duration) bool {
	if sent < p.back && (r.Now < p.storeNow || r.Now == p.storeNow && r.Used < p.storeUsed) {
		return false
	}
	now := r.Now
	if p.back > 0 && now >= p.clock(sent) { // otherwise the store's clock was set back
		now = max(now, p.clock(back))
	}
	p.now, p.sent, p.back, p.storeNow, p.storeUsed = now, sent, back, r.Now, r.Used
	if p.state = stateOf(p.plan, r); p.plan.Kernel != kernel.Meter {
		p.window = max(p.window, r.Tick) // units taken after the request was sent may belong to the newer window
	}
	var own sluice.Receipt
	p.step(back, p.own+p.underWay, &own)
	return true
}

// nextReport returns the cost of the next report to the store: the unreported units, or 0 if the charge only reads
// the state. until is the end of the window in which a negative cost is valid, or 0.
func (p *pool) nextReport(at time.Duration) (cost, until int64) {
	if p.back > 0 {
		p.roll(p.clock(at))
	}
	switch {
	case p.own < 0 && !p.fresh(at), p.own > 0 && (at-p.taken).Microseconds() > p.plan.Lifetime():
		p.own = 0 // these units have drained, or may have
	}
	cost, p.underWay, p.own = p.own, p.own, 0
	if cost < 0 && p.plan.Kernel == kernel.Window {
		_, _, until = p.plan.WindowAt(p.clock(at))
	}
	return cost, until
}

// reported records that the store has counted a report, with the receipt r. For a fixed window, window is the
// number of the window in which the report's units were taken.
func (p *pool) reported(cost, window int64, r *sluice.Receipt, sent, back time.Duration) {
	underWay := p.underWay
	p.underWay = 0
	if p.plan.Limit.Algorithm == sluice.FixedWindow && r.Tick > window {
		p.own -= cost // the units of the report belong to the previous window
	}
	if !p.learn(r, sent, back) && underWay != 0 { // the newer answer includes this report
		var all sluice.Receipt
		p.step(back, -underWay, &all)
	}
}

// notReported records that the store has certainly not counted a report.
func (p *pool) notReported(cost, window int64) {
	if p.underWay = 0; p.window == window || p.plan.Limit.Algorithm != sluice.FixedWindow {
		p.own += cost
	}
}
