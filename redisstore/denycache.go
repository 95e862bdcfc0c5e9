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

// cacheFor is how long a state that denies is remembered, in microseconds. Until it drains its denials are exact,
// as long as nothing is given back. Refunds by this process count at once, and resets and refunds by others when
// their message arrives (see resets). Without a message they take effect after this time, and so do lost states and
// a clock that was set. So no wrong denial lasts for more than a second, and a client that keeps trying costs the
// server a call a second.
const cacheFor = 1_000_000

const (
	cacheBits = 12
	cacheSets = 1 << cacheBits
	cacheWays = 4
)

// denyCache remembers the server's latest receipts of states in denied requests. It is a 4-way set-associative
// cache of 16,384 states in 1.5 MB, allocated with the first denial. A new state replaces the one of its set with
// the oldest receipt.
type denyCache struct {
	base  time.Time
	seed  maphash.Seed
	table atomic.Pointer[[cacheSets]cacheSet] // nil until there is something to remember
}

type cacheSet struct {
	sync.RWMutex
	entries [cacheWays]cacheEntry
	// What was sent no later than this is not remembered anew, since it may be older than a
	// give-back that had to make room.
	floor int64
}

// cacheEntry is the server's receipt of a state. It is found by a keyed hash of 63 bits: the probability that a key
// is mistaken for one of a full table is 2 in 10^15.
type cacheEntry struct {
	tag             uint64
	kernel.Snapshot     // its Now is the server's time, or unknownState
	place           int // among the requests that were decided at that time
	// The server answered between these times, in microseconds by the clock of denyCache.
	sent, back int64
	// counted reports that the state at sent is unknown; later receipts are valid.
	counted bool
}

// unknownState is the time of a state that may have been given back to.
const unknownState = math.MaxInt64

func newDenyCache() *denyCache {
	// No time is 0, which is that of an empty place.
	return &denyCache{base: time.Now().Add(-time.Microsecond), seed: maphash.MakeSeed()}
}

// at returns a time by the clock of d.
func (d *denyCache) at(t time.Time) int64 { return t.Sub(d.base).Microseconds() }

// answer reports whether one of charges is certain to be refused, and if so writes the receipts that the server
// would give. Their time is not before that of the remembered answer. A denial that may be an offence needs the
// server, which records it: see [sluice.Offends]. The receipts may lack changes by others to states that do not
// deny, and those made while the denial was under way: the denial is right without them.
func (d *denyCache) answer(charges []sluice.Charge, receipts []sluice.Receipt) bool {
	return d.table.Load() != nil && d.answerAt(d.at(time.Now()), charges, receipts)
}

func (d *denyCache) answerAt(at int64, charges []sluice.Charge, receipts []sluice.Receipt) bool {
	refuses, _ := d.lookUp(at, charges, receipts)
	return refuses
}

