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
	smallBuffer = 4 << 10  // what an idle connection keeps
	largeBuffer = 16 << 10 // what one that pipelines reads at once; a command may need more
	maxReplies  = 16 << 10 // that are kept before they are written
	// drainFor is how long a client may go on to send when the server shuts down: what is under way
	// to us is answered.
	drainFor = 100 * time.Millisecond
)

// conn is the connection of a client. All that it keeps is bounded: what it has not read waits
// with the client, since nothing is read while replies cannot be written.
type conn struct {
	reply
	server *Server
	socket net.Conn
	id     int64

	in         []byte // of which in[start:end] was read, and is no whole command
	start, end int
	decoder    decoder
	asked      *batch // or nil

	heard   bool // something since the deadline was set
	ran     bool // a command since then
	begun   bool // its deadline is not that of a new client any more
	half    bool // its deadline is that of the rest of a command
	leaving bool // as soon as it has been told why

	draining atomic.Int64 // until when the client is heard, in nanoseconds since 1970; 0: as long as it likes

	name string
	login
}

func newConn(s *Server, socket net.Conn) *conn {
	return &conn{
		server: s, socket: socket, id: s.last.Add(1), reply: reply{proto: 2}, in: make([]byte, smallBuffer),
		login: login{permitted: s.Authorize == nil},
	}
}

// Serve answers until the client leaves, is silent for too long, or has to leave.
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

// Drain lets the client leave soon.
func (c *conn) Drain() {
	until := time.Now().Add(drainFor)
	c.draining.Store(until.UnixNano())
	_ = c.socket.SetReadDeadline(until)
}

// runAll runs the commands that have come whole.
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

// flush writes the replies. It returns false, and makes the client leave, if it does not read them.
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

// fill reads more. It returns false where nothing more is to be expected.
func (c *conn) fill() bool {
	c.makeRoom()
	for {
		n, err := c.socket.Read(c.in[c.end:])
		if n > 0 {
			c.end += n
			c.heard = true
			return true
		}
		if err != nil && !(errors.Is(err, os.ErrDeadlineExceeded) && c.mayBeIdle()) {
			return false
		}
	}
}

// makeRoom makes room behind what was read.
func (c *conn) makeRoom() {
	rest := c.in[c.start:c.end]
	size := len(c.in)
	switch {
	case len(rest) == size:
		size = min(2*size, maxCommand)
	case c.end == size: // there may be more that was not read for want of room
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

// mayBeIdle reports whether a client may go on that has let a deadline pass.
func (c *conn) mayBeIdle() bool {
	if !c.heard || !c.begun || c.half || c.draining.Load() != 0 {
		return false
	}
	c.wait(c.server.Idle)
	return true
}

// await sets a deadline where another one begins. That of an idle client is not moved with each
// command, since that would cost each: see mayBeIdle.
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

// wait sets the deadline of what is read next.
func (c *conn) wait(d time.Duration) {
	c.heard, c.ran = false, false
	_ = c.socket.SetReadDeadline(time.Now().Add(d)) // reading a closed connection fails
	if until := c.draining.Load(); until != 0 {
		_ = c.socket.SetReadDeadline(time.Unix(0, until))
	}
}
