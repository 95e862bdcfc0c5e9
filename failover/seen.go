package failover

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// seen remembers the last receipts of keys, so that a local share begins where the
// shared store was. It is a table of fixed size: of two keys that want the same place
// the later one has it.
type seen struct {
	seed  maphash.Seed
	base  time.Time
	locks [64]sync.Mutex
	slots [1 << seenBits]sight
}

const seenBits = 14

// sight is a receipt and when it was seen.
type sight struct {
	tag     uint64
	at      time.Duration // since base
	receipt sluice.Receipt
}

func newSeen() *seen { return &seen{seed: maphash.MakeSeed(), base: time.Now()} }

func (s *seen) put(c *sluice.Charge, r sluice.Receipt) {
	tag, lock, slot := s.slot(c)
	at := time.Since(s.base)
	lock.Lock()
	defer lock.Unlock()
	// Answers of concurrent calls may arrive in another order.
	if slot.tag != tag || slot.receipt.Now <= r.Now {
		*slot = sight{tag, at, r}
	}
}

// left returns the units that fit now by what was last seen of the key: all, where
// nothing is remembered.
func (s *seen) left(c *sluice.Charge) int64 {
	tag, lock, slot := s.slot(c)
	lock.Lock()
	v := *slot
	lock.Unlock()
	if v.tag != tag {
		return c.Plan.Capacity
	}
	return left(c.Plan, v.receipt, v.receipt.Now+(time.Since(s.base)-v.at).Microseconds())
}

func (s *seen) slot(c *sluice.Charge) (tag uint64, lock *sync.Mutex, slot *sight) {
	tag = maphash.String(s.seed, c.Key) ^ c.Plan.Fingerprint | 1
	i := tag >> (64 - seenBits)
	return tag, &s.locks[i%uint64(len(s.locks))], &s.slots[i]
}

// left returns the units of p that fit at now by the receipt's state. A log's units are
// taken to count until the newest of them expires.
func left(p *sluice.Plan, r sluice.Receipt, now int64) int64 {
	switch p.Kernel {
	case sluice.Meter:
		_, r = p.Step(sluice.State{Tick: r.Now / p.Tick, Used: r.Used}, now, 0)
	case sluice.Window:
		_, r = p.Step(sluice.State{Tick: r.Tick, Used: r.Used, Prev: r.Prev}, now, 0)
	case sluice.Units:
		if now/p.Tick >= r.Tick+p.Span {
			return p.Capacity
		}
	}
	return p.Decide(0, r).Remaining
}
