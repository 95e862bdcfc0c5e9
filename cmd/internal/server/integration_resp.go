package server

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/resp"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
)

// respIdleTimeout is the time without data after which a Redis client is disconnected. It is long, because clients
// keep idle connections in pools.
const respIdleTimeout = 10 * time.Minute

// openRESP serves the protocol of Redis.
func (s *server) openRESP(l *listeners.Listener, authorize authorizer) {
	l.Serve(resp.New(resp.Config{
		Config:   s.doorConfig(authorize),
		Patience: time.Duration(s.settings.connections.headerTimeout),
		Idle:     respIdleTimeout,
	}))
}
