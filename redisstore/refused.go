package redisstore

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
)

// remember is how long a state that refuses is remembered, in microseconds. Until it
// drains it refuses exactly, as long as nothing is given back. What this process gives
// back it knows of at once; what another gives back, a server that has lost its states,
// or a clock that was set, it learns of after this long. So nobody is refused wrongly for
// more than a second, and one who keeps asking costs the server a call a second.
const remember = 1_000_000

const (
	refusedBits = 12
	refusedSets = 1 << refusedBits
	refusedWays = 4
)

// refused remembers what the server has said lately of the states in requests that it
// refused. It is a table of 1.5 MB, made with the first refusal, in which each of 16,384
// states has a choice of a few places; of those that want them the ones that the server was
// asked for last have them.
type refused struct {
	base  time.Time
	seed  maphash.Seed
	table atomic.Pointer[[refusedSets]refusedSet] // nil until there is something to remember
}

type refusedSet struct {
	sync.RWMutex
	known [refusedWays]known
	// What was sent no later than this is not remembered anew, since it may be older than a
	// give-back that had to make room.
	floor int64
}

// known is what the server has said of a state. It goes by a keyed hash of 63 bits: that
// a key is taken for one of a full table has a probability of 2 in 10^15.
type known struct {
	tag             uint64
	sluice.Snapshot     // its Now is the server's time, or never
	place           int // among the requests that were decided at that time
	// The server has said so between these times, in microseconds by the clock of refused.
	sent, back int64
}

// never is the time of a state that may have been given back to: it is not known.
const never = math.MaxInt64

func newRefused() *refused { return &refused{base: time.Now(), seed: maphash.MakeSeed()} }

// at returns a time by the clock of f.
func (f *refused) at(t time.Time) int64 { return t.Sub(f.base).Microseconds() }

// answer reports whether one of charges is certain to be refused, and if so writes the
// receipts that the server would give. Their time is not before that of the answer that is
// remembered. What others do to a state that does not refuse may be missing, and so may
// those who took while the refusal was under way: the refusal is right without them.
func (f *refused) answer(charges []sluice.Charge, receipts []sluice.Receipt) bool {
	return f.table.Load() != nil && f.answerAt(f.at(time.Now()), charges, receipts)
}

func (f *refused) answerAt(at int64, charges []sluice.Charge, receipts []sluice.Receipt) bool {
	refuses, _ := f.recall(at, charges, receipts)
	return refuses
}

// recall writes the receipts of charges in a request that is refused, if all are known, and
// reports whether one of them is certain to refuse it.
func (f *refused) recall(at int64, charges []sluice.Charge, receipts []sluice.Receipt) (refuses, all bool) {
	var k known
	for i := range charges {
		c := &charges[i]
		if c.Cost < 0 || !f.find(c, &k) || at-k.sent > remember {
			return false, false
		}
		at = max(at, k.back) // it may have been learnt after the clock was read
		// The server's time is between these. Each state has its own: on a cluster so do
		// the nodes.
		from := k.Now + at - k.back
		to := k.Now + at - k.sent + (at-k.sent)/1000 // clocks do not run alike
		r, ok := k.Receipt(c.Plan, to, c.Cost)
		if !ok {
			return false, false
		}
		refuses = refuses || !r.Fits && decides(c)
		receipts[i], _ = k.Receipt(c.Plan, from, c.Cost)
		receipts[i].Origin = sluice.ByDenyCache
	}
	return refuses, true
}

// hasRefused reports whether the state of c, when it was last heard of, would have refused
// it, however long ago that was.
func (f *refused) hasRefused(c *sluice.Charge) bool {
	var k known
	if c.Shadow || f.table.Load() == nil || !f.find(c, &k) {
		return false
	}
	r, ok := k.Receipt(c.Plan, k.Now, c.Cost)
	return ok && !r.Fits
}

// decides reports whether a refusal of c is answered from memory. A leaky bucket is asked
// every time: its places are given back whenever a client hangs up.
func decides(c *sluice.Charge) bool {
	return !c.Shadow && c.Plan.Limit.Algorithm != sluice.LeakyBucket
}

// learn remembers the answer to a request.
func (f *refused) learn(r *request, charges []sluice.Charge, receipts []sluice.Receipt) {
	if givesBack(charges) {
		f.forget(charges)
		return
	}
	if f.table.Load() != nil || r.look || telling(charges, receipts) {
		f.note(known{place: r.place, sent: f.at(r.left), back: f.at(time.Now())}, r.look, charges, receipts, r.oldest)
	}
}

// note remembers all states if they are worth it or were only looked at, which is to tell
// of a request that was refused, and otherwise those that are remembered already. Oldest is
// as in a request.
func (f *refused) note(k known, looked bool, charges []sluice.Charge, receipts []sluice.Receipt, oldest []int64) {
	f.begin()
	all, back := looked || telling(charges, receipts), givesBack(charges)
	for i := range charges {
		k.Snapshot = charges[i].Plan.Snapshot(charges[i].Cost, receipts[i], oldest[i])
		f.put(&charges[i], k, all, back)
	}
}

// telling reports whether a request was refused or gives something back.
func telling(charges []sluice.Charge, receipts []sluice.Receipt) bool {
	return givesBack(charges) || !sluice.Admitted(charges, receipts)
}

// forget makes the states unknown for a second if charges give something back. It is called
// before that is sent and when it is over, since answers from before it may come after it.
func (f *refused) forget(charges []sluice.Charge) {
	if !givesBack(charges) {
		return
	}
	f.begin()
	at := f.at(time.Now())
	for i := range charges {
		f.put(&charges[i], known{Snapshot: sluice.Snapshot{Now: never}, sent: at, back: at}, true, true)
	}
}

// begin makes the table.
func (f *refused) begin() {
	if f.table.Load() == nil {
		f.table.CompareAndSwap(nil, new([refusedSets]refusedSet))
	}
}

func givesBack(charges []sluice.Charge) bool {
	for i := range charges {
		if charges[i].Cost < 0 {
			return true
		}
	}
	return false
}

// find copies what is known of the state of c to k.
func (f *refused) find(c *sluice.Charge, k *known) bool {
	tag, set := f.set(c)
	set.RLock()
	defer set.RUnlock()
	for i := range set.known {
		if set.known[i].tag == tag {
			*k = set.known[i]
			return k.Now != never
		}
	}
	return false
}

// put remembers k unless what is known is newer: answers may arrive in another order than
// they were given. If it is not wanted for itself it only takes the place of what is known.
// An answer that is older than a give-back never comes after it: the answer was sent before
// the give-back came back.
func (f *refused) put(c *sluice.Charge, k known, wanted, givesBack bool) {
	tag, set := f.set(c)
	k.tag = tag
	set.Lock()
	defer set.Unlock()
	oldest := &set.known[0]
	for i := range set.known {
		old := &set.known[i]
		if old.tag == tag {
			if k.back-old.sent > remember || k.Now > old.Now || k.Now == old.Now && k.place >= old.place {
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

// set returns the places of a charge's state, and its tag there, which is not 0.
func (f *refused) set(c *sluice.Charge) (tag uint64, set *refusedSet) {
	tag = maphash.String(f.seed, c.Key) ^ c.Plan.Fingerprint | 1
	return tag, &f.table.Load()[tag>>(64-refusedBits)]
}
