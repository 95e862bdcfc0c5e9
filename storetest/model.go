package storetest

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Model is a [sluice.Store] written from the definitions of the algorithms in rational numbers, without any of the
// arithmetic that it checks. Of the numbers that a plan derives from its settings, a Take reads only Most, and Tick,
// which is the precision of the numbers. A Model forgets nothing, is slow, and is meant for tests. The zero value
// is ready for use.
type Model struct {
	mu       sync.Mutex
	accounts map[identity]account
	terms    map[*sluice.Plan]*terms
	most     map[string]int64 // by meaning: the largest Most of the plans of a meter
}

// identity identifies a state by its key and by the meaning of its numbers.
type identity struct{ key, meaning string }

// terms has a limit in ticks.
type terms struct {
	meaning  string
	tick     int64    // in microseconds
	period   int64    // in ticks; for a log, the time for which a unit counts
	rate     *big.Rat // units per tick
	capacity int64
	most     int64 // the most units that a state keeps; for a meter, the largest Most of all plans that share the state
	meter    bool
	sliding  bool
	distinct bool // permits are values, which expire
	monthDay int  // for windows of calendar months
	penalty  sluice.Penalty
	open     func() account
}

// account is the state of an identity. Times are in ticks.
type account interface {
	// follow adapts the state to a clock that has stepped back: it moves back times that are too far ahead of the
	// clock.
	follow(t *terms, now int64)
	// fits reports whether more units would fit.
	fits(t *terms, now, units int64) bool
	// add commits units, or gives units back if the number is negative.
	add(t *terms, now, units int64)
	// idle reports whether nothing is used.
	idle(t *terms, now int64) bool
	// fill completes the receipt of a charge of cost units.
	fill(t *terms, now, cost int64, r *sluice.Receipt)
}

// debtor is an account that keeps owed units, up to the most of its terms.
type debtor interface {
	// owe commits units, and returns how many were cut because they are above most.
	owe(t *terms, now, units int64) (cut int64)
}

// Take implements [sluice.Store] on the clock of this machine.
func (m *Model) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.take(ctx, time.Now().UnixMicro(), charges, receipts)
}

// TakeAt implements [TimedStore].
func (m *Model) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.take(ctx, now, charges, receipts)
}

func (m *Model) take(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	admitted := true
	for _, c := range charges {
		m.meet(c.Plan)
	}
	for i, c := range charges {
		c = inTime(c, now)
		a, t := m.open(c)
		a.follow(t, now/t.tick)
		fits := c.Cost <= 0 || a.fits(t, now/t.tick, c.Cost)
		if lock, ok := a.(*lockAccount); ok && fits && c.Cost > 0 && exceeded(charges[:i], receipts, c.Key) {
			lock.offend(t, now)
			fits = false
		}
		receipts[i] = sluice.Receipt{Receipt: kernel.Receipt{Now: now, Fits: fits}}
		admitted = admitted && (fits || c.Shadow || c.Owe)
	}
	for i, c := range charges {
		c = inTime(c, now)
		a, t := m.open(c)
		if admitted && receipts[i].Fits && c.Cost != 0 {
			a.add(t, now/t.tick, c.Cost)
		}
		if debts, ok := a.(debtor); ok && admitted && !receipts[i].Fits && c.Owe {
			receipts[i].Cut = debts.owe(t, now/t.tick, c.Cost)
		}
		a.fill(t, now/t.tick, c.Cost, &receipts[i])
	}
	return nil
}

// inTime returns c, with a cost of 0 if it is a refund that comes too late.
func inTime(c sluice.Charge, now int64) sluice.Charge {
	if late := c.Until != 0 && c.Until <= now; late {
		c.Cost = max(c.Cost, 0)
	}
	return c
}

// open returns the account of a charge.
func (m *Model) open(c sluice.Charge) (account, *terms) {
	t := m.termsOf(c.Plan)
	id := identity{c.Key, t.meaning}
	a := m.accounts[id]
	if a == nil {
		a = t.open()
		id.key = strings.Clone(c.Key)
		m.accounts[id] = a
	}
	if permits, ok := a.(*permitsAccount); ok {
		permits.current = c.Permit
	}
	return a, t
}

