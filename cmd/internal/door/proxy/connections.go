package proxy

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/seldom"
)

// Connections bounds the number of open connections, because some clients would keep too many open. Connections
// beyond a bound are closed immediately.
type Connections struct {
	// Most bounds all connections. PerAddress bounds the connections of one address or IPv6 /64. Zero means no
	// bound.
	Most, PerAddress int
	// Trusted returns the proxies to which PerAddress does not apply, because they forward requests of many
	// clients. It may be nil.
	Trusted func() []netip.Prefix
	Log     *slog.Logger

	mu   sync.Mutex
	open int
	by   map[netip.Addr]int

	refusedAll, refusedAddress atomic.Uint64
	warnings                   seldom.Gate
}

// Open returns the number of open connections.
func (c *Connections) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Refused returns the numbers of connections that were closed because of Most, and because of PerAddress.
func (c *Connections) Refused() (all, address uint64) {
	return c.refusedAll.Load(), c.refusedAddress.Load()
}

// Listener returns a listener on l with these bounds. A write on one of its connections fails if the client does
// not read for the time stall. A deadline for the whole response, as in http.Server, would cut off long streams.
func (c *Connections) Listener(l net.Listener, stall time.Duration) net.Listener {
	return &listener{l, c, stall}
}

type listener struct {
	net.Listener
	connections *Connections
	stall       time.Duration
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := address(c.RemoteAddr())
		if l.connections.enter(addr) {
			return &conn{Conn: c, stall: l.stall, leave: sync.OnceFunc(func() { l.connections.leave(addr) })}, nil
		}
		c.Close()
	}
}

// address returns the address of a connection's client, or the zero Addr if it is unknown.
func address(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// network returns the address under which a client's connections are counted: for IPv6, the address of the /64.
func network(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		p, _ := addr.Prefix(64) // an IPv6 address has at least 64 bits
		addr = p.Addr()
	}
	return addr
}

func (c *Connections) enter(addr netip.Addr) bool {
	bounded := c.PerAddress > 0 && addr.IsValid() && !c.trusts(addr)
	addr = network(addr)
	c.mu.Lock()
	full, greedy := c.Most > 0 && c.open >= c.Most, bounded && c.by[addr] >= c.PerAddress
	if !full && !greedy {
		if c.by == nil {
			c.by = make(map[netip.Addr]int)
		}
		c.open++
		c.by[addr]++
	}
	c.mu.Unlock()
	switch {
	case greedy:
		c.refusedAddress.Add(1)
		c.warn("too many connections of one client: if it is your proxy, list it in trusted_proxies", addr, c.PerAddress)
	case full:
		c.refusedAll.Add(1)
		c.warn("too many connections: closing new ones", addr, c.Most)
	}
	return !full && !greedy
}

func (c *Connections) trusts(addr netip.Addr) bool {
	return c.Trusted != nil && (httplimit.ClientIP{Trusted: c.Trusted()}).Trusts(addr)
}

// warn logs a warning at most once a minute, because clients can cause warnings at any rate.
func (c *Connections) warn(text string, addr netip.Addr, most int) {
	if c.warnings.Opens(time.Minute) {
		c.Log.Warn(text, "address", addr, "at_most", most)
	}
}

func (c *Connections) leave(addr netip.Addr) {
	addr = network(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.by[addr]--; c.by[addr] == 0 {
		delete(c.by, addr)
	}
}

type conn struct {
	net.Conn
	stall time.Duration
	leave func()
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// CloseWrite lets the server close only its side. Otherwise a client that is still sending would lose the answer.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
