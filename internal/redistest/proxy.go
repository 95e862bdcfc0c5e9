package redistest

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

// Proxy is a TCP proxy in front of a server that spoils its answers. At first it spoils
// nothing.
type Proxy struct {
	Addr string // host:port
	// Opened counts the connections of clients.
	Opened atomic.Int64
	// Trickle lets answers through a byte a second.
	Trickle atomic.Bool
	// Deaf closes new connections at once.
	Deaf atomic.Bool

	target atomic.Pointer[string]
	spoil  atomic.Pointer[func() (time.Duration, bool)]
	mu     sync.Mutex
	conns  map[net.Conn]*atomic.Bool // of clients, and whether they are mute
}

// StartProxy starts a proxy in front of the address of a server. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), conns: map[net.Conn]*atomic.Bool{}}
	p.Target(target)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.Opened.Add(1)
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Heal()
		p.Cut()
		running.Wait()
	})
	return p
}

// Spoil sets what is asked for each piece of an answer: for how long it is held up, and
// whether the connection is reset instead.
func (p *Proxy) Spoil(f func() (delay time.Duration, reset bool)) { p.spoil.Store(&f) }

// Delay holds up answers for d. They do not hold up each other.
func (p *Proxy) Delay(d time.Duration) {
	p.Spoil(func() (time.Duration, bool) { return d, false })
}

// Reset resets the connection instead of letting a piece of an answer through, for that
// part of them: the same ones each time.
func (p *Proxy) Reset(part float64) {
	rng, mu := rand.New(rand.NewPCG(1, 1)), sync.Mutex{}
	p.Spoil(func() (time.Duration, bool) {
		mu.Lock()
		defer mu.Unlock()
		return 0, rng.Float64() < part
	})
}

// Heal lets everything through again.
func (p *Proxy) Heal() {
	p.spoil.Store(nil)
	p.Trickle.Store(false)
	p.Deaf.Store(false)
}

// Target leads new connections to another server.
func (p *Proxy) Target(addr string) { p.target.Store(&addr) }

// Mute lets no answers through on the connections that are there now.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mute := range p.conns {
		mute.Store(true)
	}
}

// Cut resets all connections.
func (p *Proxy) Cut() {
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

func (p *Proxy) track(c net.Conn) (mute *atomic.Bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = new(atomic.Bool)
	return p.conns[c]
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if p.Deaf.Load() {
		return
	}
	server, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	defer server.Close()
	mute := p.track(client)
	defer p.forget(client)
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	p.answers(server, client, mute)
	client.Close()
	up.Wait()
}

// piece is a part of an answer on its way.
type piece struct {
	due   time.Time
	reset bool
	data  []byte
}

func (p *Proxy) answers(server, client net.Conn, mute *atomic.Bool) {
	way := make(chan piece, 1<<10)
	var down sync.WaitGroup
	down.Go(func() {
		for next := range way {
			time.Sleep(time.Until(next.due))
			if next.reset {
				reset(client)
			}
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
		if mute.Load() {
			continue
		}
		next := piece{due: time.Now(), data: slices.Clone(buf[:n])}
		if f := p.spoil.Load(); f != nil {
			var delay time.Duration
			delay, next.reset = (*f)()
			next.due = next.due.Add(delay)
		}
		way <- next
	}
	close(way)
	down.Wait()
}

func (p *Proxy) write(client net.Conn, data []byte) error {
	for len(data) > 0 && p.Trickle.Load() {
		if _, err := client.Write(data[:1]); err != nil {
			return err
		}
		data = data[1:]
		time.Sleep(time.Second)
	}
	_, err := client.Write(data)
	return err
}
