package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/telemetry"
)

// measured is a Transport that counts requests and measures the time until the head of the response.
type measured struct {
	*http.Transport
	stats *telemetry.UpstreamStats
}

// stats returns the counters for requests to the URL of u.
func (u *Upstream) stats() *telemetry.UpstreamStats {
	if u.Stats == nil {
		return telemetry.NewUpstreamStats(u.URL.Host)
	}
	return u.Stats(u.URL)
}

// RoundTrip implements http.RoundTripper.
func (m *measured) RoundTrip(r *http.Request) (*http.Response, error) {
	call := m.stats.Begin()
	var body *sentBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &sentBody{ReadCloser: r.Body, call: call}
		r = r.WithContext(r.Context())
		r.Body = body
	}
	resp, err := m.send(r)
	finish(call, r, resp, err, body.sentAfter())
	return resp, err
}

// send sends r without counting it. It returns an error if the upstream switches to a protocol that r did not
// request.
func (m *measured) send(r *http.Request) (*http.Response, error) {
	resp, err := m.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := checkSwitch(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// finish counts the end of a call. It subtracts the time of the upload, which depends on the client.
func finish(call telemetry.UpstreamCall, r *http.Request, resp *http.Response, err error, upload time.Duration) {
	took := call.Elapsed() - upload
	if err != nil {
		call.Failed(kindOf(r, err), took)
		return
	}
	call.Answered(resp.StatusCode, took)
}

// sentBody is the body of a request. It records the time at which the latest bytes came from the client.
type sentBody struct {
	io.ReadCloser
	call  telemetry.UpstreamCall
	after atomic.Int64 // nanoseconds from the start of the call to the latest bytes
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.after.Store(int64(b.call.Elapsed()))
	}
	return n, err
}

// sentAfter returns the time from the start of the call to the latest bytes of the body.
func (b *sentBody) sentAfter() time.Duration {
	if b == nil {
		return 0
	}
	return time.Duration(b.after.Load())
}
