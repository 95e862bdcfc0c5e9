package redisstore

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// cacheFor is how long a state that denies is remembered, in microseconds. Denials from memory are exact as long as
// nothing is given back. Refunds by this process take effect at once. Resets and refunds by others take effect when
// their message arrives (see resets), or after cacheFor if no message arrives. If the server loses its states, or
// its clock is set, this also takes effect after cacheFor. So no wrong denial lasts for more than a second, and a
// client that keeps trying costs the server a call a second.
const cacheFor = 1_000_000

const (
	cacheBits = 12
	cacheSets = 1 << cacheBits
	cacheWays = 4
)

// denyCache remembers the latest receipt of each state that was part of a denied request. It is a 4-way
// set-associative cache of 16,384 states in 1.5 MB, allocated with the first denial. A new state replaces the state
// of its set that has the oldest receipt.
type denyCache struct {
	base  time.Time
	seed  maphash.Seed
	table atomic.Pointer[[cacheSets]cacheSet] // nil until makeTable
}

type cacheSet struct {
	sync.RWMutex
	entries [cacheWays]cacheEntry
	// The answer to a request sent at or before floor adds no entry. It may be older than a refund that no entry
	// records any more.
	floor int64
}

// cacheEntry has the server's receipt of a state. The tag is a keyed hash of 63 bits: the probability that a key is
// mistaken for one of a full table is 2 in 10^15.
type cacheEntry struct {
	tag             uint64
	kernel.Snapshot     // Now is the server's time, or unknownState
	place           int // index of the request among those of its call
	// The server answered between sent and back, in microseconds by the clock of denyCache.
	sent, back int64
	// counted reports that receipts of requests are valid if these were sent after the time in the field sent. The
	// state is unknown until such a receipt arrives.
	counted bool
}

// unknownState is the Now of a state that is unknown because of a refund.
const unknownState = math.MaxInt64

func newDenyCache() *denyCache {
	// The base is a microsecond ago, so that no time is 0, which marks empty entries.
	return &denyCache{base: time.Now().Add(-time.Microsecond), seed: maphash.MakeSeed()}
}

// at converts a time to the clock of d.
func (d *denyCache) at(t time.Time) int64 { return t.Sub(d.base).Microseconds() }

// answer reports whether one of charges is certain to refuse the Take, and if so writes the receipts that the
// server would return. The Now of the receipts is never before the Now of the remembered ones. If the denial may be
// an offence, answer reports false, because the server has to record it: see [sluice.Offends]. The receipts may
// lack changes that other processes have made to states that do not deny, and changes made while the remembered
// denial was in flight. The denial is correct nevertheless.
func (d *denyCache) answer(charges []sluice.Charge, receipts []sluice.Receipt) bool {
	return d.table.Load() != nil && d.answerAt(d.at(time.Now()), charges, receipts)
}

func (d *denyCache) answerAt(at int64, charges []sluice.Charge, receipts []sluice.Receipt) bool {
	refuses, _ := d.lookUp(at, charges, receipts)
	return refuses
}

// lookUp writes the receipts of charges as if the request were denied. It reports whether one of the charges is
// certain to refuse the request, and whether all states are known.
func (d *denyCache) lookUp(at int64, charges []sluice.Charge, receipts []sluice.Receipt) (refuses, all bool) {
	var k cacheEntry
	for i := range charges {
		c := &charges[i]
		if c.Cost < 0 || !d.get(c, &k) || at-k.sent > cacheFor {
			return false, false
		}
		if c.Plan.Kernel == kernel.Distinct { // the remembered state does not have the values, and the value may be counted already
			return false, false
		}
		at = max(at, k.back) // another goroutine may have stored k after the clock was read
		// The server's time is now between from and to. Each state has its own times, because nodes of a cluster
		// have different clocks.
		from := k.Now + at - k.back
		to := k.Now + at - k.sent + (at-k.sent)/1000 // clocks differ in speed
		r, ok := k.Receipt(&c.Plan.Plan, to, c.Cost)
		if !ok {
			return false, false
		}
		if c.Plan.Kernel == kernel.Lock { // at the time to, the penalty may have ended
			if receipts[i].Receipt = r; sluice.Offends(charges, receipts, i) {
				return false, false
			}
		}
		refuses = refuses || !r.Fits && cacheable(c)
		receipts[i].Receipt, _ = k.Receipt(&c.Plan.Plan, from, c.Cost)
		receipts[i].Origin = sluice.ByDenyCache
	}
	return refuses, true
}

// wouldRefuse reports whether the last known state of c, however old, refuses c.
func (d *denyCache) wouldRefuse(c *sluice.Charge) bool {
	var k cacheEntry
	if !c.Refuses() || d.table.Load() == nil || !d.get(c, &k) {
		return false
	}
	r, ok := k.Receipt(&c.Plan.Plan, k.Now, c.Cost)
	return ok && !r.Fits
}

// cacheable reports whether a refusal of c is answered from memory. For permits in flight it is not, because
// permits are given back with every response.
func cacheable(c *sluice.Charge) bool {
	return c.Refuses() && !c.Plan.Kernel.Permits()
}

