package redisstore

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// EvictsByExpiry reports whether a master with full memory evicts the keys that expire first: whether its
// maxmemory-policy is volatile-ttl. [Kept] returns how long keys are kept.
func (s *Store) EvictsByExpiry(ctx context.Context) (bool, error) {
	var failed error
	for _, node := range s.client.Nodes() {
		text, err := node.Do(ctx, node.B().Arbitrary("INFO", "memory").Build()).ToString()
		if err != nil {
			failed = failure(err)
			continue
		}
		if info := parseInfo(text); info["maxmemory_policy"] == "volatile-ttl" && info["maxmemory"] != "0" {
			return true, nil
		}
	}
	return false, failed
}

// Kept returns the longest times for which the server keeps a key of p, without the rounding of expiries (see "Keys"
// in the package's documentation): whenNew is for a key that has used one unit, and whenUsedUp is for a key that has
// used all of its units. On a full server with volatile-ttl, new keys of a plan A evict used-up keys of a plan B if
// whenNew of A is longer than whenUsedUp of B. For a penalty, both are 0.
func Kept(p *sluice.Plan) (whenNew, whenUsedUp time.Duration) {
	switch {
	case p.Kernel == kernel.Meter:
		ticks := func(level int64) time.Duration {
			return time.Duration((level+p.Drain-1)/p.Drain*p.Tick) * time.Microsecond
		}
		return ticks(p.Unit), ticks(p.Level(p.Most))
	case p.Kernel.Permits():
		held := 2 * time.Duration(p.Span) * time.Microsecond
		return held, held
	case p.Kernel == kernel.Window:
		whenNew = p.Limit.Period
		if p.Sliding {
			whenNew *= 2
		}
		return whenNew, whenNew + time.Duration(windowStay(p))*time.Microsecond
	case p.Kernel.Log():
		span := time.Duration(p.Span*p.Tick) * time.Microsecond
		return span, 2 * span
	}
	return 0, 0
}
