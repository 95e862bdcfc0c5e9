package kernel

import "sync"

// maxSiblings is the largest number of fingerprints that [Siblings] remembers.
const maxSiblings = 1 << 16

// Siblings remembers, for each fingerprint, the largest Most of the plans that a store has been charged with: see
// [Plan.Raised]. The zero value is ready for use. Siblings is safe for concurrent use, and remembers the first
// 65,536 fingerprints.
type Siblings struct {
	mutex sync.RWMutex
	most  map[uint64]int64
}

// Most remembers p, and returns the largest Most of the plans that share states with p, or p.Most if p is Fixed.
func (s *Siblings) Most(p *Plan) int64 {
	if p.Kernel != Meter {
		return p.Most
	}
	most := s.remember(p)
	if p.Fixed {
		return p.Most
	}
	return most
}

func (s *Siblings) remember(p *Plan) int64 {
	s.mutex.RLock()
	most, known := s.most[p.Fingerprint]
	s.mutex.RUnlock()
	if known && most >= p.Most {
		return most
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.most == nil {
		s.most = map[uint64]int64{}
	}
	most, known = s.most[p.Fingerprint]
	most = max(most, p.Most)
	if known || len(s.most) < maxSiblings {
		s.most[p.Fingerprint] = most
	}
	return most
}
