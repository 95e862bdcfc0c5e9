package lease

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// pool has the units that this process has reserved in the state of one key.
type pool struct {
	hash    uint64
	key     string
	plan    *sluice.Plan
	onError sluice.OnError
	horizon int64 // how far ahead units are reserved, in microseconds
	most    int64 // the largest cost that can be taken from the pool
	budget  *sluice.Plan

	batch  atomic.Pointer[batch] // the batch that is being spent, or nil
	queued atomic.Int64          // the approximate number of units in queue
	dead   atomic.Bool           // the pool has ended; the store decides

	mu       sync.Mutex
	queue    []*batch
	gone     int64     // the number of units spent from batches that the pool has dropped
	refused  int64     // the number of units that were requested and not available
	waiting  int64     // the number of units that callers wait for
	demand   int64     // units that are requested in a horizon
	measured int64     // when demand was measured
	before   int64     // what total returned when demand was measured
	last     int64     // how many units the last reservation brought, if these were fewer than wanted; otherwise 0
	again    int64     // the time until which the pool refuses without calling the store
	fetching *fetching // the reservation that is under way, or nil
	old      []*batch  // batches with units that are to be given back, not spent
	shallow  int64     // the time since which the level has been too low for reservations, or 0
	// If reserved units have drained before they arrived, the store decides for a while: as long as the present time is
	// before drains, and refused is less than enough.
	drains, enough int64
	known          known
	drift          float64        // change of the bucket's level per microsecond, from draining and from other processes; 0 if unknown
	since          sluice.Receipt // the receipt at which the measurement of drift started
	own            int64          // the level that this process has added after that receipt
	latency        int64          // the longest recent duration of a reservation, in microseconds
	swept          int64          // what total returned when the pool was last examined
	grewAt         int64          // when the field swept last grew
}

// known is the state in the server's last receipt.
type known struct {
	receipt    sluice.Receipt
	sent, back int64
}

// counts reports whether the pool is for the state that c charges.
func (p *pool) counts(c *sluice.Charge) bool {
	return p.key == c.Key && p.plan.Fingerprint == c.Plan.Fingerprint
}

// like reports whether units that were leased under the pool's plan can be spent under the given plan, which has
// the same fingerprint. They cannot be spent if the limit has changed, or if one plan is a bucket and the other is
// a queue.
func (p *pool) like(plan *sluice.Plan) bool {
	return p.plan == plan || p.plan.Capacity == plan.Capacity && p.plan.Most == plan.Most &&
		p.plan.Tick == plan.Tick && p.plan.Limit.Algorithm == plan.Limit.Algorithm
}

// refuses reports whether a cost above the remaining units is refused without a call to the store. A fixed window
// that had no room for a larger cost may still have room for a smaller one. p.mu is held.
func (p *pool) refuses(cost, at int64) bool {
	return at < p.again && (p.plan.Limit.Algorithm != sluice.FixedWindow || cost > p.room(at))
}

// draining reports whether units would drain before they arrive, so that it is not worth reserving any. p.mu is
// held.
func (p *pool) draining(at int64) bool { return at < p.drains && p.refused < p.enough }

// spend spends units of the current batch, or of a batch in the queue. p.mu is held.
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
				p.queue = append(p.queue, b) // a smaller cost may still fit
			}
			p.batch.Store(next)
			p.tidy(at)
			return next, first, next.next.Load() > next.low.Load(), true
		}
	}
	p.tidy(at)
	return nil, 0, false, false
}

// tidy drops batches without units to spend, and updates the mark for the next reservation. p.mu is held.
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

// over reports whether b has no more units to spend. If so, it closes b. p.mu is held.
func (p *pool) over(b *batch, at int64) bool {
	if b.left(b.latest(at)) > 0 {
		return false
	}
	spent, first := b.close()
	p.gone += spent
	if first < b.n && p.plan.Kernel != kernel.Meter { // units of a window do not drain, so they have to be given back
		p.old = append(p.old, b.part(first, b.n-first))
	}
	return true
}

// cover returns how many units to keep if other processes may need them: the demand in three quarters of the
// horizon, because hardly any unit can be kept for longer.
func (p *pool) cover() int64 { return max(1, p.demand*3/4) }

// mark returns the number of remaining units at which the next reservation starts: the demand during twice the
// recent duration of a reservation, but at most a quarter of what cover returns.
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

// total returns how many units were requested. p.mu is held.
func (p *pool) total() int64 { return p.spent() + p.refused + p.waiting }

// left returns how many units can be spent. p.mu is held.
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

// add appends a batch to the queue. p.mu is held.
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

// trim moves units to p.old, to be given back: those units of the current batch that will probably expire before
// they are requested. p.mu is held.
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

// kill ends the pool, and returns the batches with units that can be given back. p.mu is held.
func (p *pool) kill() (rest []*batch) {
	p.dead.Store(true)
	return p.empty()
}

