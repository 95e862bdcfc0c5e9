package lease

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// pool has the units of one state that this process has reserved.
type pool struct {
	hash    uint64
	key     string
	plan    *sluice.Plan
	onError sluice.OnError
	horizon int64 // for which units are reserved, in microseconds
	most    int64 // units of one charge
	budget  *sluice.Plan

	batch  atomic.Pointer[batch] // that is being spent, or nil
	queued atomic.Int64          // units of those behind it, about
	dead   atomic.Bool           // the pool is no more; the store decides

	mu       sync.Mutex
	queue    []*batch
	gone     int64     // units spent of batches that are gone
	refused  int64     // units that were asked for, and were not there
	waiting  int64     // units that callers wait for
	demand   int64     // units that are asked for in a horizon
	measured int64     // when that was
	before   int64     // units spent and refused by then
	last     int64     // how many were granted last, if that was less than wanted, else 0
	again    int64     // until when the pool refuses rather than ask
	fetching *fetching // the reservation that is under way, or nil
	old      []*batch  // that can only be given back
	shallow  int64     // since when reservations have found the level too low, or 0
	// Until when the store decides, as what is reserved would drain on its way, or how many are to be refused
	// by then.
	drains, enough int64
	known          known
	drift          float64        // of the level in a microsecond, by what drains and what others take, or 0
	since          sluice.Receipt // from which on that is measured
	own            int64          // what this process has taken since
	latency        int64          // of reservations, in microseconds: the longest of late
	swept          int64          // units spent and refused when the pool was last looked at
	asked          int64          // when that was more than before
}

// known is a state in the server's last receipt.
type known struct {
	receipt    sluice.Receipt
	sent, back int64
}

// counts reports whether the pool is that of a charge.
func (p *pool) counts(c *sluice.Charge) bool {
	return p.key == c.Key && p.plan.Fingerprint == c.Plan.Fingerprint
}

// like reports whether what is leased by the plan of the pool may be spent by another, of the same
// fingerprint: a limit may have changed, and a bucket is no queue.
func (p *pool) like(plan *sluice.Plan) bool {
	return p.plan == plan || p.plan.Capacity == plan.Capacity && p.plan.Most == plan.Most &&
		p.plan.Tick == plan.Tick && p.plan.Limit.Algorithm == plan.Limit.Algorithm
}

// refuses reports whether a cost that is more than what is left is refused without asking. Where a window
// has no room for a larger one, it may have for this. p.mu is held.
func (p *pool) refuses(cost, at int64) bool {
	return at < p.again && (p.plan.Limit.Algorithm != sluice.FixedWindow || cost > p.room(at))
}

// draining reports whether nothing is to be reserved, as it would drain on its way. p.mu is held.
func (p *pool) draining(at int64) bool { return at < p.drains && p.refused < p.enough }

// spend spends units of the batch at hand, or of one behind it. p.mu is held.
func (p *pool) spend(cost, at int64) (b *batch, first int64, low, ok bool) {
	b = p.batch.Load()
	if b != nil {
		if first, low, ok = b.spend(cost, b.latest(at)); ok {
			return b, first, low, true
		}
	}
	for i, next := range p.queue {
		if first, _, ok = next.spend(cost, next.latest(at)); ok {
			p.queue = slices.Delete(p.queue, i, i+1)
			if b != nil {
				p.queue = append(p.queue, b) // a smaller cost may find something
			}
			p.batch.Store(next)
			p.tidy(at)
			return next, first, next.next.Load() > next.low.Load(), true
		}
	}
	p.tidy(at)
	return nil, 0, false, false
}

// tidy lets go of batches of which nothing can be spent, and sets the marks anew. p.mu is held.
func (p *pool) tidy(at int64) {
	p.queue = slices.DeleteFunc(p.queue, func(b *batch) bool { return p.over(b, at) })
	if b := p.batch.Load(); b != nil && p.over(b, at) {
		p.batch.Store(nil)
	}
	if p.batch.Load() == nil && len(p.queue) > 0 {
		p.batch.Store(p.queue[0])
		p.queue = slices.Delete(p.queue, 0, 1)
	}
	queued := int64(0)
	for _, b := range p.queue {
		queued += b.left(b.latest(at))
	}
	p.queued.Store(queued)
	if b := p.batch.Load(); b != nil {
		b.low.Store(max(0, min(b.n, b.n+queued-p.mark())))
	}
}

