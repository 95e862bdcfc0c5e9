package spoe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/sockets"
)

const (
	// patience is how long a connection may take for its first frame, and for the rest of a frame that has started.
	patience = 10 * time.Second
	// maxBatch is the most frames that are decided at once, and maxWaiting the most requests of a
	// connection that wait for their turn. HAProxy leaves no more than 20 frames unanswered.
	maxBatch   = 32
	maxWaiting = 256
)

// conn is a connection from HAProxy.
type conn struct {
	agent  *Agent
	socket net.Conn
	frames frames
	size   int       // the largest frame that both sides accept; 0 before the handshake
	due    time.Time // the deadline for the rest of a frame that has started
	until  time.Time // the deadline of reads
	out    []byte

	ctx     context.Context
	cancel  context.CancelFunc
	waiting sync.WaitGroup // requests that wait for their turn
	queued  chan struct{}  // has an entry for each waiting request

	reading  sync.Mutex
	draining bool
	writing  sync.Mutex
}

func newConn(a *Agent, socket net.Conn) *conn {
	c := &conn{agent: a, socket: socket, queued: make(chan struct{}, maxWaiting)}
	c.frames = frames{from: socket, most: maxFrame}
	c.ctx, c.cancel = context.WithCancel(a.Context())
	return c
}

// Serve answers until the connection ends, and closes it.
func (c *conn) Serve() {
	defer func() {
		c.cancel()
		c.socket.Close()
		c.waiting.Wait()
	}()
	err := c.greet()
	for err == nil {
		err = c.answerBatch()
	}
	c.end(err)
}

// greet agrees on the size of frames.
func (c *conn) greet() error {
	frame, err := c.await()
	if err != nil {
		return err
	}
	h, err := decodeHello(frame)
	if err != nil {
		return err
	}
	c.size, c.frames.most = h.size, h.size
	if err := c.write(appendHello(nil, h.size)); err != nil {
		return err
	}
	if h.healthcheck {
		return io.EOF
	}
	return nil
}

// await returns the next frame.
func (c *conn) await() ([]byte, error) {
	for {
		frame, err := c.frames.next()
		if err != nil {
			return nil, err
		}
		if frame != nil {
			c.due = time.Time{}
			return frame, nil
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// fill waits for more data. Only between frames is the wait unlimited.
func (c *conn) fill() error {
	due := c.due
	switch idle := c.size > 0 && c.frames.empty(); {
	case idle:
		due = time.Time{}
	case due.IsZero():
		due = time.Now().Add(patience)
	}
	c.due = due
	if err := c.readUntil(due); err != nil {
		return err
	}
	return c.frames.fill()
}

func (c *conn) readUntil(due time.Time) error {
	if due.Equal(c.until) {
		return nil
	}
	c.until = due
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.draining {
		return os.ErrDeadlineExceeded
	}
	return c.socket.SetReadDeadline(due)
}

// Drain makes Serve return when everything that has arrived is answered.
func (c *conn) Drain() {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.draining = true
	_ = c.socket.SetReadDeadline(time.Now()) // fails only if the connection is closed already
}

func (c *conn) drains() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.draining
}

// answerBatch waits for a frame, and answers it with all frames that have arrived together.
func (c *conn) answerBatch() error {
	frame, err := c.await()
	if err != nil {
		return err
	}
	b := c.agent.batches.Get().(*batch)
	defer func() {
		b.forget()
		c.agent.batches.Put(b)
	}()
	for frame != nil && err == nil {
		if err = b.add(frame); err == nil && len(b.questions) < maxBatch {
			frame, err = c.frames.next()
		} else {
			frame = nil
		}
	}
	if len(b.questions) > 0 {
		c.out = c.out[:0]
		c.answer(b)
		if wrote := c.write(c.out); wrote != nil {
			return wrote
		}
		if cap(c.out) > keptBuffer {
			c.out = nil
		}
	}
	return err
}

func (c *conn) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.socket.Write(p)
	return err
}

// end waits for pending turns, and then sends a DISCONNECT frame if HAProxy can read it.
func (c *conn) end(err error) {
	var f *fault
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case late && c.drains():
		c.waiting.Wait()
		f = &fault{codeNormal, "the agent leaves"}
	case late && c.size > 0:
		f = &fault{codeTimeout, "a frame has not come whole within 10s"}
	case !errors.As(err, &f):
		return // the connection is broken, or has not started
	}
	if f.code != codeNormal {
		c.agent.complain("a connection to the SPOE agent ends: "+f.text, "address", c.socket.RemoteAddr().String())
	}
	if c.write(appendDisconnect(nil, *f)) == nil {
		sockets.Linger(c.socket)
	}
}