func (m *Model) termsOf(p *sluice.Plan) *terms {
	t := m.meet(p)
	if t.meter && !p.Fixed {
		with := *t
		with.most = m.most[t.meaning]
		return &with
	}
	return t
}

// meet records the Most of a plan, and returns its terms.
func (m *Model) meet(p *sluice.Plan) *terms {
	if m.terms == nil {
		m.terms = make(map[*sluice.Plan]*terms)
		m.accounts = make(map[identity]account)
		m.most = make(map[string]int64)
	}
	t := m.terms[p]
	if t == nil {
		t = newTerms(p)
		m.terms[p] = t
		m.most[t.meaning] = max(m.most[t.meaning], t.most)
	}
	return t
}

func newTerms(p *sluice.Plan) *terms {
	switch {
	case p.Penalty.First > 0:
		return newLockTerms(p.Penalty)
	case p.Kernel.Permits():
		return newPermitsTerms(p)
	}
	l := p.Limit
	t := &terms{tick: p.Tick, period: l.Period.Microseconds() / p.Tick, capacity: l.Count, most: p.Most}
	t.rate = big.NewRat(l.Count, t.period)
	switch l.Algorithm {
	case sluice.TokenBucket, sluice.LeakyBucket, sluice.GCRA:
		t.capacity = l.Burst
		t.meter = true
		t.meaning = fmt.Sprintf("meter, %v a microsecond, once: %v", big.NewRat(l.Count, l.Period.Microseconds()), p.Once)
		t.open = func() account { return new(meterAccount) }
	case sluice.FixedWindow, sluice.SlidingWindowCounter:
		t.sliding = l.Algorithm == sluice.SlidingWindowCounter
		t.monthDay = l.MonthDay
		t.meaning = fmt.Sprintf("%v of %v, or a month from %d", l.Algorithm, l.Period, t.monthDay)
		t.open = func() account { return new(windowAccount) }
	default:
		t.setLog(p)
		exact := l.Algorithm == sluice.SlidingWindowLogExact
		t.meaning = fmt.Sprintf("log of %d ticks of %d, exact %v", t.period, t.tick, exact)
		t.open = func() account { return new(logAccount) }
	}
	return t
}

// setLog sets the precision of a log. A unit counts from the end of its tick for a period, which is rounded up to
// the beginning of a tick, because all decisions are at beginnings of ticks.
func (t *terms) setLog(p *sluice.Plan) {
	period := p.Limit.Period.Microseconds()
	if p.Limit.Algorithm == sluice.SlidingWindowLog {
		parts := int64(32768)
		if p.Limit.Count > 1024 {
			parts = 32
		}
		for t.tick = period / parts; t.tick*parts < period; t.tick++ {
		}
	}
	end := t.tick - 1 // the last microsecond of tick 0; a unit may have been taken then
	for t.period = (end + period) / t.tick; t.period*t.tick < end+period; t.period++ {
	}
}

// meterAccount drains at the limit's rate. Its state is the time at which it will be empty, in microseconds.
type meterAccount struct {
	emptyAt *big.Rat // nil if it has always been empty
}

// parts returns the number of parts of a unit. A part is the largest amount such that a unit and the amount that
// drains in a tick are both multiples of it. Levels are rounded up to parts.
func (t *terms) parts() *big.Int { return t.rate.Denom() }

// micros returns when a tick begins, in microseconds.
func (t *terms) micros(tick int64) *big.Rat { return new(big.Rat).Mul(integer(tick), integer(t.tick)) }

// exactly returns the units that have not drained yet, rounded up to a part.
func (a *meterAccount) exactly(t *terms, now int64) *big.Rat {
	used := new(big.Rat)
	if a.emptyAt == nil {
		return used
	}
	used.Sub(a.emptyAt, t.micros(now))
	used.Mul(used, t.rate)
	used.Quo(used, integer(t.tick))
	if used.Sign() < 0 {
		return used.SetInt64(0)
	}
	parts := new(big.Rat).SetInt(t.parts())
	used.Mul(used, parts)
	up := new(big.Int).Add(used.Num(), used.Denom())
	up.Quo(up.Sub(up, big.NewInt(1)), used.Denom())
	return used.Quo(used.SetInt(up), parts)
}