// over reports whether nothing can be spent of b any more, and closes it then. p.mu is held.
func (p *pool) over(b *batch, at int64) bool {
	if b.left(b.latest(at)) > 0 {
		return false
	}
	spent, first := b.close()
	p.gone += spent
	if first < b.n && p.plan.Kernel != kernel.Meter { // what a window has lost does not drain
		p.old = append(p.old, b.part(first, b.n-first))
	}
	return true
}

// cover is how many units are kept where others may miss them: for three quarters of the horizon, as
// hardly one lives longer than that.
func (p *pool) cover() int64 { return max(1, p.demand*3/4) }

// mark is how many units are left when more are reserved: what is asked for while that takes twice as long
// as of late.
func (p *pool) mark() int64 { return min(p.cover()/4, 1+2*p.latency*p.demand/p.horizon) }

// spent returns how many units were spent. p.mu is held.
func (p *pool) spent() int64 {
	n := p.gone
	if b := p.batch.Load(); b != nil {
		n += b.spent()
	}
	for _, b := range p.queue {
		n += b.spent()
	}
	return n
}

// total returns how many units were asked for. p.mu is held.
func (p *pool) total() int64 { return p.spent() + p.refused + p.waiting }

// left returns how many units may be spent. p.mu is held.
func (p *pool) left(at int64) int64 {
	n := int64(0)
	if b := p.batch.Load(); b != nil {
		n += b.left(b.latest(at))
	}
	for _, b := range p.queue {
		n += b.left(b.latest(at))
	}
	return n
}

// add puts a batch behind the others. p.mu is held.
func (p *pool) add(b *batch, at int64) {
	b.low.Store(b.n)
	p.queue = append(p.queue, b)
	p.tidy(at)
}

// putBack undoes the spending of units of b.
func (p *pool) putBack(b *batch, first, cost, at int64) {
	if b.unspend(first, cost) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone -= cost
	if !p.dead.Load() {
		p.add(b.part(first, cost), at)
	}
}

// trim sets aside what a batch has that is about to get too old and more than is asked for until then. p.mu
// is held.
func (p *pool) trim(at int64) {
	if !p.scarce(p.room(at)) {
		return
	}
	b := p.batch.Load()
	if b == nil || at-b.back < p.horizon*3/4 {
		return
	}
	rest := b.end - b.latest(at)
	use := 1 + max(0, rest)*p.demand/p.horizon
	if b.left(b.latest(at)) <= 2*use {
		return
	}
	spent, first := b.close()
	p.gone += spent
	if b.n-first <= use {
		use = b.n - first
	}
	p.batch.Store(nil)
	if use > 0 {
		p.queue = append([]*batch{b.part(first, use)}, p.queue...)
	}
	if first += use; first < b.n {
		p.old = append(p.old, b.part(first, b.n-first))
	}
	p.tidy(at)
}

// kill ends the pool, and returns what it has had and can be given back. p.mu is held.
func (p *pool) kill() (rest []*batch) {
	p.dead.Store(true)
	return p.empty()
}

// empty ends what is reserved, and returns what can be given back. p.mu is held.
func (p *pool) empty() (rest []*batch) {
	if b := p.batch.Swap(nil); b != nil {
		p.queue = append(p.queue, b)
	}
	for _, b := range p.queue {
		spent, first := b.close()
		p.gone += spent
		if first < b.n {
			rest = append(rest, b.part(first, b.n-first))
		}
	}
	rest = append(rest, p.old...)
	p.queue, p.old = nil, nil
	p.queued.Store(0)
	return rest
}

// wait notes that a caller waits for units, or, if they are negative, that it does so no longer.
func (p *pool) wait(units int64) {
	p.mu.Lock()
	p.waiting += units
	p.mu.Unlock()
}

// worthwhile reports whether units are to be reserved. The demand has to be at least that which started the lease,
// or half of it if the bucket has plenty. Less demand is no reason to fill up a bucket. p.mu is held.
func (p *pool) worthwhile(at int64) bool {
	return p.plan.Kernel != kernel.Meter || p.known.back == 0 || p.demand >= worth || p.demand >= worth/2 && p.plenty(p.room(at))
}

