package fair

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice"
)

// maxCaps is the maximum number of limits that a Caps has at a time.
const maxCaps = 1000

// Caps has caps by the keys of their limits. It is safe for concurrent use.
type Caps struct {
	known  atomic.Pointer[map[string]*Cap]
	adding sync.Mutex
	full   int64 // when Caps last had no room for another cap, in microseconds
}

// lookAgain is the time, in microseconds, after which Caps looks for room again.
const lookAgain = 1e6

// Of returns the cap of a limit, or nil if too many limits are in use.
func (s *Caps) Of(key string, p *sluice.Plan, now int64) *Cap {
	known := s.known.Load()
	if known != nil {
		if c := (*known)[key]; c != nil && c.Same(p.Limit.Count, p.Limit.Period, p.Limit.Burst) {
			return c
		}
	}
	return s.add(key, p, now)
}

func (s *Caps) add(key string, p *sluice.Plan, now int64) *Cap {
	s.adding.Lock()
	defer s.adding.Unlock()
	if d := now - s.full; d >= 0 && d < lookAgain {
		return nil
	}
	next := make(map[string]*Cap)
	if known := s.known.Load(); known != nil {
		if c := (*known)[key]; c != nil && c.Same(p.Limit.Count, p.Limit.Period, p.Limit.Burst) {
			return c
		}
		for k, c := range *known {
			if len(*known) < maxCaps || !c.Idle(now) {
				next[k] = c
			}
		}
	}
	if len(next) >= maxCaps {
		s.full = now
		return nil
	}
	c := New(key, p.Limit.Count, p.Limit.Period, p.Limit.Burst, p.Unit)
	next[strings.Clone(key)] = c
	s.known.Store(&next)
	return c
}

// Demand returns the recent demand of all tenants in the format of [Append], or nil if no tenant has demand.
func (s *Caps) Demand(now int64) []byte {
	known := s.known.Load()
	if known == nil {
		return nil
	}
	var posts []Post
	for _, c := range *known {
		if asked := c.Demand(now); len(asked) > 0 {
			posts = append(posts, Post{Cap: c.ID, Tenants: asked})
		}
	}
	if len(posts) == 0 {
		return nil
	}
	Trim(posts)
	return Append(nil, posts)
}

// Receive records the demands of other processes, which are in the format of [Append]. It skips texts of other
// versions.
func (s *Caps) Receive(now int64, texts [][]byte) {
	known := s.known.Load()
	if known == nil {
		return
	}
	all := make(map[uint64][]TenantDemand)
	for _, text := range texts {
		_ = Read(text, func(id uint64, a TenantDemand) { all[id] = append(all[id], a) })
	}
	for _, c := range *known {
		c.Receive(all[c.ID], now)
	}
}
