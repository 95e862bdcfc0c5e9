package e2e

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tcpProxy stands before a server and spoils its answers. The zero values of its settings
// spoil nothing.
type tcpProxy struct {
	addr, target string

	delay   atomic.Int64 // ns by which answers are held up
	breaks  atomic.Int64 // of a thousand answers, how many break their connection
	trickle atomic.Bool  // a byte a second
	deaf    atomic.Bool  // no new connections

	mu    sync.Mutex
	conns map[net.Conn]bool // of clients
}

func newTCPProxy(t *testing.T, target string) *tcpProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tcpProxy{addr: l.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.heal()
		p.cut()
		running.Wait()
	})
	return p
}

// heal lets everything through again.
func (p *tcpProxy) heal() {
	p.delay.Store(0)
	p.breaks.Store(0)
	p.trickle.Store(false)
	p.deaf.Store(false)
}

// cut resets all connections.
func (p *tcpProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// reset closes a connection without an orderly end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (p *tcpProxy) serve(client net.Conn) {
	defer client.Close()
	if p.deaf.Load() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
	}()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	p.answers(server, client)
	client.Close()
	up.Wait()
}

// late is a piece of an answer on its way.
type late struct {
	due  time.Time
	data []byte
}

// answers copies what the server says. Pieces that are held up do not hold up each other.
func (p *tcpProxy) answers(server, client net.Conn) {
	way := make(chan late, 1<<10)
	var down sync.WaitGroup
	down.Go(func() {
		for next := range way {
			time.Sleep(time.Until(next.due))
			if p.write(client, next.data) != nil {
				server.Close()
			}
		}
	})
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil {
			break
		}
		way <- late{time.Now().Add(time.Duration(p.delay.Load())), slices.Clone(buf[:n])}
	}
	close(way)
	down.Wait()
}

func (p *tcpProxy) write(client net.Conn, data []byte) error {
	if rand.Int64N(1000) < p.breaks.Load() {
		reset(client)
	}
	for len(data) > 0 && p.trickle.Load() {
		if _, err := client.Write(data[:1]); err != nil {
			return err
		}
		data = data[1:]
		time.Sleep(time.Second)
	}
	_, err := client.Write(data)
	return err
}
