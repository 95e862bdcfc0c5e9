package memory

import "github.com/sluicehq/sluice"

// takePair is takeAllFast for two charges, the most common number above one. It needs no lists, and so takes two
// thirds of the time. It also reports false if another call claims a cell first.
func (s *Store) takePair(now int64, a, b *sluice.Charge, ra, rb *sluice.Receipt) bool {
	if a.Plan == nil || b.Plan == nil || a.Owe || b.Owe {
		return false
	}
	la, lb := s.plans.find(a.Plan), s.plans.find(b.Plan)
	if la == nil || lb == nil || !la.fits || !lb.fits {
		return false
	}
	ha, hb := s.hash(a), s.hash(b)
	if ha == hb {
		return false
	}
	ta, tb := la.tag(ha), lb.tag(hb)
	if s.tables.size(ha>>stripeShift).buckets() >= manyBuckets {
		prefetch(s.tables.buckets(ha>>stripeShift, ta))
		prefetch(s.tables.buckets(hb>>stripeShift, tb))
	}
	ca, wa := s.find(ha, ta)
	cb, wb := s.find(hb, tb)
	if ca == nil || cb == nil {
		return false
	}
	claimed, is := ca, wa
	if ha > hb {
		claimed, is = cb, wb
	}
	if !claimed.word.CompareAndSwap(is, busy) {
		return false
	}
	now = s.at(now)
	na, ok := la.step(wa, ta, now, a.CostAt(now), ra)
	nb, also := lb.step(wb, tb, now, b.CostAt(now), rb)
	if ok = ok && also; !ok { // the receipts are not valid yet
		claimed.word.Store(is)
		return false
	}
	if fa, fb := ra.Fits || a.Shadow, rb.Fits || b.Shadow; !fa || !fb {
		if ra.Fits {
			na, ok = la.step(wa, ta, now, 0, ra)
		}
		if rb.Fits {
			nb, also = lb.step(wb, tb, now, 0, rb)
		}
	}
	ok = ok && also
	if ha < hb {
		if ok = ok && cb.commit(wb, nb); ok {
			is = na
		}
	} else if ok = ok && ca.commit(wa, na); ok {
		is = nb
	}
	claimed.word.Store(is)
	return ok
}
