package resp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/sockets"
)

// Config configures a [Server].
type Config struct {
	door.Config
	// Patience bounds the time in which a client sends its first command, a required AUTH, and the rest of a
	// command that it has started. The listener bounds writes.
	Patience time.Duration
	// Idle is the time without data after which an idle client is disconnected. The server may wait up to twice as
	// long.
	Idle time.Duration
}

// Server answers Redis clients, with one goroutine for each connection.
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
