package adminapi

import (
	"bytes"
	"context"
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// Do performs an operation within this process for a caller who is known already. Roles,
// validation, limits and the audit log are the same as over the network, but a body may have 16 MiB. Path has the query, too;
// match is what a change sends as If-Match, an ETag or "*"; "none" sends "If-None-Match: *", for what
// is not to be there yet. A body is JSON. Of an operation that
// does not end by itself, nothing comes before the context ends.
func (a *API) Do(ctx context.Context, who control.Caller, method, path, match string, body []byte) (status int, answer []byte) {
	w := &recorder{status: http.StatusOK, header: http.Header{}}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, insideKey{}, who), method, path, bytes.NewReader(body))
	if err != nil {
		write(w, http.StatusBadRequest, "application/problem+json", control.Problemf(http.StatusBadRequest, "this is no path: %.100q", path))
		return w.status, w.body.Bytes()
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	switch match {
	case "":
	case "none":
		r.Header.Set("If-None-Match", "*")
	default:
		r.Header.Set("If-Match", match)
	}
	a.operations.ServeHTTP(w, r)
	return w.status, w.body.Bytes()
}

// insideKey is under which the context of a request within this process has its caller. No request
// of the network has that.
type insideKey struct{}

func insider(ctx context.Context) (control.Caller, bool) {
	who, inside := ctx.Value(insideKey{}).(control.Caller)
	return who, inside
}

// recorder keeps an answer.
type recorder struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header            { return r.header }
func (r *recorder) WriteHeader(status int)         { r.status = status }
func (r *recorder) Write(data []byte) (int, error) { return r.body.Write(data) }