// learn remembers the answer to a request. If the request gave units back, learn remembers nothing, and reports
// true.
func (d *denyCache) learn(r *request, charges []sluice.Charge, receipts []sluice.Receipt) (gaveBack bool) {
	if givesBack(charges) {
		d.forget(charges)
		return true
	}
	if d.table.Load() != nil || r.look || worthCaching(charges, receipts) {
		d.note(cacheEntry{place: r.place, sent: d.at(r.sentAt), back: d.at(time.Now())}, r.look, charges, receipts, r.oldest)
	}
	return false
}

// note remembers the states of all charges if the request was denied, gives units back, or only peeked because
// another slot refuses. Otherwise it only updates existing entries. oldest has the meaning of request.oldest.
func (d *denyCache) note(k cacheEntry, looked bool, charges []sluice.Charge, receipts []sluice.Receipt, oldest []int64) {
	d.makeTable()
	all, back := looked || worthCaching(charges, receipts), givesBack(charges)
	for i := range charges {
		k.Snapshot = charges[i].Plan.Snapshot(charges[i].Cost, receipts[i].Receipt, oldest[i])
		d.put(charges[i].Plan.Fingerprint, charges[i].Key, k, all, back)
	}
}

// worthCaching reports whether a request was denied or gives units back.
func worthCaching(charges []sluice.Charge, receipts []sluice.Receipt) bool {
	return givesBack(charges) || !sluice.Admitted(charges, receipts)
}

// forget makes the states of all charges unknown for a second if any of them gives units back. It is called before the
// request is sent and again after its answer, because older answers may arrive in between.
func (d *denyCache) forget(charges []sluice.Charge) {
	if !givesBack(charges) {
		return
	}
	at := d.at(time.Now())
	for i := range charges {
		d.forgetState(charges[i].Plan.Fingerprint, charges[i].Key, at)
	}
}

// forgetState makes a state unknown for a second. at is the present time.
func (d *denyCache) forgetState(fingerprint uint64, key string, at int64) {
	d.makeTable()
	unknown := cacheEntry{Snapshot: kernel.Snapshot{Now: unknownState}, sent: at, back: at}
	d.put(fingerprint, key, unknown, true, true)
}

// forgetRefunded makes a state unknown until the next call of the server, because another process has given units back
// to it. at is the present time.
func (d *denyCache) forgetRefunded(fingerprint uint64, key string, at int64) {
	d.makeTable()
	unknown := cacheEntry{Snapshot: kernel.Snapshot{Now: unknownState}, sent: at, back: at, counted: true}
	d.put(fingerprint, key, unknown, false, true)
}

// makeTable allocates the table unless it exists.
func (d *denyCache) makeTable() {
	if d.table.Load() == nil {
		d.table.CompareAndSwap(nil, new([cacheSets]cacheSet))
	}
}

// givesBack reports whether charges give units back to a state that may deny from memory. Permits in flight and
// distinct values never do.
func givesBack(charges []sluice.Charge) bool {
	for i := range charges {
		if charges[i].Cost < 0 && !charges[i].Plan.Kernel.Permits() {
			return true
		}
	}
	return false
}

// get copies the entry of c to k, and reports whether its state is known.
func (d *denyCache) get(c *sluice.Charge, k *cacheEntry) bool {
	tag, set := d.set(c.Plan.Fingerprint, c.Key)
	set.RLock()
	defer set.RUnlock()
	for i := range set.entries {
		if set.entries[i].tag == tag {
			*k = set.entries[i]
			return k.Now != unknownState
		}
	}
	return false
}

// put remembers k unless the existing entry is newer: answers may arrive out of order. If wanted is false, it only
// updates an existing entry. Until it expires, the entry of a refund is not replaced by an answer to a request that
// was sent before the refund returned.
func (d *denyCache) put(fingerprint uint64, key string, k cacheEntry, wanted, givesBack bool) {
	tag, set := d.set(fingerprint, key)
	k.tag = tag
	set.Lock()
	defer set.Unlock()
	oldest := &set.entries[0]
	for i := range set.entries {
		old := &set.entries[i]
		if old.tag == tag {
			switch {
			case k.back-old.sent > cacheFor || old.counted && k.sent > old.sent:
				*old = k
			case k.Now == unknownState && old.Now == unknownState:
				k.counted = k.counted && old.counted // otherwise a refund by this process may be on its way
				*old = k
			case k.Now > old.Now || k.Now == old.Now && k.place >= old.place:
				*old = k
			}
			return
		}
		if old.sent < oldest.sent {
			oldest = old
		}
	}
	switch {
	case wanted && k.sent > set.floor:
		set.floor = max(set.floor, oldest.back)
		*oldest = k
	case givesBack:
		set.floor = max(set.floor, k.back)
	}
}

// set returns the set of a state and the state's tag, which is not 0.
func (d *denyCache) set(fingerprint uint64, key string) (tag uint64, set *cacheSet) {
	tag = maphash.String(d.seed, key) ^ fingerprint | 1
	return tag, &d.table.Load()[tag>>(64-cacheBits)]
}