// countable returns 2^52 parts, the largest level that stores can count, if other plans can raise the level above
// 2^51 parts. Otherwise it returns nil: stores can count every level.
func (t *terms) countable() *big.Rat {
	most := new(big.Int).Mul(big.NewInt(t.most), t.parts())
	if most.Cmp(big.NewInt(1<<51)) <= 0 {
		return nil
	}
	return new(big.Rat).SetFrac(big.NewInt(1<<52), t.parts())
}

// used returns the units that have not drained yet, at most countable. It reports whether there are more units.
func (a *meterAccount) used(t *terms, now int64) (used *big.Rat, beyond bool) {
	used = a.exactly(t, now)
	if line := t.countable(); line != nil && used.Cmp(line) > 0 {
		return line, true
	}
	return used, false
}

// set sets the level at the time now to the given units.
func (a *meterAccount) set(t *terms, now int64, used *big.Rat) {
	if used.Sign() <= 0 {
		a.emptyAt = nil
		return
	}
	drains := new(big.Rat).Quo(used, t.rate)
	drains.Mul(drains, integer(t.tick))
	a.emptyAt = drains.Add(drains, t.micros(now))
}

func (a *meterAccount) follow(t *terms, now int64) {
	if most := integer(t.most); t.countable() == nil && a.exactly(t, now).Cmp(most) > 0 {
		a.set(t, now, most)
	}
}

func (a *meterAccount) fits(t *terms, now, units int64) bool {
	level, _ := a.used(t, now)
	return level.Add(level, integer(units)).Cmp(integer(t.capacity)) <= 0
}

func (a *meterAccount) add(t *terms, now, units int64) {
	level, beyond := a.used(t, now)
	switch {
	case units < 0 && level.Sign() == 0: // nothing to give back
	case units < 0 && beyond && units > -1<<52: // the level stays uncountable
	default:
		a.set(t, now, level.Add(level, integer(units)))
	}
}

func (a *meterAccount) owe(t *terms, now, units int64) (cut int64) {
	level, beyond := a.used(t, now)
	if beyond {
		return units
	}
	full := integer(t.most)
	if line := t.countable(); line != nil {
		full = line
	}
	room := new(big.Rat).Sub(full, level)
	whole := new(big.Int).Quo(room.Num(), room.Denom()).Int64()
	if units > whole {
		a.set(t, now, full)
		return units - whole
	}
	a.set(t, now, level.Add(level, integer(units)))
	return 0
}

func (a *meterAccount) idle(t *terms, now int64) bool { return a.exactly(t, now).Sign() == 0 }

func (a *meterAccount) fill(t *terms, now, _ int64, r *sluice.Receipt) {
	parts, _ := a.used(t, now)
	if parts.Mul(parts, new(big.Rat).SetInt(t.parts())); !parts.IsInt() {
		panic(fmt.Sprintf("the level is no whole number of parts: %v", parts))
	}
	r.Used = parts.Num().Int64()
}

// window returns the number of the window that contains the time now.
func (t *terms) window(now int64) int64 {
	if t.monthDay > 0 {
		return monthAt(now, t.monthDay)
	}
	return now / t.period
}

// begin returns when a window begins.
func (t *terms) begin(window int64) int64 {
	if t.monthDay > 0 {
		return monthEdge(window-1, t.monthDay)
	}
	return window * t.period
}

// windowAccount counts in windows aligned to the epoch or the calendar.
type windowAccount struct {
	window, this, last int64
}

// at returns the account as of the time now, and the time to use with the account: now, or the beginning of the
// account's window if that is later.
func (a *windowAccount) at(t *terms, now int64) (windowAccount, int64) {
	window := t.window(now)
	switch {
	case a.this == 0 && a.last == 0, window > a.window+1:
		return windowAccount{window: window}, now
	case window == a.window+1 && t.sliding:
		return windowAccount{window: window, last: a.this}, now
	case window == a.window+1:
		return windowAccount{window: window}, now
	}
	return *a, max(now, t.begin(a.window))
}

