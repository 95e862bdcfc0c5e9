package adminapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// fail answers with an error. An unexpected error is logged, and its text is not sent.
func (a *API) fail(c *call, err error) {
	p := control.AsProblem(err)
	if p == nil {
		a.Logger.Error("admin API failed", "method", c.Method, "route", c.Pattern, "error", err)
		p = control.Problemf(http.StatusInternalServerError, "internal error: see the log of sluice")
	}
	if errors.Is(err, source.ErrUnavailable) || errors.Is(err, source.ErrNotMigrated) {
		a.Logger.Warn("admin API: the database failed", "method", c.Method, "route", c.Pattern, "error", err)
	}
	h := c.w.Header()
	if p.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.Retry))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	write(c.w, p.Status, "application/problem+json", p)
}

// reply is an answer with a status or header fields of its own.
type reply struct {
	status   int
	etag     string
	location string
	body     any // nil: no body
}

// answer sends the result of an operation.
func (a *API) answer(c *call, out any) {
	if _, done := out.(answered); done {
		return
	}
	r, ok := out.(*reply)
	if !ok {
		r = &reply{body: out}
	}
	if tagged, is := out.(interface{ Tag() string }); is {
		r.etag = tagged.Tag()
	}
	if r.etag != "" {
		c.w.Header().Set("ETag", r.etag)
	}
	if r.location != "" {
		c.w.Header().Set("Location", r.location)
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.etag != "" && c.Method == http.MethodGet && slices.Contains(control.ETags(c.Header.Get("If-None-Match")), r.etag) {
		r.status, r.body = http.StatusNotModified, nil
	}
	write(c.w, r.status, "application/json", r.body)
}

// write sends an answer. If body is nil, the answer has no body.
func write(w http.ResponseWriter, status int, kind string, body any) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if body == nil {
		w.WriteHeader(status)
		return
	}
	text, isText := body.(json.RawMessage)
	if !isText {
		text = control.JSON(body)
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have left
}