// lookUp writes the receipts of charges in a request that is refused, if all are known, and
// reports whether one of them is certain to refuse it.
func (d *denyCache) lookUp(at int64, charges []sluice.Charge, receipts []sluice.Receipt) (refuses, all bool) {
	var k cacheEntry
	for i := range charges {
		c := &charges[i]
		if c.Cost < 0 || !d.get(c, &k) || at-k.sent > cacheFor {
			return false, false
		}
		if c.Plan.Kernel == kernel.Distinct { // the state does not have the values: this one may count already
			return false, false
		}
		at = max(at, k.back) // it may have been learnt after the clock was read
		// The server's time is between these. Each state has its own: on a cluster so do
		// the nodes.
		from := k.Now + at - k.back
		to := k.Now + at - k.sent + (at-k.sent)/1000 // clocks do not run alike
		r, ok := k.Receipt(&c.Plan.Plan, to, c.Cost)
		if !ok {
			return false, false
		}
		if c.Plan.Kernel == kernel.Lock { // the penalty may be over by then
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

// wouldRefuse reports whether the last known state of c would have refused it, however long
// ago that was.
func (d *denyCache) wouldRefuse(c *sluice.Charge) bool {
	var k cacheEntry
	if !c.Refuses() || d.table.Load() == nil || !d.get(c, &k) {
		return false
	}
	r, ok := k.Receipt(&c.Plan.Plan, k.Now, c.Cost)
	return ok && !r.Fits
}

// cacheable reports whether a refusal of c is answered from memory. One of places in flight is not: they are
// given back with every response; how many are taken is only told beside the refusal of another.
func cacheable(c *sluice.Charge) bool {
	return c.Refuses() && !c.Plan.Kernel.Permits()
}

// learn remembers the answer to a request, and reports whether it gave something back, so that
// there is nothing to remember.
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

// note remembers all states if the request was refused or gives back, or was only a look,
// which belongs to a refusal on another slot. Otherwise it only updates existing entries.
// Oldest is as in a request.
func (d *denyCache) note(k cacheEntry, looked bool, charges []sluice.Charge, receipts []sluice.Receipt, oldest []int64) {
	d.makeTable()
	all, back := looked || worthCaching(charges, receipts), givesBack(charges)
	for i := range charges {
		k.Snapshot = charges[i].Plan.Snapshot(charges[i].Cost, receipts[i].Receipt, oldest[i])
		d.put(charges[i].Plan.Fingerprint, charges[i].Key, k, all, back)
	}
}

// worthCaching reports whether a request was refused or gives something back.
func worthCaching(charges []sluice.Charge, receipts []sluice.Receipt) bool {
	return givesBack(charges) || !sluice.Admitted(charges, receipts)
}

// forget makes the states unknown for a second if charges give something back. It is called
// before that is sent and when it is over, since answers from before it may come after it.
func (d *denyCache) forget(charges []sluice.Charge) {
	if !givesBack(charges) {
		return
	}
	at := d.at(time.Now())
	for i := range charges {
		d.forgetState(charges[i].Plan.Fingerprint, charges[i].Key, at)
	}
}

// forgetState makes a state unknown for a second. At is now.
func (d *denyCache) forgetState(fingerprint uint64, key string, at int64) {
	d.makeTable()
	unknown := cacheEntry{Snapshot: kernel.Snapshot{Now: unknownState}, sent: at, back: at}
	d.put(fingerprint, key, unknown, true, true)
}

// forgetHeard makes a state unknown to which another process has given back, until the server is asked
// again. At is now.
func (d *denyCache) forgetHeard(fingerprint uint64, key string, at int64) {
	d.makeTable()
	unknown := cacheEntry{Snapshot: kernel.Snapshot{Now: unknownState}, sent: at, back: at, counted: true}
	d.put(fingerprint, key, unknown, false, true)
}

// makeTable makes the table, once.
func (d *denyCache) makeTable() {
	if d.table.Load() == nil {
		d.table.CompareAndSwap(nil, new([cacheSets]cacheSet))
	}
}

// givesBack reports whether charges give back units of a state that may deny from memory, which permits in flight
// never do.
func givesBack(charges []sluice.Charge) bool {
	for i := range charges {
		if charges[i].Cost < 0 && !charges[i].Plan.Kernel.Permits() {
			return true
		}
	}
	return false
}

// get copies what is known of the state of c to k.
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

// put remembers k unless what is known is newer: answers may arrive out of order. Unless
// wanted, it only updates an existing entry. An answer from before a give-back never follows
// it: its request was sent before the give-back returned.
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
				k.counted = k.counted && old.counted // else a give-back of ours may be under way
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

// set returns the set of a state, and its tag there, which is not 0.
func (d *denyCache) set(fingerprint uint64, key string) (tag uint64, set *cacheSet) {
	tag = maphash.String(d.seed, key) ^ fingerprint | 1
	return tag, &d.table.Load()[tag>>(64-cacheBits)]
}
