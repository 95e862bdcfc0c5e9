package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Problem is the reason why an operation failed, in the JSON form of RFC 9457. Status is the HTTP status.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Errors []Wrong `json:"errors,omitempty"`
	// Retry is the time after which to retry, in seconds, or 0 if unknown.
	Retry int `json:"-"`
}

// Wrong is one mistake in a request. It is in the field of the body at a JSON pointer (RFC 6901), or in the
// parameter or header field with a name.
type Wrong struct {
	Pointer   *string `json:"pointer,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Header    string  `json:"header,omitempty"`
	Detail    string  `json:"detail"`
}

func (p *Problem) Error() string { return p.Detail }

// Problemf returns a problem with an HTTP status and a detail.
func Problemf(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// BadParameter returns the problem of an invalid query parameter.
func BadParameter(name, format string, args ...any) *Problem {
	p := Problemf(http.StatusBadRequest, format, args...)
	p.Errors = []Wrong{{Parameter: name, Detail: p.Detail}}
	return p
}

// BadField returns the problem of an invalid field of the body, at a JSON pointer.
func BadField(pointer, format string, args ...any) *Problem {
	p := Problemf(http.StatusUnprocessableEntity, format, args...)
	p.Errors = []Wrong{{Pointer: &pointer, Detail: p.Detail}}
	return p
}

// add adds a mistake in a field of the body.
func (p *Problem) add(pointer, format string, args ...any) {
	p.Errors = append(p.Errors, Wrong{Pointer: &pointer, Detail: fmt.Sprintf(format, args...)})
}

// addAll adds the mistakes in an error about a value of the body. The parameter prefix is the pointer to this value.
func (p *Problem) addAll(prefix string, err error) {
	var more *Problem
	if !errors.As(err, &more) || len(more.Errors) == 0 {
		p.add(prefix, "%s", plain(err))
		return
	}
	for _, w := range more.Errors {
		at := prefix
		if w.Pointer != nil {
			at += *w.Pointer
		}
		p.add(at, "%s", w.Detail)
	}
}

// plain returns the text of an error without the name of the package.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "policy: ") }

// maxWrong bounds the Errors of a problem.
const maxWrong = 100

// Mistakes converts the errors in a policy to a problem. The parameter prefix is the path of the value that is the
// body of the request, such as "rules[3]". Errors elsewhere in the policy have no pointer.
func Mistakes(found policy.Errors, prefix string) *Problem {
	p := Problemf(http.StatusUnprocessableEntity, "%s", described(found[0]))
	if more := len(found) - 1; more > 0 {
		p.Detail = fmt.Sprintf("%s (and %d more)", p.Detail, more)
	}
	for _, e := range found[:min(len(found), maxWrong)] {
		w := Wrong{Detail: described(e)}
		if at, ok := pointer(e.Path, prefix); ok {
			w.Pointer = &at
		}
		p.Errors = append(p.Errors, w)
	}
	return p
}

// described returns the text of a problem without its path.
func described(e policy.Problem) string {
	e.File, e.Path = "", ""
	return e.String()
}

// pointer converts a path that starts with prefix, such as rules[3].headers["X-Plan"], to a JSON pointer.
func pointer(path, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
		return "", false
	}
	var steps []string
	for _, step := range stepSyntax.FindAllString(rest, -1) {
		name := strings.Trim(step, "[]")
		if quoted, err := strconv.Unquote(name); err == nil {
			name = quoted
		}
		steps = append(steps, name)
	}
	return PointerTo(steps...), true
}

// stepSyntax matches a step of a path: .name, [3] or ["name"].
var stepSyntax = regexp.MustCompile(`\["(?:[^"\\]|\\.)*"\]|\[[^\]]*\]|[^.\[]+`)

// PointerTo returns the JSON pointer for a path of names.
func PointerTo(path ...string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// AsProblem converts an error to a problem. It returns nil for a nil error and for unexpected errors.
func AsProblem(err error) *Problem {
	var p *Problem
	var found policy.Errors
	var invalid *source.Invalid
	var many interface{ RetrySeconds() int }
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &found) && len(found) > 0:
		return Mistakes(found, "")
	case errors.As(err, &invalid):
		return BadField("/"+invalid.Field, "%s", invalid.Message)
	case errors.Is(err, source.ErrFull):
		return Unavailable("nothing was changed, because the disk of the database is full")
	case errors.As(err, &many):
		p := Problemf(http.StatusTooManyRequests, "%v", err)
		p.Retry = many.RetrySeconds()
		return p
	case errors.Is(err, source.ErrUnconfirmed):
		return Unavailable("the database did not confirm the change, so it may or may not have been made")
	case errors.Is(err, source.ErrUnavailable), errors.Is(err, source.ErrNotMigrated):
		return Unavailable("the database does not answer")
	case errors.Is(err, policy.ErrStoreUnavailable), errors.Is(err, context.DeadlineExceeded):
		return Unavailable("the shared store is unavailable")
	case errors.Is(err, sluice.ErrUsage):
		return Problemf(http.StatusUnprocessableEntity, "%v", err)
	}
	return nil
}

// Unavailable returns the problem of a service that does not answer now.
func Unavailable(detail string) *Problem {
	p := Problemf(http.StatusServiceUnavailable, "%s: try again", detail)
	p.Retry = 1
	return p
}
