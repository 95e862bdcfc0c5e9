package policy

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/fair"
)

// maxCaps is how many limits that are shared an engine knows at a time.
const maxCaps = 1000

// divided is a store that divides limits by the number of instances while these cannot count together.
type divided interface{ Instances() int64 }

// shares are the caps of an engine by the keys of their limits.
type shares struct {
	divided divided // the store, if it is one

	// When the engine was made, in whole microseconds. From then on the monotonic clock counts, which is
	// half of reading the time, and ends no epoch when the wall's is set.
	made time.Time
	wall int64 // the same in microseconds since the Unix epoch

	known  atomic.Pointer[map[string]*fair.Cap]
	adding sync.Mutex
	full   int64 // when there was no room for another one, in microseconds
}

func (s *shares) begin(now time.Time) {
	s.wall = now.UnixMicro()
	s.made = now.Add(-time.Duration(now.Nanosecond() % 1000))
}

// time returns a time, or now if it is zero, in microseconds since the Unix epoch.
func (s *shares) time(t time.Time) int64 {
	since := time.Duration(0)
	if t.IsZero() {
		since = time.Since(s.made)
	} else {
		since = t.Sub(s.made)
	}
	return s.wall + since.Microseconds()
}

// lookAgain is after how many microseconds there may be room again.
const lookAgain = 1e6

// of returns the cap of a limit, or nil if there are too many.
func (s *shares) of(key string, p *sluice.Plan, now int64) *fair.Cap {
	known := s.known.Load()
	if known != nil {
		if c := (*known)[key]; c != nil && c.Same(p.Limit.Count, p.Limit.Period, p.Limit.Burst) {
			return c
		}
	}
	return s.add(key, p, now)
}

func (s *shares) add(key string, p *sluice.Plan, now int64) *fair.Cap {
	s.adding.Lock()
	defer s.adding.Unlock()
	if d := now - s.full; d >= 0 && d < lookAgain {
		return nil
	}
	next := make(map[string]*fair.Cap)
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
	c := fair.New(key, p.Limit.Count, p.Limit.Period, p.Limit.Burst, p.Unit)
	next[strings.Clone(key)] = c
	s.known.Store(&next)
	return c
}

// Demand returns what this engine's tenants of limits that are shared have asked for lately, for
// [Engine.HearDemand] of the other engines that count in the same store; nil if there was nothing. It
// is to be told to them some four times a second. It has at most 1000 tenants by hashes of their names,
// those who ask for the most, and the sum of the others: some 12 KiB.
func (e *Engine) Demand(now time.Time) []byte {
	known := e.shares.known.Load()
	if known == nil {
		return nil
	}
	var posts []fair.Post
	for _, c := range *known {
		if asked := c.Asked(e.shares.time(now)); len(asked) > 0 {
			posts = append(posts, fair.Post{Cap: c.ID, Asked: asked})
		}
	}
	if len(posts) == 0 {
		return nil
	}
	fair.Trim(posts)
	return fair.Append(nil, posts)
}

// HearDemand tells the engine all that the others have last said by [Engine.Demand]. It holds for a
// second: tenants of whom nothing is heard any more are divided by what they ask this engine for. What
// cannot be read, since it is of another version, is passed over.
func (e *Engine) HearDemand(now time.Time, said [][]byte) {
	known := e.shares.known.Load()
	if known == nil {
		return
	}
	all := make(map[uint64][]fair.Asked)
	for _, post := range said {
		_ = fair.Read(post, func(id uint64, a fair.Asked) { all[id] = append(all[id], a) })
	}
	for _, c := range *known {
		c.Hear(all[c.ID], e.shares.time(now))
	}
}
