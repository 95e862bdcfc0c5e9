package testkit

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener in memory, and the dialer of its connections. The connections are made by [net.Pipe], so
// servers can run on a Pipes in the virtual time of [testing/synctest].
type Pipes struct {
	// Peer is the address of clients. Nil means 192.0.2.1:4711.
	Peer net.Addr

	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipes returns a listener. Call it in the synctest bubble that uses it.
func NewPipes() *Pipes {
	return &Pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the listener. It ignores the network and the address.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- pipe{theirs, p.peer()}:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Pipes) peer() net.Addr {
	if p.Peer == nil {
		return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711}
	}
	return p.Peer
}

// Accept returns the next connection.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Connections stay open.
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr returns an address on the loopback interface.
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// pipe is a connection from an address.
type pipe struct {
	net.Conn
	peer net.Addr
}

func (c pipe) RemoteAddr() net.Addr { return c.peer }
