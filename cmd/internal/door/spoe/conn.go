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
	// patience bounds the time in which the first frame arrives, and the time in which the rest of a started frame
	// arrives.
	patience = 10 * time.Second
	// maxBatch bounds the frames of a batch. maxWaiting bounds the requests of a connection that wait for their turn.
	// By default, HAProxy has at most 20 unanswered frames.
	maxBatch   = 32
	maxWaiting = 256
)

// conn is a connection from HAProxy.
type conn struct {
	agent  *Agent
	socket net.Conn
	frames frames
	size   int       // the maximum size of a frame for both sides; 0 before the handshake
	due    time.Time // the deadline for the rest of a started frame
	until  time.Time // the read deadline of socket
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

// greet performs the handshake, which sets the size of frames.
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

// fill waits for more data. The wait is unlimited only between frames.
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
	_ = c.socket.SetReadDeadline(time.Now()) // fails only if the connection is closed
}

func (c *conn) drains() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.draining
}

// answerBatch waits for a frame, and answers it together with all other frames that have arrived.
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

// end sends a DISCONNECT frame with the reason, unless the connection is broken. If the agent is draining, it first
// waits for the requests in queues.
func (c *conn) end(err error) {
	var f *fault
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case late && c.drains():
		c.waiting.Wait()
		f = &fault{codeNormal, "the agent is shutting down"}
	case late && c.size > 0:
		f = &fault{codeTimeout, "a frame did not arrive completely within 10s"}
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
