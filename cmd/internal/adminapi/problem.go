package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// problem is an answer that is an error, as RFC 9457 has it.
type problem struct {
	Type   string   `json:"type"`
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Errors []wrong  `json:"errors,omitempty"`
	allow  []string // methods
	retry  int      // seconds
}

// wrong is one thing that is wrong with a request: with a field of its body, by a JSON pointer
// (RFC 6901), or with a parameter or a field of its head, by the name.
type wrong struct {
	Pointer   *string `json:"pointer,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Header    string  `json:"header,omitempty"`
	Detail    string  `json:"detail"`
}

func (p *problem) Error() string { return p.Detail }

func problemf(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

func tooLarge() *problem {
	return problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
}

func notAllowed(method string, allowed []string) *problem {
	p := problemf(http.StatusMethodNotAllowed, "%s is not one of the methods of this path: use %s", method, strings.Join(allowed, " or "))
	p.allow = allowed
	return p
}

// badParameter says what is wrong with a parameter of the query.
func badParameter(name, format string, args ...any) *problem {
	p := problemf(http.StatusBadRequest, format, args...)
	p.Errors = []wrong{{Parameter: name, Detail: p.Detail}}
	return p
}

// badField says what is wrong with a field of the body.
func badField(pointer, format string, args ...any) *problem {
	p := problemf(http.StatusUnprocessableEntity, format, args...)
	p.Errors = []wrong{{Pointer: &pointer, Detail: p.Detail}}
	return p
}

// maxWrong is how many mistakes an answer tells.
const maxWrong = 100

// mistakes makes a problem of what is wrong with a document, of which the part at prefix, such
// as "rules[3]", is the body of the request. What is elsewhere has no pointer.
func mistakes(found policy.Errors, prefix string) *problem {
	p := problemf(http.StatusUnprocessableEntity, "%s", described(found[0]))
	if more := len(found) - 1; more > 0 {
		p.Detail = fmt.Sprintf("%s (and %d more)", p.Detail, more)
	}
	for _, e := range found[:min(len(found), maxWrong)] {
		w := wrong{Detail: described(e)}
		if at, ok := pointer(e.Path, prefix); ok {
			w.Pointer = &at
		}
		p.Errors = append(p.Errors, w)
	}
	return p
}

// described is what a problem says, without where.
func described(e policy.Problem) string {
	e.File, e.Path = "", ""
	return e.String()
}

// pointer makes a JSON pointer of a path below prefix, such as rules[3].headers["X-Plan"].
func pointer(path, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
		return "", false
	}
	var b strings.Builder
	for rest != "" {
		var step string
		step, rest = cutStep(rest)
		b.WriteString("/" + escaped(step))
	}
	return b.String(), true
}

// escaped is a name in a JSON pointer.
func escaped(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// cutStep takes the first step off a path: .name, [3] or ["name"].
func cutStep(path string) (step, rest string) {
	if path[0] == '.' {
		path = path[1:]
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		return path[:end], path[end:]
	}
	if quoted, err := strconv.QuotedPrefix(path[1:]); err == nil {
		name, _ := strconv.Unquote(quoted)
		return name, path[min(len(quoted)+2, len(path)):]
	}
	end := strings.IndexByte(path, ']')
	if end < 0 {
		return path[1:], ""
	}
	return path[1:end], path[end+1:]
}

// asProblem makes a problem of any error.
func asProblem(err error) *problem {
	var p *problem
	var found policy.Errors
	var invalid *source.Invalid
	var many interface{ RetrySeconds() int }
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &found) && len(found) > 0:
		return mistakes(found, "")
	case errors.As(err, &invalid):
		return badField("/"+invalid.Field, "%s", invalid.Message)
	case errors.Is(err, source.ErrFull):
		return away("nothing was changed: the disk of the database is full: free some space there")
	case errors.As(err, &many):
		p := problemf(http.StatusTooManyRequests, "%v", err)
		p.retry = many.RetrySeconds()
		return p
	case errors.Is(err, source.ErrAway), errors.Is(err, source.ErrNotMigrated):
		return away("the database does not answer, and may have made the change or not")
	case errors.Is(err, policy.ErrStoreAway), errors.Is(err, context.DeadlineExceeded):
		return away("the shared store does not answer")
	case errors.Is(err, sluice.ErrUsage):
		return problemf(http.StatusUnprocessableEntity, "%v", err)
	}
	return nil
}

func away(detail string) *problem {
	p := problemf(http.StatusServiceUnavailable, "%s: try again", detail)
	p.retry = 1
	return p
}

// fail answers with an error. What nobody has foreseen is logged, and not told.
func (a *API) fail(c *call, err error) {
	p := asProblem(err)
	if p == nil {
		a.Logger.Error("admin API failed", "method", c.Method, "route", c.Pattern, "error", err)
		p = problemf(http.StatusInternalServerError, "something went wrong: the log of sluice says what")
	}
	if errors.Is(err, source.ErrAway) || errors.Is(err, source.ErrNotMigrated) {
		a.Logger.Warn("admin API: the database failed", "method", c.Method, "route", c.Pattern, "error", err)
	}
	h := c.w.Header()
	if len(p.allow) > 0 {
		h.Set("Allow", strings.Join(slices.Compact(slices.Sorted(slices.Values(p.allow))), ", "))
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	write(c.w, p.Status, "application/problem+json", p)
}

// reply is an answer that is more than a body.
type reply struct {
	status   int
	etag     string
	location string
	body     any // nil: none
}

// answer answers with what an operation has returned.
func (a *API) answer(c *call, out any) {
	if _, done := out.(answered); done {
		return
	}
	r, ok := out.(*reply)
	if !ok {
		r = &reply{body: out}
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
	if r.etag != "" && c.Method == http.MethodGet && slices.Contains(etags(c.Header.Get("If-None-Match")), r.etag) {
		r.status, r.body = http.StatusNotModified, nil
	}
	write(c.w, r.status, "application/json", r.body)
}

// write sends a body, or none if it is nil.
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
	_, _ = w.Write(text) // a client that has left is told nothing
}
