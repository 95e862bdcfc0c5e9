package telemetry

import "sync/atomic"

// budget bounds the memory of all summaries together.
type budget struct {
	most int64
	used atomic.Int64
}

// take reports whether n more bytes are left, and takes them.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.most && n > 0 {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(int64(-n)) }

// account is what one user of a budget has taken. Nil has no bound. The lock of the user guards it.
type account struct {
	budget *budget
	bytes  int64
}

// take reports whether n more bytes are left, and takes them.
func (a *account) take(n int) bool {
	if a == nil {
		return true
	}
	if !a.budget.take(n) {
		return false
	}
	a.bytes += int64(n)
	return true
}

func (a *account) give(n int) { a.take(-n) }

// share takes memory from the rules that come last, once three quarters of the budget are used, so that
// there is room to grow until the next time. Each rule may have an eighth of what those before it leave of
// the three quarters.
func (s *subjects) share(rules []*ruled, at int64) {
	left := s.budget.most * 3 / 4
	if s.budget.used.Load() <= left {
		return
	}
	left -= int64(len(rules) * ruledBytes)
	for _, r := range rules {
		r.mu.Lock()
		r.fit(max(left/8, 0), at)
		left -= r.bytes()
		r.mu.Unlock()
	}
}

const (
	leastShare = 8 << 10 // bytes that a rule needs to name any subject
	leastSlot  = 64
)

// fit makes a rule take no more than most bytes.
func (r *ruled) fit(most, at int64) {
	if r.bytes() <= most {
		return
	}
	slots := int64(0)
	for i := range r.histories {
		r.histories[i].close()
		for _, past := range r.histories[i].past {
			slots += int64(len(past))
		}
	}
	room := 0
	if most >= leastShare {
		room = max(int(most/max(slots, 1))-slotBytes, leastSlot)
	}
	for i := range r.histories {
		r.histories[i].shrink(room, at)
	}
}

// bytes returns how much memory the histories of a rule take.
func (r *ruled) bytes() (n int64) {
	for i := range r.histories {
		n += r.histories[i].bytes
	}
	return n
}
