// Package fair divides a limit among the tenants that share it, by weight. A tenant that requests fewer units than
// its allocation gets all the units that it requests, and the rest of the limit is divided among the other tenants.
// The package has no clock and does not count used units; package policy makes the charges.
//
// A request of a tenant makes two charges. The first charges the limit, which is an ordinary bucket, so the limit
// is exact with every store. The second charges a meter of the tenant. There, a unit costs the time between two units
// at the rate of the tenant's allocation. When allocations change, only this cost changes; plans and states stay the
// same.
//
// The limit is divided according to the demand of the last window, by water-filling (see [Fill]). The amount to
// divide depends on the level of the bucket, so that no units stay unused: it is larger if the level is below a
// target, and smaller if the level is above the target. At the target level, the bucket still has a reserve of
// unused units for tenants below their allocation. A window has four epochs. The first request of an epoch computes
// the division. Requests that come meanwhile use the previous division, so no goroutine is needed.
package fair

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxTenants is the maximum number of tenants that a cap tracks at a time. All further tenants count as one.
	MaxTenants = 10_000
	// MaxWeight is the largest weight.
	MaxWeight = 1000
	// MaxUnits is the maximum number of units that a cap may have in its window.
	MaxUnits = 1 << 30
	// MaxWindow is the longest window of a cap.
	MaxWindow = 24 * time.Hour

	epochs     = 4       // the number of epochs in a window
	minWindow  = 1e6     // microseconds
	minUnits   = 32      // the least number of units in a window, so that slow caps have enough to divide
	scale      = 1 << 10 // the factor by which demands are multiplied, for precise allocations
	othersLast = 1e6     // microseconds for which a post of other instances is valid
	farAhead   = 1 << 40 // an upper bound of the units that a tenant requests in an epoch
)

// Cap is a limit that tenants share. It has the latest demand of the tenants, and their allocations. It is safe for
// concurrent use.
//
// Time is divided into epochs. An epoch is a quarter of the window. A tenant's demand is the number of units that it
// requested in the last window; for a new tenant, the number is extrapolated to a whole window. A tenant with
// requests in the last window is active. The first request in an epoch divides the cap among the n active tenants
// again, in time n·log n.
type Cap struct {
	ID            uint64 // the same in all processes
	count, period int64  // units per period, and the period in microseconds
	unit          int64  // the amount that one unit adds to the level of the bucket
	epoch         int64  // microseconds
	units         int64  // units in a window, times scale
	least         int64  // the Each of a tenant that is not limited: see Terms
	// These are levels of the bucket, in units. The bucket is full at the level burst. At the level line, only the
	// reserve is left. The level aim is the target while demand exceeds the cap.
	burst, line, aim int64

	began  atomic.Int64 // the start of the epoch, in microseconds
	short  atomic.Bool  // whether demand exceeds the cap
	weight atomic.Int64 // the sum of the weights of all active tenants
	level  atomic.Int64 // the level of the bucket at the time noted; each unit adds Cap.unit
	noted  atomic.Int64 // microseconds
	parts  atomic.Int64 // the number of instances among which the cap was divided at the time noted: see Note
	known  atomic.Pointer[map[string]*tenant]

	adding sync.Mutex         // guards fresh and known
	fresh  map[string]*tenant // the tenants that are not yet in known
	many   int                // the number of tenants in known and fresh

	dividing sync.Mutex // guards the fields below, and the past of tenants
	division Level      // writers also hold adding
	wants    []Want
	rest     tenant // all tenants in excess of MaxTenants, together
	others   others
}

// tenant is the demand of one tenant, and its allocation.
type tenant struct {
	id      uint64
	weight  atomic.Int64
	asked   atomic.Int64 // the number of units requested in this epoch
	limited atomic.Bool  // whether demand exceeds the allocation
	free    atomic.Int64 // if demand exceeds the cap: the units that the tenant may request in an epoch without exceeding its allocation
	each    atomic.Int64 // Each in Terms, for a limited tenant
	due     atomic.Int64 // when the tenant will no longer be ahead of its allocation (see NoteAhead), in microseconds

	past   [epochs]int64 // the number of units requested in each of the last epochs, the newest first
	age    int64         // the number of epochs since its first request, at most epochs
	demand int64         // the demand in this process, in the window
	wants  int64         // the demand in this and in other processes, times scale
}

