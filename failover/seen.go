package failover

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// seen remembers the last states of keys, so that a local share begins where the
// shared store was. It is a table of fixed size, in which a key has a choice of a few
// places: of those that want them the ones seen last have them.
type seen struct {
	seed  maphash.Seed
	base  time.Time
	locks [64]sync.Mutex
	sets  [1 << setBits][4]sight
}

const (
	setBits = 12
	latest  = 1_000_000 // µs by which answers may be out of order
)

// sight is what was seen of a key, and when.
type sight struct {
	tag      uint64
	at       time.Duration // since base
	snapshot sluice.Snapshot
}

func newSeen() *seen { return &seen{seed: maphash.MakeSeed(), base: time.Now()} }

// now is the time by which sights are dated.
func (s *seen) now() time.Duration { return time.Since(s.base) }

func (s *seen) put(c *sluice.Charge, r sluice.Receipt) {
	tag, lock, set := s.set(c)
	v := sight{tag, s.now(), c.Plan.Snapshot(c.Cost, r, 0)}
	lock.Lock()
	defer lock.Unlock()
	slot := &set[0]
	for i := range set {
		switch old := &set[i]; {
		case old.tag == tag:
			// Answers of concurrent calls may arrive in another order. One that is much
			// older is of a clock that has stepped back.
			if late := old.snapshot.Now - r.Now; late <= 0 || late > latest {
				*old = v
			}
			return
		case old.at < slot.at:
			slot = old
		}
	}
	*slot = v
}

// left returns the units that fit now by what was last seen of the key: all, where
// nothing is remembered.
func (s *seen) left(c *sluice.Charge) int64 {
	if v, ok := s.get(c); ok {
		return v.snapshot.Remaining(c.Plan, v.snapshot.Now+(s.now()-v.at).Microseconds())
	}
	return c.Plan.Capacity
}

// after reports whether the key was seen after that time.
func (s *seen) after(c *sluice.Charge, at time.Duration) bool {
	v, ok := s.get(c)
	return ok && v.at > at
}

func (s *seen) get(c *sluice.Charge) (v sight, ok bool) {
	tag, lock, set := s.set(c)
	lock.Lock()
	defer lock.Unlock()
	for _, v := range set {
		if v.tag == tag {
			return v, true
		}
	}
	return sight{}, false
}

// set returns the places of a key, its tag there, which is not 0, and their lock.
func (s *seen) set(c *sluice.Charge) (tag uint64, lock *sync.Mutex, set *[4]sight) {
	tag = maphash.String(s.seed, c.Key) ^ c.Plan.Fingerprint | 1
	i := tag >> (64 - setBits)
	return tag, &s.locks[i%uint64(len(s.locks))], &s.sets[i]
}
