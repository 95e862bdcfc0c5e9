package telemetry

import "sync/atomic"

// budget bounds the memory of all summaries together.
type budget struct {
	most    int64
	used    atomic.Int64
	refused atomic.Bool // since somebody last looked
}

// account is what one of its users has of a budget. Nil is one without a bound. It is guarded as
// its user is.
type account struct {
	budget *budget
	bytes  int64
}

// take reports whether there are n bytes more, and takes them.
func (a *account) take(n int) bool {
	if a == nil {
		return true
	}
	if b := a.budget; b.used.Add(int64(n)) > b.most && n > 0 {
		b.used.Add(int64(-n))
		b.refused.Store(true)
		return false
	}
	a.bytes += int64(n)
	return true
}

// give gives back n bytes.
func (a *account) give(n int) { a.take(-n) }

// share takes memory from the rules that come last, if there is too little, and gives it back once
// there is enough. Three quarters of the budget are shared out, so that there is room to grow until
// the next time; each rule may have an eighth of what those before it leave.
func (s *subjects) share(rules []*ruled, at int64) {
	if !s.budget.refused.Swap(false) && !s.squeezed && s.budget.used.Load() <= s.budget.most*3/4 {
		return
	}
	s.squeezed = false
	left := s.budget.most*3/4 - int64(len(rules))*ruledBytes
	for _, r := range rules {
		r.mu.Lock()
		left -= r.fit(max(left/8, 0), at)
		s.squeezed = s.squeezed || r.kept < mostEntries
		r.mu.Unlock()
	}
}

// leastShare is what a rule needs to tell of anybody at all.
const leastShare = 8 << 10

// fit has a rule take no more than most bytes, and returns how many it takes. It keeps twice as many
// subjects from now on where there is plenty.
func (r *ruled) fit(most, at int64) int64 {
	for r.bytes() > most || r.kept > 0 && most < leastShare {
		k := int(int64(r.kept) * most / max(r.bytes(), 1))
		if k = min(k, r.kept*3/4); k < leastRoom || most < leastShare {
			k = 0
		}
		r.kept = k
		for i := range r.histories {
			r.histories[i].shrink(k, at)
		}
		if k == 0 {
			break
		}
	}
	if r.kept < mostEntries && most >= leastShare && 4*r.bytes() <= most {
		r.kept = min(max(2*r.kept, leastRoom), mostEntries)
	}
	return r.bytes()
}

func (r *ruled) bytes() (n int64) {
	for i := range r.histories {
		n += r.histories[i].bytes
	}
	return n
}