// Terms has the numbers that are needed to charge a store for a tenant.
type Terms struct {
	// Each is the cost of a unit on the tenant's meter, in nanoseconds. While the cap is divided among N instances,
	// the cost is N times as high.
	Each int64
	// Short reports whether demand exceeds the cap.
	Short bool
	// Over reports whether the tenant requests more than its allocation. If so, the level of the bucket after the
	// request should be at most Line, which leaves the reserve to other tenants.
	Over bool
	Line int64
	// Above reports whether the request would raise the last known level of the bucket above Line.
	Above bool

	part          Level // the division for one epoch
	weight, asked int64
	tenant        *tenant
}

// NoteAhead records by how many nanoseconds the tenant is ahead of its allocation at the time now, which is in
// microseconds.
func (t *Terms) NoteAhead(ahead, now int64) {
	t.tenant.due.Store(now + ahead/1000)
}

// Ahead returns by how many nanoseconds the tenant is ahead of its allocation at the time now, according to the
// last NoteAhead.
func (t *Terms) Ahead(now int64) int64 { return max(0, t.tenant.due.Load()-now) * 1000 }

// Within returns how many more units the tenant can request in this epoch without exceeding its allocation.
func (t *Terms) Within() int64 { return t.part.Of(t.weight) - t.asked }

// Window returns the length of the window of a cap, in microseconds: a tenant is active for this time after a
// request.
func Window(count int64, period time.Duration) int64 {
	return max(minWindow, mulDiv(minUnits, period.Microseconds(), count))
}

// Units returns how many units a cap has in its window.
func Units(count int64, period time.Duration) int64 {
	return mulDiv(count, Window(count, period), period.Microseconds())
}

// New returns a cap of count units per period. Units(count, period) must be at most MaxUnits. The name identifies the
// cap in all processes. The parameter unit is the amount that a unit adds to the level of the bucket.
func New(name string, count int64, period time.Duration, burst, unit int64) *Cap {
	c := &Cap{
		unit: unit,
		ID:   identify(name), count: count, period: period.Microseconds(), burst: burst,
		epoch: Window(count, period) / epochs,
		least: max(1, period.Nanoseconds()/count),
	}
	units := Units(count, period)
	c.line = burst - min(burst/2, units/epochs)
	c.aim = c.line - min(c.line, units)/4
	c.units = mulDiv(count*scale, c.epoch*epochs, c.period)
	c.known.Store(&map[string]*tenant{})
	c.parts.Store(1)
	c.rest.weight.Store(1)
	return c
}

// Same reports whether New was called with these numbers.
func (c *Cap) Same(count int64, period time.Duration, burst int64) bool {
	return c.count == count && c.period == period.Microseconds() && c.burst == burst
}

// Idle reports whether the cap has had no requests for two windows.
func (c *Cap) Idle(now int64) bool { return now-c.began.Load() > 2*epochs*c.epoch }

// identify returns the same number for a name in all processes.
func identify(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:])
}

// Ask records that a tenant requests units at the time now, which is in microseconds, and sets the terms of the
// request. The key is copied.
func (c *Cap) Ask(key string, weight, units, now int64, terms *Terms) {
	c.pass(now)
	t := c.tenant(key, weight, true)
	units = min(max(units, 0), MaxUnits)
	c.set(terms, t, t.asked.Add(units), units, now)
}

// Look sets the terms like Ask, but records nothing.
func (c *Cap) Look(key string, weight, units, now int64, terms *Terms) {
	c.pass(now)
	units = min(max(units, 0), MaxUnits)
	if t := c.tenant(key, weight, false); t != nil {
		c.set(terms, t, t.asked.Load()+units, units, now)
		return
	}
	c.adding.Lock()
	defer c.adding.Unlock()
	var t tenant
	c.admit(&t, weight)
	c.set(terms, &t, units, units, now)
}

// Part is the allocation of a tenant.
type Part struct {
	// Each is the time between two units of the allocation, in nanoseconds. If demand exceeds the cap, this is the
	// current allocation. Otherwise, it is the allocation that the tenant would have if all active tenants had full
	// demand.
	Each    int64
	Weights int64 // the sum of the weights of all active tenants, including this one
	Short   bool  // whether demand exceeds the cap
}

