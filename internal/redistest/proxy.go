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

// Proxy is a TCP proxy in front of a server that can delay or lose the server's answers. At first it passes all
// answers.
type Proxy struct {
	Addr string // host:port
	// Opened counts the connections of clients.
	Opened atomic.Int64
	// Trickle makes the proxy pass answers at a rate of one byte a second.
	Trickle atomic.Bool
	// Deaf makes the proxy close new connections at once.
	Deaf atomic.Bool

	target atomic.Pointer[string]
	spoil  atomic.Pointer[func() (time.Duration, bool)]
	mu     sync.Mutex
	conns  map[net.Conn]*atomic.Bool // the connections of clients, and whether answers on them are dropped
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

// Spoil sets a function that is called for each piece of an answer. It returns for how long the piece is held up,
// and whether the connection is reset instead.
func (p *Proxy) Spoil(f func() (delay time.Duration, reset bool)) { p.spoil.Store(&f) }

// Delay holds up each answer for d. Answers do not hold up each other.
func (p *Proxy) Delay(d time.Duration) {
	p.Spoil(func() (time.Duration, bool) { return d, false })
}

// Reset makes the proxy reset the connection instead of passing a piece of an answer, for a fraction of the pieces.
// The choice of pieces is random, but the same in each run.
func (p *Proxy) Reset(part float64) {
	rng, mu := rand.New(rand.NewPCG(1, 1)), sync.Mutex{}
	p.Spoil(func() (time.Duration, bool) {
		mu.Lock()
		defer mu.Unlock()
		return 0, rng.Float64() < part
	})
}

// Heal makes the proxy pass all answers again.
func (p *Proxy) Heal() {
	p.spoil.Store(nil)
	p.Trickle.Store(false)
	p.Deaf.Store(false)
}

// Target sets the server to which new connections lead.
func (p *Proxy) Target(addr string) { p.target.Store(&addr) }

// Mute drops all answers on the present connections.
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

// reset closes a connection with a TCP reset.
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

// piece is a part of an answer that the proxy holds up.
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
