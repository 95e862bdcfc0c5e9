// Package inflight is an example of a program that bounds its own concurrency with permits that all its
// instances share: for requests of an http.Client, and for connections of database/sql.
package inflight

import (
	"io"
	"net/http"

	"github.com/sluicehq/sluice"
)

// Transport has no more requests under way to each host at once than Places has places. Others wait
// for their turn until their context ends.
type Transport struct {
	Base   http.RoundTripper
	Places *sluice.Semaphore
}

// RoundTrip holds a place until the body of the response is closed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	release, err := t.Places.Wait(r.Context(), r.URL.Host)
	if err != nil {
		if r.Body != nil {
			r.Body.Close() // as a RoundTripper has to
		}
		return nil, err
	}
	resp, err := t.Base.RoundTrip(r)
	if err != nil {
		release()
		return nil, err
	}
	if both, ok := resp.Body.(io.ReadWriteCloser); ok { // of a connection that has switched protocols
		resp.Body = &tunnel{both, release}
	} else {
		resp.Body = &body{resp.Body, release}
	}
	return resp, nil
}

type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

type tunnel struct {
	io.ReadWriteCloser
	release func()
}

func (t *tunnel) Close() error {
	defer t.release()
	return t.ReadWriteCloser.Close()
}