// Part returns the allocation of a tenant at the time now, and records nothing.
func (c *Cap) Part(key string, weight, now int64) Part {
	c.pass(now)
	t := c.tenant(key, weight, false)
	c.adding.Lock()
	defer c.adding.Unlock()
	p := Part{Weights: c.weight.Load(), Short: c.division.Weight > 0}
	if t == nil {
		p.Weights += weight
	}
	if p.Short {
		p.Each = max(c.least, c.each(weight)) * c.parts.Load()
	} else {
		p.Each = max(1, mulDiv(c.period*1000*c.parts.Load(), p.Weights, c.count*weight))
	}
	return p
}

// Note records the level of the cap's bucket at the time now. While instances cannot count together, the bucket is
// divided into parts, and the level is that of this instance's part, in the form of package share. If there are two
// parts, for example, the level of an empty part is half of the burst, and drains half as fast as the level of the
// whole bucket.
func (c *Cap) Note(level, now, parts int64) {
	c.level.Store(level)
	c.noted.Store(now)
	if c.parts.Load() != parts {
		c.parts.Store(parts)
	}
}

// Parts returns the number of instances among which the cap is divided now.
func (c *Cap) Parts() int64 { return c.parts.Load() }

// ofPart converts a level of the whole bucket, in units, to the level that each part has when the bucket is divided
// into the given number of parts.
func (c *Cap) ofPart(units, parts int64) int64 { return c.burst - (c.burst-units)/parts }

func (c *Cap) set(terms *Terms, t *tenant, asked, units, now int64) {
	weight := t.weight.Load()
	terms.Each, terms.Short, terms.Over, terms.Line, terms.Above = c.least, c.short.Load(), false, c.line, false
	terms.part, terms.weight, terms.asked, terms.tenant = Level{}, weight, asked, t
	whole := c.units / scale
	if n := c.parts.Load(); n > 1 {
		terms.Line, whole = c.ofPart(c.line, n), whole/n
	}
	if terms.Short {
		free := t.free.Load()
		terms.Each = max(c.least, t.each.Load())
		terms.part = Level{free, weight}
		terms.Over = t.limited.Load() || asked > free
	} else if all := c.weight.Load(); all > weight {
		terms.part = Level{whole, all}
		terms.Over = !terms.part.covers(Want{min(asked, farAhead), weight})
	}
	if terms.Over = (terms.Over || t == &c.rest) && units <= c.line; terms.Over {
		terms.Above = c.held(now)+units > terms.Line
	}
}

// tenant returns the tenant of a key. If the tenant is new and add is false, the result is nil.
func (c *Cap) tenant(key string, weight int64, add bool) *tenant {
	if t := (*c.known.Load())[key]; t != nil {
		if t.weight.Load() != weight {
			t.weight.Store(weight)
		}
		return t
	}
	c.adding.Lock()
	defer c.adding.Unlock()
	t := c.fresh[key]
	if t == nil {
		t = (*c.known.Load())[key]
	}
	switch {
	case t != nil || !add:
		return t
	case c.many >= MaxTenants:
		return &c.rest
	}
	t = &tenant{id: identify(key)}
	c.admit(t, weight)
	c.weight.Add(weight)
	if c.fresh == nil {
		c.fresh = make(map[string]*tenant)
	}
	c.fresh[strings.Clone(key)] = t
	c.many++
	return t
}

// admit sets the weight and the allocation of a new tenant.
func (c *Cap) admit(t *tenant, weight int64) {
	t.weight.Store(weight)
	c.grant(t, weight)
}

// grant sets the allocation of a tenant. The caller holds adding or dividing.
func (c *Cap) grant(t *tenant, weight int64) (part int64) {
	part = c.division.Of(weight)
	t.free.Store(max(1, part/scale))
	if c.division.Weight > 0 {
		t.each.Store(c.each(weight))
	}
	return part
}

// each returns the time between two units of a limited tenant, in nanoseconds.
func (c *Cap) each(weight int64) int64 {
	if c.division.Rest == 0 {
		return c.epoch * epochs * 1000 // nothing is left for the tenant
	}
	return mulDiv(c.epoch*epochs*1000*scale, c.division.Weight, c.division.Rest*weight*c.parts.Load())
}