// empty closes all batches, and returns those with units that can be given back. p.mu is held.
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

// wait records that a caller waits for units, or, if units is negative, that the caller no longer waits.
func (p *pool) wait(units int64) {
	p.mu.Lock()
	p.waiting += units
	p.mu.Unlock()
}

// worthwhile reports whether to reserve units. For a bucket, the demand must be at least the constant worth, or
// half of it if the bucket is known to be less than half full. With a lower demand, raising the level of the bucket
// costs more than the lease saves. If the state of the bucket is unknown, any demand is enough. p.mu is held.
func (p *pool) worthwhile(at int64) bool {
	return p.plan.Kernel != kernel.Meter || p.known.back == 0 || p.demand >= worth || p.demand >= worth/2 && p.plenty(p.room(at))
}

// measure updates the demand: the number of units that are requested in a horizon. Each measurement counts for half
// of the new value, because requests that were held up arrive all at once. A measurement ends after a quarter of a
// horizon, or after a whole horizon if the demand is low. It ends earlier if as many units were requested as the
// demand expects for a whole horizon. p.mu is held.
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

// room returns an upper bound of the number of free units in the shared store.
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

// perTurn returns about how many units the limit allows between two attempts to reserve, which are 1/turns of a
// horizon apart.
func (p *pool) perTurn() int64 { return p.most }

// rest returns the expected demand until the end of the window, but for at most a horizon. For a bucket, it returns
// the largest int64.
func (p *pool) rest(at int64) int64 {
	if k := &p.known; p.plan.Kernel != kernel.Meter && k.back != 0 {
		now := k.receipt.Now + max(0, at-k.back)
		_, _, end := p.plan.WindowAt(now)
		return min(end-now, p.horizon) * p.demand / p.horizon
	}
	return math.MaxInt64
}

// scarce reports whether other processes may need units that this process reserves and does not spend. They do not
// need them if more than a quarter of the bucket is free, because unspent units drain. If the state of the bucket
// is unknown, scarce returns true.
func (p *pool) scarce(room int64) bool {
	return p.plan.Kernel != kernel.Meter || room <= p.plan.Capacity/4 || p.known.back == 0
}

// plenty reports whether unspent reservations do no harm, because the bucket is known to be less than half full:
// then lost units drain before another process needs them.
func (p *pool) plenty(room int64) bool {
	return p.plan.Kernel == kernel.Meter && p.known.back != 0 && room > p.plan.Capacity/2
}

// part returns how much of the room one process can reserve: half of the room of a bucket, and all of the room of a
// window. Units of a window that no process has reserved by its end are lost, so they are reserved at once.
func (p *pool) part(room int64) int64 {
	if p.plan.Kernel == kernel.Meter {
		return room / 2
	}
	return room
}

// wants returns how many units to reserve, for a charge that needs the given units and for the expected demand. The
// result all is how many units would be reserved if the store had room. p.mu is held.
func (p *pool) wants(at, need int64) (n, all int64) {
	room := p.room(at)
	if all = p.demand; !p.plenty(room) { // almost certain demand: two standard deviations less than the average
		all = min(p.cover(), p.rest(at), p.demand-int64(2*math.Sqrt(float64(p.demand))))
	}
	all = max(need, p.waiting, all-p.left(at))
	n = min(all, max(need, room/4, min(p.part(room), p.perTurn())))
	if p.last > 0 {
		n = min(n, max(need, 2*p.last))
	}
	return min(n, p.plan.Capacity), all
}

// deposit returns how many units to reserve in addition to n, in order to raise the bucket's level. Reserved units are
// put on top of the level that the bucket had before, and can be spent only until that earlier level has drained. So
// deposit returns 0 unless the earlier level is so low that, at the present demand, n reserved units would drain before
// they are spent. It returns at most half of the free units. The given level of the bucket includes the n units. The
// parameter beneath is the rest of this level: without the n units, and without everything that other processes can
// give back. p.mu is held.
func (p *pool) deposit(n, beneath, level, at int64) int64 {
	plan := p.plan
	if plan.Kernel != kernel.Meter {
		return 0
	}
	enough := max(0, n*(plan.Drain*(p.horizon/plan.Tick)/p.demand-plan.Unit))
	others := level - n*plan.Unit - beneath // the part of the level that other processes can give back
	target := others + enough + enough/2
	switch {
	case beneath >= enough:
		p.shallow = 0
		return 0
	case p.shallow == 0:
		p.shallow = at
	}
	if at-p.shallow < p.horizon/2 || p.drift >= 0 { // other processes may be raising the level, or the demand is not yet well known
		if target = others + 2*n*plan.Unit; beneath >= 0 {
			return 0
		}
	}
	return max(0, min((target-level)/plan.Unit, (plan.Size-level)/plan.Unit/2))
}
