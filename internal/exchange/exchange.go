// Package exchange has the data that the handlers of one HTTP request share: the writer of its response, and facts
// about the request that the first handler has determined. Package httplimit, the gateway, auth requests and
// tracing import it. It imports only internal/clientip and the standard library.
//
// A single [Exchange] wraps the server's ResponseWriter, however many handlers change or read the response. Each of
// them adds a [Layer] to it.
package exchange

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
)

// Layer lets a handler change the status of a response, or withhold the response.
type Layer interface {
	// Head is called with the status of the response, and of each informational response, before the head is sent.
	// It returns the status to send. If it returns 0, nothing is sent, and the layer, which must be a [Taker], gets
	// the body.
	Head(status int) int
}

// Taker is a [Layer] that can withhold the response of the handler, and answer in its place.
type Taker interface {
	Take(body []byte)
}

// Bound bounds the time that a client may take to read.
type Bound interface {
	Begin() error // called before each write or flush; if it returns an error, nothing is written
	End() error   // called after each write or flush; returns an error if the client took too long to read
}

// Exchange is the writer of a response. It wraps the server's writer and, like that writer, is not safe for
// concurrent use.
type Exchange struct {
	http.ResponseWriter
	Request *http.Request // the request as the first handler got it

	// Default is the status if the handler sets none. Zero means 200.
	Default int
	// Length, if positive, is the length of the body. Its last byte is written separately, and stays in the
	// server's buffer until the handler has returned.
	Length int64
	Bytes  int64 // the bytes of the body that were written
	Bound  Bound // nil means no bound

	// The gateway sets the following fields. In other programs, Client is invalid.
	Client    netip.Addr
	Peer      netip.Addr
	Trusted   bool      // the peer is a trusted proxy
	Forwarded [3]string // memory for the X-Forwarded fields
	// Cleaned reports whether the fields that Connection lists were removed. If they could not be, Fault is the
	// reason.
	Cleaned bool
	Fault   string
	Passed  bool // the request was passed to the upstream
	// Lost is set if the upstream has received the request, but the gateway did not wait for its response. The body
	// is then the gateway's.
	Lost bool
	// Own is set if the gateway itself answers, and the upstream is not the reason, for example if the body of the
	// request broke off.
	Own bool

	watched *watched // nil without watchers
	layers  []Layer  // the outermost first
	room    [4]Layer
	begun   bool
	taker   Taker // the layer that withholds the response, or nil
}

// Join returns w if it is an Exchange. Otherwise, it lets own wrap w, and returns own. If own is nil, it uses a new
// Exchange. If l is not nil, Join adds it to the layers.
func Join(w http.ResponseWriter, r *http.Request, own *Exchange, l Layer) *Exchange {
	x, joined := w.(*Exchange)
	if !joined {
		if x = own; x == nil {
			x = new(Exchange)
		}
		x.ResponseWriter, x.Request = w, r
		x.layers = x.room[:0]
	}
	if l != nil {
		x.layers = append(x.layers, l)
	}
	return x
}

// Leave passes the rest of the body to the watchers, and removes the layer that was added last. The argument must
// be the one that was passed to [Join] as own. If Join returned this Exchange, the layer stays, so that it can
// change a head that is written later.
func (x *Exchange) Leave(own *Exchange) {
	x.watched.sent()
	if x != own {
		x.layers = x.layers[:len(x.layers)-1]
	}
}

// Watch passes the body to w. Pieces are passed after they were sent, several small ones at a time, and the last
// one before the layer leaves.
func (x *Exchange) Watch(w io.Writer) {
	if x.watched == nil {
		x.watched = new(watched)
		x.watched.by = x.watched.room[:0]
	}
	x.watched.by = append(x.watched.by, w)
}

// watched has the watchers of a body, and buffers the bytes that they have not read. Watchers read several events
// at a time, because work after each flush could take processor time from the client.
type watched struct {
	by    []io.Writer
	room  [2]io.Writer
	waits int
	buf   [4 << 10]byte // twice as long as the server's buffer
}

// written passes p to the watchers: immediately, or at a later flush if p is small.
func (w *watched) written(p []byte) {
	if w == nil {
		return
	}
	if w.waits+len(p) > len(w.buf) {
		w.sent()
	}
	if len(p) > len(w.buf) {
		w.read(p)
		return
	}
	w.waits += copy(w.buf[w.waits:], p)
}

// flushed passes the buffered bytes to the watchers if they fill half of the buffer.
func (w *watched) flushed() {
	if w != nil && w.waits >= len(w.buf)/2 {
		w.sent()
	}
}

