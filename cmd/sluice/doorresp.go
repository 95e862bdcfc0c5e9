package main

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/resp"
	"github.com/sluicehq/sluice/policy"
)

// respIdle is how long a client of Redis may be silent: they keep connections in pools.
const respIdle = 10 * time.Minute

// openRESP makes the listener of --resp serve.
func (s *serveSettings) openRESP(l *listener, engine *policy.Engine) error {
	server := resp.New(resp.Config{
		Engine:    engine,
		Authorize: s.doors.authorizer("--resp"),
		Log:       s.doors.log,
		Patience:  time.Duration(s.headerTimeout),
		Idle:      respIdle,
	})
	l.serve, l.drain, l.close = server.Serve, server.Shutdown, server.Close
	return nil
}
