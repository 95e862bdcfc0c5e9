package client

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/internal/pace"
)

// Transport delays requests as servers require, and repeats denied requests: see the package's documentation. The
// zero value is ready. A Transport is safe for concurrent use, keeps a bounded number of the limits that servers
// report, and must not be copied: use one for all requests.
type Transport struct {
	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait is the longest wait before a request is sent. It is also the longest time, reported by the server, after
	// which a denied request is repeated; a random delay of at most MaxWait is added to this time. Zero means a minute.
	// A request that would have to wait longer does not wait: it is sent at once, and a denial is returned as the
	// response.
	MaxWait time.Duration
	// MaxRetries is how often a request is repeated: 4 times if zero, never if negative.
	MaxRetries int
	// Partition returns the name of the group of a request, such as the name of a tenant. The requests of a group to
	// the same host share all of their limits. With Partition, requests are not distinguished by their method, path and
	// API key.
	Partition func(*http.Request) string

	once  sync.Once
	pacer pace.Pacer
}

// RoundTrip implements [http.RoundTripper]. If the request's context ends during a wait, RoundTrip returns the
// cause: see [context.Cause].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(func() { t.pacer.MaxWait, t.pacer.MaxRetries = t.MaxWait, t.MaxRetries })
	t.pacer.Earn()
	to := t.target(r)
	for n := 0; ; n++ {
		pass, err := t.pacer.Wait(r.Context(), to)
		if err != nil {
			closeBody(r)
			return nil, err
		}
		response, err := t.base().RoundTrip(r)
		if err != nil {
			t.pacer.Done(pass)
			return response, err
		}
		answer := read(response)
		t.pacer.Tell(pass, answer)
		next, wait := t.again(r, pass, n, answer)
		if next == nil {
			return response, nil
		}
		r = next
		if err := pause(r, response, wait); err != nil {
			return nil, err
		}
	}
}

// again returns the request to be sent again after a wait, or nil.
func (t *Transport) again(r *http.Request, pass *pace.Pass, n int, a pace.Answer) (next *http.Request, wait time.Duration) {
	if !a.Refused {
		return nil, 0
	}
	if next = repeat(r); next == nil {
		return nil, 0
	}
	wait, ok := t.pacer.Again(r.Context(), pass, n, a.Promise)
	if !ok {
		closeBody(next)
		return nil, 0
	}
	return next, wait
}

// pause waits between a denial and the next attempt.
func pause(next *http.Request, refusal *http.Response, wait time.Duration) error {
	ends := time.Now().Add(wait)
	discard(refusal)
	err := pace.Sleep(next.Context(), time.Until(ends))
	if err != nil {
		closeBody(next)
	}
	return err
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// CloseIdleConnections calls the method CloseIdleConnections of Base, if Base has it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) target(r *http.Request) pace.Target {
	host := strings.ToLower(r.URL.Host)
	if t.Partition != nil {
		return pace.Target{Peer: pace.Hash(r.URL.Scheme, host, t.Partition(r))}
	}
	return pace.Target{
		Peer:  pace.Hash(r.URL.Scheme, host, r.Header.Get("Authorization"), r.Header.Get("X-API-Key")),
		Route: pace.Hash(r.Method, r.URL.Path),
	}
}

// read returns the limits that a response reports, and whether it is a denial.
func read(response *http.Response) pace.Answer {
	h, now := response.Header, time.Now()
	promise, promised := pace.RetryAfter(h, now)
	a := pace.Answer{States: pace.States(h, now), Promise: promise}
	used := false
	for _, s := range a.States {
		used = used || s.Left == 0
		if s.Left == 0 && !promised {
			a.Promise = max(a.Promise, s.Reset)
		}
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		a.Refused = true
	case http.StatusServiceUnavailable:
		a.Refused = promised
	case http.StatusForbidden:
		a.Refused = promised || used
	}
	return a
}

// repeat returns the request for another attempt, with a body of its own, or nil if it may not be
// repeated.
func repeat(r *http.Request) *http.Request {
	switch {
	case !idempotent(r):
		return nil
	case r.Body == nil || r.Body == http.NoBody:
		return r
	case r.GetBody == nil:
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again := *r
	again.Body = body
	return &again
}

// idempotent reports whether a request is idempotent by its method or an Idempotency-Key. As in net/http, a key
// without a value marks a request as idempotent, but is not sent. In net/http, PUT and DELETE are not idempotent.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := r.Header["Idempotency-Key"]
	_, xKey := r.Header["X-Idempotency-Key"]
	return key || xKey
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // closing a request body writes nothing
	}
}

// discard reads the rest of a denial's body, so that its connection can be used again. It reads at most this much, for
// at most this long, because a new connection would be cheaper than reading more.
const (
	discarded  = 64 << 10
	discarding = time.Second
)

func discard(response *http.Response) {
	late := time.AfterFunc(discarding, func() { _ = response.Body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, response.Body, discarded)
	_ = response.Body.Close()
}
