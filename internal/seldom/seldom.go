// Package seldom limits how often a log line is written, for lines that clients can cause at any time. The
// integrations and packages httplimit and failover import it. It imports only the standard library.
package seldom

import (
	"sync/atomic"
	"time"
)

// Gate opens at most once in a given time. The zero value opens at the first call. A Gate is safe for concurrent
// use.
type Gate struct {
	last atomic.Int64 // the time of the last opening, in nanoseconds since 1970
}

// Opens reports whether the gate opens now. It opens if it has not opened within the given time.
func (g *Gate) Opens(every time.Duration) bool {
	now, last := time.Now().UnixNano(), g.last.Load()
	return now-last >= int64(every) && g.last.CompareAndSwap(last, now)
}
