// Package seldom bounds what is logged because of clients, which can cause it all the time. The doors and package
// httplimit import it. It imports only the standard library.
package seldom

import (
	"sync/atomic"
	"time"
)

// Gate opens at most once in a time. Its zero value opens at once, and is safe for concurrent use.
type Gate struct {
	last atomic.Int64 // when it opened, in nanoseconds since 1970
}

// Opens reports whether the gate opens now, because it has not in the last such time.
func (g *Gate) Opens(every time.Duration) bool {
	now, last := time.Now().UnixNano(), g.last.Load()
	return now-last >= int64(every) && g.last.CompareAndSwap(last, now)
}