// pass starts a new epoch if the current epoch is over.
func (c *Cap) pass(now int64) {
	if since := now - c.began.Load(); since >= 0 && since < c.epoch || since < 0 && since > -c.epoch*epochs {
		return // a small step back is ignored, because the clocks of processors differ a little
	}
	if c.dividing.TryLock() {
		defer c.dividing.Unlock()
		c.renew(now)
	}
}

// renew starts the epoch that contains the time now. The caller holds dividing.
func (c *Cap) renew(now int64) {
	begins := now - now%c.epoch
	steps := (begins - c.began.Load()) / c.epoch
	if steps == 0 {
		return
	}
	if steps < 0 || steps > epochs {
		steps = epochs + 1 // all known demand is older than the window
	}
	c.began.Store(begins)
	c.turn(steps)
	c.divide(now)
}

// turn moves the demand of the present epoch into the past, and drops inactive tenants.
func (c *Cap) turn(steps int64) {
	c.rest.turn(steps)
	known := *c.known.Load()
	gone := 0
	for _, t := range known {
		if t.turn(steps); t.demand == 0 {
			gone++
		}
	}
	c.adding.Lock()
	defer c.adding.Unlock()
	if gone == 0 && len(c.fresh) == 0 {
		return
	}
	next := make(map[string]*tenant, len(known)-gone+len(c.fresh))
	for key, t := range known {
		if t.demand > 0 || t.asked.Load() > 0 {
			next[key] = t
		}
	}
	for key, t := range c.fresh {
		if t.turn(steps); t.demand > 0 || t.asked.Load() > 0 {
			next[key] = t
		}
	}
	c.known.Store(&next)
	c.fresh, c.many = nil, len(next)
}

func (t *tenant) turn(steps int64) {
	asked, before := t.asked.Swap(0), t.past
	t.past = [epochs]int64{}
	if steps <= epochs {
		t.past[steps-1] = asked
		copy(t.past[steps:], before[:])
	}
	t.age = min(t.age+steps, epochs)
	sum := int64(0)
	for _, n := range t.past {
		sum += n
	}
	// A tenant that stops after a large demand must not keep its allocation for a whole window. So the demand is
	// bounded by the highest one that is likely, given the requests in the last epoch.
	last := t.past[0]
	t.demand = min(sum*epochs/t.age, epochs*(last+2*root(last)+4))
}

// divide computes the allocations of the active tenants.
func (c *Cap) divide(now int64) {
	theirs := c.recent(now)
	if c.parts.Load() > 1 {
		theirs = nil // each instance divides its part according to its own demand
	}
	known := *c.known.Load()
	c.wants = c.wants[:0]
	all := int64(0)
	want := func(demand, weight int64) int64 {
		demand = min((demand+root(demand))*scale, 2*c.units)
		if demand > 0 {
			c.wants = append(c.wants, Want{demand, weight})
			all += weight
		}
		return demand
	}
	for _, t := range known {
		t.wants = want(t.demand+theirs.demand(t.id), t.weight.Load())
	}
	want(c.rest.demand, 1)
	theirs.visitRest(want)

	c.adding.Lock()
	defer c.adding.Unlock()
	c.division = Fill(c.wants, c.available(now))
	c.grant(&c.rest, 1)
	for _, t := range known {
		t.limited.Store(t.wants > c.grant(t, t.weight.Load()))
	}
	for _, t := range c.fresh { // the tenants that have come since the last division
		all += t.weight.Load()
		c.grant(t, t.weight.Load())
	}
	c.weight.Store(all)
	c.short.Store(c.division.Weight > 0)
}

// root returns the square root, rounded up.
func root(n int64) int64 { return int64(math.Ceil(math.Sqrt(float64(n)))) }

// available returns how many units can be divided in a window, times scale. They are up to twice the units of the cap,
// because allocations are larger than the demand: a tenant that requests one unit in a window gets two.
func (c *Cap) available(now int64) int64 {
	n := c.parts.Load()
	units := c.units / n
	return units + min(max(2*(c.ofPart(c.aim, n)-c.held(now))*scale, -units/2), units)
}

// held returns how many units the bucket contains at the time now, according to the last Note.
func (c *Cap) held(now int64) int64 {
	n := c.parts.Load()
	return max(c.ofPart(0, n), c.level.Load()/c.unit-mulDiv(max(0, now-c.noted.Load()), c.count, c.period*n))
}
