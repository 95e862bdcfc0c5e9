// Package exchange has what the handlers around one HTTP request share: the writer of its response, and what the
// first of them has found out about the request. Package httplimit, the gateway, auth requests and tracing import
// it. It imports only internal/clientip and the standard library.
//
// However many handlers look at a response, one [Exchange] is around the ResponseWriter of the server: each handler
// adds a [Layer] to it.
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

// Layer is what one handler does with a response.
type Layer interface {
	// Head is called before the head of the response is sent, and before each informational one, and returns the
	// status to send. After a 0 nothing is sent, and the layer, a [Taker], gets the body.
	Head(status int) int
}

// Taker is a [Layer] that withholds the response of the handler and may answer in its place.
type Taker interface {
	Take(body []byte)
}

// Bound bounds the time that a client may take to read.
type Bound interface {
	Begin() error // before a write, which an error prevents
	End() error   // after it; it returns an error if the handler took too long
}

// Exchange is the writer of a response, around that of the server. Like that, it is not safe for concurrent use.
type Exchange struct {
	http.ResponseWriter
	Request *http.Request // as the first handler got it

	// Default is the status where the handler sets none: 200 if zero.
	Default int
	// Length, if positive, is that of a body. Its last byte is written separately, and stays in the server's buffer
	// until the handler has returned.
	Length int64
	Bytes  int64 // of the body that were written
	Bound  Bound // nil: none

	// What the gateway knows of the request; Client is invalid elsewhere.
	Client    netip.Addr
	Peer      netip.Addr
	Trusted   bool      // the peer is a trusted proxy
	Forwarded [3]string // memory for the X-Forwarded fields
	// Cleaned reports that the fields named by Connection were removed, and Fault is the reason if they could not
	// be.
	Cleaned bool
	Fault   string
	Passed  bool // to the upstream
	// Lost is set if the upstream has received the request, and its response was not awaited: the body is the
	// gateway's own.
	Lost bool
	// Own is set if the gateway answers for reasons that are not the upstream's, such as a body that broke off.
	Own bool

	watched *watched // nil: nothing watches
	layers  []Layer  // the outermost first
	room    [4]Layer
	begun   bool
	taker   Taker // of the response, once a layer has kept it back
}

// Join returns the exchange that w is, or else own, or a new one, around w, and adds a layer to it, if that is not nil.
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

// Leave removes the layer that was added last, unless the exchange is own: what is still written there comes too late,
// and the layer hears of it.
func (x *Exchange) Leave(own *Exchange) {
	x.watched.sent()
	if x != own {
		x.layers = x.layers[:len(x.layers)-1]
	}
}

// Watch passes the body to w. Each piece is passed after it has been sent, and small ones several at a time. The last
// is passed before the layer leaves.
func (x *Exchange) Watch(w io.Writer) {
	if x.watched == nil {
		x.watched = new(watched)
		x.watched.by = x.watched.room[:0]
	}
	x.watched.by = append(x.watched.by, w)
}

// watched has the watchers of a body, and buffers bytes that these have not read. Whatever runs behind the flush of an
// event may keep the client from the processor, so watchers read several events at a time.
type watched struct {
	by    []io.Writer
	room  [2]io.Writer
	waits int
	buf   [4 << 10]byte // twice as long as the server's
}

// written passes p to the watchers: at a later flush if it is small, and otherwise now.
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

// sent passes the buffered bytes to the watchers.
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

// Final reports whether a status is that of the response, and not of an informational one before it.
func Final(status int) bool { return status >= 200 || status == http.StatusSwitchingProtocols }

// head asks the layers, the innermost first.
func (x *Exchange) head(status int) int {
	x.begun = Final(status)
	for i := len(x.layers) - 1; i >= 0 && status != 0; i-- {
		if status = x.layers[i].Head(status); status == 0 {
			x.taker, _ = x.layers[i].(Taker)
		}
	}
	return status
}

// Begin settles the head of the response, if that has not been done.
func (x *Exchange) Begin() {
	if x.begun {
		return
	}
	status := x.head(cmp.Or(x.Default, http.StatusOK))
	if status != 0 && status != http.StatusOK { // which the server sends by itself
		x.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
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

// bounded calls write, within the bound.
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

// whole reports whether the server may get what is written as it comes.
func (x *Exchange) whole() bool { return x.Length <= 0 && x.plain() }

// plain reports whether the bytes of the body need not be seen.
func (x *Exchange) plain() bool { return x.Bound == nil && x.taker == nil && x.watched == nil }

// WriteString is for io.WriteString.
func (x *Exchange) WriteString(text string) (int, error) {
	x.Begin()
	if !x.whole() {
		return x.Write([]byte(text))
	}
	n, err := io.WriteString(x.ResponseWriter, text)
	x.Bytes += int64(n)
	return n, err
}

// ReadFrom is for io.Copy, which lets the system copy a file.
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

// FlushError sends what has been written.
func (x *Exchange) FlushError() error {
	x.Begin()
	if x.taker != nil {
		return nil
	}
	err := x.bounded(http.NewResponseController(x.ResponseWriter).Flush)
	x.watched.flushed()
	return err
}

// Flush is for handlers that ask for an http.Flusher.
func (x *Exchange) Flush() { _ = x.FlushError() }

// CloseNotify is for gin, whose Context.Stream panics without it.
func (x *Exchange) CloseNotify() <-chan bool {
	left := make(chan bool, 1)
	context.AfterFunc(x.Request.Context(), func() { left <- true })
	return left
}

// Hijack is for WebSockets: the connection is taken over, and nothing more is seen of it.
func (x *Exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil && !x.begun {
		x.head(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
