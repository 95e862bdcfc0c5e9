package failover_test

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is a TCP proxy in front of a server, that does to the answers what it is told.
type proxy struct {
	addr, target string
	// answer is called for each piece of an answer, and returns how long it is held up
	// and whether the connection breaks instead.
	answer atomic.Pointer[func() (time.Duration, bool)]
	// trickle sends a byte a second.
	trickle atomic.Bool
	opened  atomic.Int64 // connections

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.opened.Add(1)
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		running.Wait()
	})
	return p
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func (p *proxy) track(c net.Conn, in bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in {
		p.conns[c] = true
	} else {
		delete(p.conns, c)
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.track(client, true)
	defer p.track(client, false)
	var up sync.WaitGroup
	up.Go(func() {
		defer server.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	p.answers(server, client)
	client.Close()
	up.Wait()
}

// piece is a part of an answer on its way.
type piece struct {
	due    time.Time
	data   []byte
	broken bool
}

// answers copies answers. Those that are held up do not hold up each other.
func (p *proxy) answers(server, client net.Conn) {
	way := make(chan piece, 1<<10)
	var down sync.WaitGroup
	down.Go(func() {
		defer server.Close()
		for next := range way {
			time.Sleep(time.Until(next.due))
			if next.broken {
				reset(client)
			}
			if p.write(client, next.data) != nil {
				break
			}
		}
		for range way {
		}
	})
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil {
			break
		}
		next := piece{due: time.Now(), data: slices.Clone(buf[:n])}
		if f := p.answer.Load(); f != nil {
			var delay time.Duration
			delay, next.broken = (*f)()
			next.due = next.due.Add(delay)
		}
		way <- next
	}
	close(way)
	down.Wait()
}

// write sends data, or a byte of it each second.
func (p *proxy) write(client net.Conn, data []byte) error {
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

// reset closes a connection with a reset instead of an orderly end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// do sets what happens to answers; nil lets them through.
func (p *proxy) do(f func() (time.Duration, bool)) {
	if f == nil {
		p.answer.Store(nil)
		return
	}
	p.answer.Store(&f)
}

// latency holds up answers for about d.
func latency(d time.Duration) func() (time.Duration, bool) {
	return func() (time.Duration, bool) { return jitter(d, 0.05), false }
}

// breaking breaks a part of the answers' connections.
func breaking(part float64) func() (time.Duration, bool) {
	return func() (time.Duration, bool) { return 0, rand.Float64() < part }
}