// measure notes how many units are asked for in a horizon. It follows by halves, since what was held up
// comes all at once, and waits for a quarter of a horizon, or as many units as there were in all of the last,
// since in less they look fewer than they are. p.mu is held.
func (p *pool) measure(at int64) {
	total, took := p.total(), at-p.measured
	long := p.horizon / turns
	if p.demand < 16 {
		long = p.horizon
	}
	if took < long && total-p.before < p.demand {
		return
	}
	now := (total - p.before) * p.horizon / max(took, p.horizon/turns)
	p.demand, p.measured, p.before = max(1, (now+p.demand+1)/2), at, total
}

// room returns how many units may be free in the shared store, at most.
func (p *pool) room(at int64) int64 {
	k := &p.known
	if k.back == 0 {
		return p.plan.Capacity
	}
	e := max(at, k.back) - k.sent
	now := k.receipt.Now + e + e>>9 + 2
	if p.plan.Kernel == kernel.Meter {
		return (p.plan.Size - drained(p.plan, k.receipt.Used, k.receipt.Now, now)) / p.plan.Unit
	}
	if number, _, _ := p.plan.WindowAt(now); number != k.receipt.Tick {
		return p.plan.Capacity
	}
	r := k.receipt
	r.Now = now
	return p.plan.Decide(0, r).Remaining
}

// perTurn is about how many units the limit lets pass in the time after which a pool that has been
// refused asks again.
func (p *pool) perTurn() int64 { return p.most }

// rest returns how many units are asked for in the rest of a window.
func (p *pool) rest(at int64) int64 {
	if k := &p.known; p.plan.Kernel != kernel.Meter && k.back != 0 {
		now := k.receipt.Now + max(0, at-k.back)
		_, _, end := p.plan.WindowAt(now)
		return min(end-now, p.horizon) * p.demand / p.horizon
	}
	return math.MaxInt64
}

// scarce reports whether units that are reserved and not spent are missed by others. Of a bucket that is
// not nearly full they are not, since they drain; of one that is not known they may be.
func (p *pool) scarce(room int64) bool {
	return p.plan.Kernel != kernel.Meter || room <= p.plan.Capacity/4 || p.known.back == 0
}

// plenty reports whether units that are reserved and not spent are of no account: of a bucket that is less
// than half full. What is lost of it drains before anybody misses it.
func (p *pool) plenty(room int64) bool {
	return p.plan.Kernel == kernel.Meter && p.known.back != 0 && room > p.plan.Capacity/2
}

// part returns how much of the room is for one process, where that is little. What a sliding window has
// free now it has not later.
func (p *pool) part(room int64) int64 {
	if p.plan.Kernel == kernel.Meter {
		return room / 2
	}
	return room
}

// wants returns how many units are to be reserved, for as much as need and for what is to come, and how many
// would be if there was room. p.mu is held.
func (p *pool) wants(at, need int64) (n, all int64) {
	room := p.room(at)
	if all = p.demand; !p.plenty(room) { // what is almost certain to be asked for: by chance, two deviations less
		all = min(p.cover(), p.rest(at), p.demand-int64(2*math.Sqrt(float64(p.demand))))
	}
	all = max(need, p.waiting, all-p.left(at))
	n = min(all, max(need, room/4, min(p.part(room), p.perTurn())))
	if p.last > 0 {
		n = min(n, max(need, 2*p.last))
	}
	return min(n, p.plan.Capacity), all
}

// deposit returns how many units more fill up a level that is so low that n units, which are spent as
// quickly as they are asked for, would drain before: half of what is free at most. Level is what the
// bucket holds with them, and beneath what it holds without, whatever others give back. p.mu is held.
func (p *pool) deposit(n, beneath, level, at int64) int64 {
	plan := p.plan
	if plan.Kernel != kernel.Meter {
		return 0
	}
	enough := max(0, n*(plan.Drain*(p.horizon/plan.Tick)/p.demand-plan.Unit))
	others := level - n*plan.Unit - beneath // which they may give back
	target := others + enough + enough/2
	switch {
	case beneath >= enough:
		p.shallow = 0
		return 0
	case p.shallow == 0:
		p.shallow = at
	}
	if at-p.shallow < p.horizon/2 || p.drift >= 0 { // others fill it up, or may, and demand is not known well yet
		if target = others + 2*n*plan.Unit; beneath >= 0 {
			return 0
		}
	}
	return max(0, min((target-level)/plan.Unit, (plan.Size-level)/plan.Unit/2))
}
