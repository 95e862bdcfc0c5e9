package resp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/sockets"
)

// Config has the engine and the time limits of a [Server].
type Config struct {
	door.Config
	// Patience is how long a client may take for its first command, for a required AUTH, and for the rest of a
	// command that has started. The listener bounds writes.
	Patience time.Duration
	// Idle is how long a client may be silent after that. The server may wait up to twice as long.
	Idle time.Duration
}

// Server answers clients of Redis: one goroutine for each connection.
type Server struct {
	*sockets.Server
	Config
	limits  door.Cache[rate, *limit]
	batches sync.Pool    // of *batch
	last    atomic.Int64 // the number of the newest connection
}

// New returns a server.
func New(c Config) *Server {
	s := &Server{Config: c}
	s.Server = sockets.New(c.Logger, func(socket net.Conn) sockets.Conn { return newConn(s, socket) })
	s.batches.New = func() any { return new(batch) }
	return s
}
