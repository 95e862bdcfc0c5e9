// Package inflight shows how a program bounds its own concurrency with permits that all its instances share: for
// the requests of an http.Client, and for the connections of database/sql.
package inflight

import (
	"io"
	"net/http"

	"github.com/sluicehq/sluice"
)

// Transport holds a permit of Places for each request that is under way to a host. Further requests to that host
// wait until a permit is free or their context ends.
type Transport struct {
	Base   http.RoundTripper
	Places *sluice.Semaphore
}

// RoundTrip sends a request, and holds a permit until the body of the response is closed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	release, err := t.Places.Wait(r.Context(), r.URL.Host)
	if err != nil {
		if r.Body != nil {
			r.Body.Close() // a RoundTripper has to close the body, even if it fails
		}
		return nil, err
	}
	resp, err := t.Base.RoundTrip(r)
	if err != nil {
		release()
		return nil, err
	}
	if both, ok := resp.Body.(io.ReadWriteCloser); ok { // the connection has switched protocols
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
