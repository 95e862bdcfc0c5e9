package resp

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/sockets"
)

const (
	smallBuffer = 4 << 10  // the buffer of a new connection
	largeBuffer = 16 << 10 // the buffer of a connection that pipelines; only a large command makes it larger
	maxReplies  = 16 << 10 // the bytes of replies that are collected before a write
	// drainFor is the time for which commands are still answered when the server shuts down, because clients may
	// already have sent them.
	drainFor = 100 * time.Millisecond
)

// conn is the connection of a client. Its memory is bounded, because it does not read further commands while it
// cannot write replies.
type conn struct {
	reply
	server *Server
	socket net.Conn
	id     int64

	in         []byte // in[start:end] was read, but is not a complete command yet
	start, end int
	decoder    decoder
	asked      *batch // the pending batch, or nil

	received bool // data has arrived since wait set the deadline
	ran      bool // a command has run since wait set the deadline
	begun    bool // the first command has run, so the deadline for new clients no longer applies
	half     bool // the deadline is for the rest of a command
	leaving  bool // close the connection after the pending replies

	draining atomic.Int64 // the time until which commands are read, in nanoseconds since 1970; 0 means no end

	name string
	login
}

func newConn(s *Server, socket net.Conn) *conn {
	return &conn{
		server: s, socket: socket, id: s.last.Add(1), reply: reply{proto: 2}, in: make([]byte, smallBuffer),
		login: login{permitted: s.Authorize == nil},
	}
}

// Serve answers commands until the client leaves, sends nothing for too long, or makes an error that closes the
// connection.
func (c *conn) Serve() {
	c.wait(c.server.Patience)
	for c.fill() {
		c.runAll()
		if !c.flush() {
			return
		}
		if c.leaving {
			break
		}
		c.await()
	}
	sockets.Linger(c.socket)
}

// Drain makes Serve return after drainFor.
func (c *conn) Drain() {
	until := time.Now().Add(drainFor)
	c.draining.Store(until.UnixNano())
	_ = c.socket.SetReadDeadline(until)
}

// runAll runs all complete commands.
func (c *conn) runAll() {
	c.verify()
	for !c.leaving {
		n, err := c.decoder.next(c.in[c.start:c.end])
		if err != nil {
			c.refuse("ERR Protocol error: " + err.Error())
			c.leaving = true
			return
		}
		if n == 0 {
			break
		}
		c.start += n
		c.ran = true
		c.run(c.decoder.args)
		if len(c.text) > maxReplies && !c.flush() {
			return
		}
	}
	c.decide()
}

// flush writes the replies. If that fails, for example because the client does not read, flush returns false, and
// the connection will be closed.
func (c *conn) flush() bool {
	if len(c.text) == 0 {
		return true
	}
	_, err := c.socket.Write(c.text)
	c.text = c.text[:0]
	if cap(c.text) > 2*maxReplies {
		c.text = nil
	}
	if err != nil {
		c.leaving = true
	}
	return err == nil
}

// fill waits for more data. It returns false if the connection has to be closed.
func (c *conn) fill() bool {
	c.makeRoom()
	for {
		n, err := c.socket.Read(c.in[c.end:])
		if n > 0 {
			c.end += n
			c.received = true
			return true
		}
		if err != nil && !(errors.Is(err, os.ErrDeadlineExceeded) && c.mayBeIdle()) {
			return false
		}
	}
}

// makeRoom makes room in the buffer for more data.
func (c *conn) makeRoom() {
	rest := c.in[c.start:c.end]
	size := len(c.in)
	switch {
	case len(rest) == size:
		size = min(2*size, maxCommand)
	case c.end == size: // the buffer was full, so there may be more to read
		size = max(size, min(2*size, largeBuffer))
	case len(rest) == 0 && size > largeBuffer:
		size = smallBuffer
	}
	in := c.in
	if size != len(in) {
		in = make([]byte, size)
	}
	c.start, c.end, c.in = 0, copy(in, rest), in
}

// mayBeIdle reports whether a client may stay connected after a deadline has passed. If the connection is between
// commands, the client may stay if data has arrived since the deadline was set. mayBeIdle then sets the next
// deadline.
func (c *conn) mayBeIdle() bool {
	if !c.received || !c.begun || c.half || c.draining.Load() != 0 {
		return false
	}
	c.wait(c.server.Idle)
	return true
}

// await sets the deadline when the state of the connection changes. It does not set a new deadline after each
// command, because that would slow down every command: see mayBeIdle.
func (c *conn) await() {
	half := c.start < c.end
	switch {
	case !c.begun && !(c.ran && c.permitted):
		return
	case half && (!c.half || c.ran):
		c.wait(c.server.Patience)
	case !half && (c.half || !c.begun):
		c.wait(c.server.Idle)
	}
	c.half, c.begun = half, true
}

// wait sets the deadline of the next reads.
func (c *conn) wait(d time.Duration) {
	c.received, c.ran = false, false
	_ = c.socket.SetReadDeadline(time.Now().Add(d)) // on a closed connection, the next read also fails
	if until := c.draining.Load(); until != 0 {
		_ = c.socket.SetReadDeadline(time.Unix(0, until))
	}
}