// sent passes all buffered bytes to the watchers.
func (w *watched) sent() {
	if w != nil && w.waits > 0 {
		w.read(w.buf[:w.waits])
		w.waits = 0
	}
}

func (w *watched) read(p []byte) {
	for _, one := range w.by {
		_, _ = one.Write(p) // an error of a watcher does not change the response
	}
}

// Final reports whether a status is the status of the response itself, and not of an informational response before
// it.
func Final(status int) bool { return status >= 200 || status == http.StatusSwitchingProtocols }

// head passes a status through the layers, the innermost first, and returns the status to send.
func (x *Exchange) head(status int) int {
	x.begun = Final(status)
	for i := len(x.layers) - 1; i >= 0 && status != 0; i-- {
		if status = x.layers[i].Head(status); status == 0 {
			x.taker, _ = x.layers[i].(Taker)
		}
	}
	return status
}

// Begin determines the status of the response and writes the head, unless this has been done.
func (x *Exchange) Begin() {
	if x.begun {
		return
	}
	status := x.head(cmp.Or(x.Default, http.StatusOK))
	if status != 0 && status != http.StatusOK { // the server sends 200 if no status is set
		x.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is used by http.ResponseController.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader sends the head.
func (x *Exchange) WriteHeader(status int) {
	if !x.begun {
		status = x.head(status)
	}
	if x.taker == nil && status != 0 {
		x.ResponseWriter.WriteHeader(status)
	}
}

// bounded calls the function write between Begin and End of the bound.
func (x *Exchange) bounded(write func() error) error {
	if x.Bound == nil {
		return write()
	}
	if err := x.Bound.Begin(); err != nil {
		return err
	}
	err := write()
	return cmp.Or(x.Bound.End(), err)
}

func (x *Exchange) write(p []byte) (n int, err error) {
	err = x.bounded(func() (err error) {
		n, err = x.ResponseWriter.Write(p)
		return err
	})
	x.Bytes += int64(n)
	x.watched.written(p[:n])
	return n, err
}

func (x *Exchange) Write(p []byte) (int, error) {
	x.Begin()
	if x.taker != nil {
		x.taker.Take(p)
		return len(p), nil
	}
	n := 0
	if rest := len(p) - 1; rest > 0 && x.Length > 0 && x.Bytes+int64(len(p)) >= x.Length {
		wrote, err := x.write(p[:rest])
		if err != nil {
			return wrote, err
		}
		n, p = wrote, p[rest:]
	}
	wrote, err := x.write(p)
	return n + wrote, err
}

// whole reports whether writes can go to the server unchanged.
func (x *Exchange) whole() bool { return x.Length <= 0 && x.plain() }

// plain reports whether nothing reads, takes or times the body.
func (x *Exchange) plain() bool { return x.Bound == nil && x.taker == nil && x.watched == nil }

// WriteString is used by io.WriteString.
func (x *Exchange) WriteString(text string) (int, error) {
	x.Begin()
	if !x.whole() {
		return x.Write([]byte(text))
	}
	n, err := io.WriteString(x.ResponseWriter, text)
	x.Bytes += int64(n)
	return n, err
}

// ReadFrom is used by io.Copy, so that the system can copy a file.
func (x *Exchange) ReadFrom(r io.Reader) (n int64, err error) {
	x.Begin()
	if x.whole() {
		n, err = io.Copy(x.ResponseWriter, r)
		x.Bytes += n
		return n, err
	}
	if most := x.Length - x.Bytes - 1; most > 0 && x.plain() {
		n, err = io.CopyN(x.ResponseWriter, r, most)
		if x.Bytes += n; err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
	rest, err := io.Copy(struct{ io.Writer }{x}, r)
	return n + rest, err
}

// FlushError sends the buffered bytes.
func (x *Exchange) FlushError() error {
	x.Begin()
	if x.taker != nil {
		return nil
	}
	err := x.bounded(http.NewResponseController(x.ResponseWriter).Flush)
	x.watched.flushed()
	return err
}

// Flush is used by handlers that need an http.Flusher.
func (x *Exchange) Flush() { _ = x.FlushError() }

// CloseNotify is used by gin, whose Context.Stream panics without it.
func (x *Exchange) CloseNotify() <-chan bool {
	left := make(chan bool, 1)
	context.AfterFunc(x.Request.Context(), func() { left <- true })
	return left
}

// Hijack is used for WebSockets: the caller takes over the connection, and the exchange no longer sees its data.
func (x *Exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil && !x.begun {
		x.head(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
