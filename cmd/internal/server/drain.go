package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
)

// drainSettings configure how a gateway drains before it stops.
type drainSettings struct{ listeners.Drain }

func (s *drainSettings) addFlags(f *pflag.FlagSet) {
	s.Timeout = 30 * time.Second
	f.Var((*command.Duration)(&s.Delay), "drain-delay", "how long to keep accepting requests after SIGTERM; meanwhile /readyz fails, so load balancers can notice")
	f.Var((*command.Duration)(&s.Timeout), "drain-timeout", "maximum wait for requests in progress after SIGTERM")
}

// deadline returns a function that returns the time by which the process must have ended. That is the end of a
// drain that starts when ctx ends, but at least a second from now.
func (s *drainSettings) deadline(ctx context.Context) func() time.Time {
	var end atomic.Int64 // in nanoseconds since the epoch
	context.AfterFunc(ctx, func() { end.Store(time.Now().Add(s.Delay + s.Timeout).UnixNano()) })
	return func() time.Time {
		soonest := time.Now().Add(time.Second)
		if by := time.Unix(0, end.Load()); by.After(soonest) {
			return by
		}
		return soonest
	}
}
