package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// An HTTP/2 server has a timeout for a stream, which starts when the head has arrived, and a timeout for an idle
// connection. With a head that never ends, a client could keep a connection open forever, because neither timeout
// applies. headConn bounds the time from the first to the last byte of a head.

// preface is the text that an HTTP/2 client sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameHeader       = 9 // bytes of length, type, flags and stream
	frameData         = 0
	frameHeaders      = 1
	frameContinuation = 9
	flagEndHeaders    = 4
)

// frames tracks the frames that a client sends. The zero value expects the preface.
type frames struct {
	preface int               // the number of bytes of the preface that have arrived
	header  [frameHeader]byte // the header of the current frame
	have    int               // the number of bytes of header that have arrived
	left    int               // the number of bytes of the frame that are still missing
	data    bool              // the current frame is a DATA frame
	head    bool              // the current head has more frames
	other   bool              // the connection speaks another protocol
}

// scan processes p, the next bytes from the client. It reports whether p ends within a head or a frame, except within
// the payload of a DATA frame, and whether a head or a frame starts in p.
func (f *frames) scan(p []byte) (unfinished, began bool) {
	for len(p) > 0 && !f.other {
		var n int
		switch {
		case f.preface < len(preface):
			n = min(len(p), len(preface)-f.preface)
			f.other = string(p[:n]) != preface[f.preface:f.preface+n]
			f.preface += n
		case f.left > 0:
			n = min(len(p), f.left)
			f.left -= n
		default:
			began = began || f.have == 0 && !f.head
			n = copy(f.header[f.have:], p)
			if f.have += n; f.have == frameHeader {
				f.next()
			}
		}
		p = p[n:]
	}
	return !f.other && (f.have > 0 || f.head || f.left > 0 && !f.data), began
}

// next evaluates the header of a frame.
func (f *frames) next() {
	h := &f.header
	f.have, f.left = 0, int(h[0])<<16|int(h[1])<<8|int(h[2])
	kind := h[3]
	f.data = kind == frameData
	if kind == frameHeaders || kind == frameContinuation {
		f.head = h[4]&flagEndHeaders == 0
	}
}

// headConn closes an HTTP/2 connection if its client starts a head, or any frame except DATA, and does not finish
// it in time. It uses a timer and no deadlines, because gRPC servers set deadlines of their own.
type headConn struct {
	net.Conn
	frames  frames
	timeout time.Duration
	timer   *time.Timer // nil before the first unfinished head
	running bool
}

func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.frames.other {
		return n, err
	}
	switch unfinished, began := c.frames.scan(p[:n]); {
	case unfinished && began:
		c.start()
	case !unfinished && c.running:
		c.timer.Stop()
		c.running = false
	}
	return n, err
}

func (c *headConn) start() {
	c.running = true
	if c.timer == nil {
		c.timer = time.AfterFunc(c.timeout, func() { c.Conn.Close() })
		return
	}
	c.timer.Reset(c.timeout)
}

// CloseWrite closes the write side of a connection without TLS.
func (c *headConn) CloseWrite() error { return closeWrite(c.Conn) }

// BoundHeads returns a listener on l that bounds the time of HTTP/2 heads. Connections may also speak other
// protocols. For TLS, use [BoundHeadsTLS]: an http.Server recognizes a TLS connection by its type *tls.Conn, which
// this listener would hide.
func BoundHeads(l net.Listener, timeout time.Duration) net.Listener {
	return &headListener{l, timeout}
}

type headListener struct {
	net.Listener
	timeout time.Duration
}

func (l *headListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headConn{Conn: c, timeout: l.timeout}, nil
}

// BoundHeadsTLS bounds the time of heads in HTTP/2 over TLS. An http.Server speaks HTTP/2 over TLS only on an
// unwrapped *tls.Conn. So a second http.Server, with the handler and the bounds of server, serves the decrypted
// connections as HTTP/2 without TLS. Call BoundHeadsTLS after setting all fields of server.
func BoundHeadsTLS(server *http.Server, timeout time.Duration) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	within := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l := r.Context().Value(handedKey{}).(*handed)
			r.TLS = &l.state
			l.handler.ServeHTTP(w, r)
		}),
		DisableGeneralOptionsHandler: true, // the handler of server answers "OPTIONS *"
		BaseContext:                  func(l net.Listener) context.Context { return l.(*handed).context() },
		Protocols:                    protocols,
		HTTP2:                        server.HTTP2,
		ReadTimeout:                  server.ReadTimeout,
		ReadHeaderTimeout:            server.ReadHeaderTimeout,
		IdleTimeout:                  server.IdleTimeout,
		MaxHeaderBytes:               server.MaxHeaderBytes,
		ErrorLog:                     server.ErrorLog,
	}
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, c *tls.Conn, h http.Handler) {
			handOver(within, &headConn{Conn: c, timeout: timeout}, c.ConnectionState(), h)
		},
	}
	server.RegisterOnShutdown(func() {
		// With a canceled context, within.Shutdown only tells clients to send no more requests, and does not wait. The
		// Shutdown of the variable server waits for the requests in flight.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = within.Shutdown(ctx)
	})
}

// handOver makes server serve c with h. It returns when c is closed.
func handOver(server *http.Server, c net.Conn, state tls.ConnectionState, h http.Handler) {
	l := &handed{Conn: c, state: state, handler: h, accept: make(chan net.Conn, 1), stop: make(chan struct{}), closed: make(chan struct{})}
	l.accept <- &handedConn{Conn: c, closed: sync.OnceFunc(func() { close(l.closed) })}
	_ = server.Serve(l)
	select {
	case c := <-l.accept: // the server shuts down
		c.Close()
	default:
		<-l.closed
	}
}

// handed is a listener that accepts a single connection.
type handed struct {
	net.Conn
	state        tls.ConnectionState
	handler      http.Handler // the handler of the server that accepted the connection
	accept       chan net.Conn
	stop, closed chan struct{}
}

func (l *handed) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
	case <-l.stop:
	}
	return nil, net.ErrClosed
}

// Close ends Accept, and leaves the connection open. A server calls Close once.
func (l *handed) Close() error {
	close(l.stop)
	return nil
}

func (l *handed) Addr() net.Addr { return l.LocalAddr() }

type handedKey struct{}

// context returns the base context of the server that accepted the connection.
func (l *handed) context() context.Context {
	ctx := context.Background()
	if h, ok := l.handler.(interface{ BaseContext() context.Context }); ok { // net/http passes the base context on in this form
		ctx = h.BaseContext()
	}
	return context.WithValue(ctx, handedKey{}, l)
}

// handedConn is the connection of a handed. When it is closed, it notifies the handed.
type handedConn struct {
	net.Conn
	closed func()
}

func (c *handedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
