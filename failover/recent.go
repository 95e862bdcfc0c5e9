package failover

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// recent remembers the latest states of keys in the shared store, so that a local allowance can start at the same
// level. It is a 4-way set-associative cache: a new key replaces the least recently seen key of its set.
type recent struct {
	seed  maphash.Seed
	base  time.Time
	locks [64]sync.Mutex
	sets  [1 << setBits][4]observation
}

const (
	setBits     = 12
	maxDisorder = 1_000_000 // in µs: the longest time by which answers may arrive out of order
)

// observation is the state of a key when it was last seen.
type observation struct {
	tag      uint64
	at       time.Duration // since base
	snapshot kernel.Snapshot
}

func newRecent() *recent { return &recent{seed: maphash.MakeSeed(), base: time.Now()} }

// now returns the present time on the clock of observations.
func (s *recent) now() time.Duration { return time.Since(s.base) }

func (s *recent) put(c *sluice.Charge, r sluice.Receipt) {
	tag, lock, set := s.set(c)
	v := observation{tag, s.now(), c.Plan.Snapshot(c.Cost, r.Receipt, 0)}
	lock.Lock()
	defer lock.Unlock()
	oldest := &set[0]
	for i := range set {
		switch old := &set[i]; {
		case old.tag == tag:
			// Answers of concurrent calls can arrive out of order. A much older answer means that the clock has
			// stepped back.
			if late := old.snapshot.Now - r.Now; late <= 0 || late > maxDisorder {
				*old = v
			}
			return
		case old.at < oldest.at:
			oldest = old
		}
	}
	*oldest = v
}

// remaining returns the number of units that fit now according to the last observation of the key, or all units if
// the key is unknown.
func (s *recent) remaining(c *sluice.Charge) int64 {
	if v, ok := s.get(c); ok {
		return v.snapshot.Remaining(&c.Plan.Plan, v.snapshot.Now+(s.now()-v.at).Microseconds())
	}
	return c.Plan.Capacity
}

// owed returns the debt according to the last observation of the key.
func (s *recent) owed(c *sluice.Charge) int64 {
	v, ok := s.get(c)
	if !ok {
		return 0
	}
	now := v.snapshot.Now + (s.now() - v.at).Microseconds()
	if v.snapshot.Remaining(&c.Plan.Plan, now) > 0 {
		return 0
	}
	r, _ := v.snapshot.Receipt(&c.Plan.Plan, now, 0)
	return c.Plan.Owed(&r)
}

// after reports whether the key was seen after the given time.
func (s *recent) after(c *sluice.Charge, at time.Duration) bool {
	v, ok := s.get(c)
	return ok && v.at > at
}

func (s *recent) get(c *sluice.Charge) (v observation, ok bool) {
	tag, lock, set := s.set(c)
	lock.Lock()
	defer lock.Unlock()
	for _, v := range set {
		if v.tag == tag {
			return v, true
		}
	}
	return observation{}, false
}

// set returns the set of a key, the lock of the set, and the tag of the key in the set. The tag is never 0.
func (s *recent) set(c *sluice.Charge) (tag uint64, lock *sync.Mutex, set *[4]observation) {
	tag = maphash.String(s.seed, c.Key) ^ c.Plan.Fingerprint | 1
	i := tag >> (64 - setBits)
	return tag, &s.locks[i%uint64(len(s.locks))], &s.sets[i]
}