func (a *windowAccount) follow(t *terms, now int64) {
	if window := t.window(now); (a.this > 0 || a.last > 0) && window < a.window-1 {
		a.window = window
	}
}

// estimate returns the units of the last period.
func (a *windowAccount) estimate(t *terms, now int64) *big.Rat {
	w, now := a.at(t, now)
	left := t.begin(w.window+1) - now
	weighted := new(big.Rat).Mul(integer(w.last), big.NewRat(left, t.period))
	return weighted.Add(weighted, integer(w.this))
}

func (a *windowAccount) fits(t *terms, now, units int64) bool {
	sum := a.estimate(t, now)
	return sum.Add(sum, integer(units)).Cmp(integer(t.capacity)) <= 0
}

func (a *windowAccount) add(t *terms, now, units int64) {
	*a, _ = a.at(t, now)
	if a.this += units; a.this < 0 {
		// Units that the current window does not have are given back in the previous window.
		a.this, a.last = 0, max(0, a.last+a.this)
	}
}

func (a *windowAccount) owe(t *terms, now, units int64) (cut int64) {
	w, _ := a.at(t, now)
	land := min(units, max(0, t.most-w.this))
	if land > 0 {
		a.add(t, now, land)
	}
	return units - land
}

func (a *windowAccount) idle(t *terms, now int64) bool { return a.estimate(t, now).Sign() == 0 }

func (a *windowAccount) fill(t *terms, now, _ int64, r *sluice.Receipt) {
	w, _ := a.at(t, now)
	r.Tick, r.Used, r.Prev = w.window, w.this, w.last
}

// logAccount keeps every unit, the oldest first.
type logAccount struct {
	entries []entry
}

type entry struct{ tick, units int64 }

// at returns the entries that count at the time now, and the time to use with them: now, or the time of the newest
// unit if that is later.
func (a *logAccount) at(t *terms, now int64) ([]entry, int64) {
	if n := len(a.entries); n > 0 {
		now = max(now, a.entries[n-1].tick)
	}
	count := a.entries
	for len(count) > 0 && count[0].tick <= now-t.period {
		count = count[1:]
	}
	return count, now
}

func (a *logAccount) follow(t *terms, now int64) {
	if _, still := a.at(t, now); still-now > t.period {
		for i := range a.entries {
			a.entries[i].tick -= still - now
		}
	}
}

func (a *logAccount) used(t *terms, now int64) (sum int64) {
	entries, _ := a.at(t, now)
	for _, e := range entries {
		sum += e.units
	}
	return sum
}

func (a *logAccount) fits(t *terms, now, units int64) bool {
	sum := integer(a.used(t, now))
	return sum.Add(sum, integer(units)).Cmp(integer(t.capacity)) <= 0
}

func (a *logAccount) add(t *terms, now, units int64) {
	entries, now := a.at(t, now)
	a.entries = entries
	if units > 0 {
		a.entries = append(a.entries, entry{now, units})
	}
	for n := len(a.entries) - 1; units < 0 && n >= 0; n-- {
		back := min(a.entries[n].units, -max(units, -1<<62))
		units += back
		if a.entries[n].units -= back; a.entries[n].units == 0 {
			a.entries = a.entries[:n]
		}
	}
}

func (a *logAccount) owe(t *terms, now, units int64) (cut int64) {
	land := min(units, max(0, t.most-a.used(t, now)))
	if land > 0 {
		a.add(t, now, land)
	}
	return units - land
}

func (a *logAccount) idle(t *terms, now int64) bool { return a.used(t, now) == 0 }

func (a *logAccount) fill(t *terms, now, cost int64, r *sluice.Receipt) {
	entries, _ := a.at(t, now)
	r.Used = a.used(t, now)
	if r.Used > 0 {
		r.Tick = entries[len(entries)-1].tick
	}
	if r.Fits {
		cost = 1
	}
	if cost > t.capacity {
		return
	}
	for left := r.Used; left+cost > t.capacity; entries = entries[1:] {
		left -= entries[0].units
		r.Wait = entries[0].tick + t.period
	}
}

func integer(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
