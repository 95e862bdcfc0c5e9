package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// call is a request of a caller who is known.
type call struct {
	*http.Request
	w       http.ResponseWriter
	s       *server
	caller  control.Caller
	session *session // nil if the request says itself who calls
}

// maxForm is the size of the largest form in bytes: a policy of tens of thousands of rules, as it was
// and as it is, escaped.
const maxForm = 16 << 20

// maxSignIn is that of the form of somebody who is not known yet.
const maxSignIn = 16 << 10

// formTime is how long a form may take to arrive. Tests have less patience.
var formTime = 20 * time.Second

// admitted makes a handler of a route: it finds out who calls, and whether he may.
func (s *server) admitted(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := &call{Request: req, w: w, s: s}
		if err := s.admit(c, r); err != nil {
			s.fail(c, err)
			return
		}
		if err := r.handle(s, c); err != nil {
			s.fail(c, err)
		}
	})
}

// errUnknown is for callers who have to sign in.
var errUnknown = errors.New("sign in first")

func (s *server) admit(c *call, r route) error {
	if err := s.identify(c); err != nil {
		return err
	}
	if !c.caller.Role.May(r.role) {
		return problemf(http.StatusForbidden, "%s has the role %s, and this needs %s.", printable(c.caller.Name), c.caller.Role, r.role)
	}
	if c.Method == http.MethodGet || c.Method == http.MethodHead {
		return nil
	}
	return s.checkForm(c, s.formToken(c))
}

func (s *server) identify(c *call) (err error) {
	if c.session, c.caller = s.sessions.of(c.Request, s.SignIn); c.session != nil {
		return nil
	}
	if c.caller, err = s.Identify(c.Request); err != nil {
		return errUnknown
	}
	return nil
}

// fail says what is wrong.
func (s *server) fail(c *call, err error) {
	var p *problem
	switch {
	case errors.Is(err, errUnknown) && wantsPage(c.Request):
		next := ""
		if c.URL.Path != "/" || c.URL.RawQuery != "" {
			next = "?next=" + url.QueryEscape(c.URL.RequestURI())
		}
		http.Redirect(c.w, c.Request, "/sign-in"+next, http.StatusSeeOther)
		return
	case errors.Is(err, errUnknown):
		p = problemf(http.StatusUnauthorized, "Your session has ended: sign in again.")
	case errors.As(err, &p):
	default:
		s.Logger.Error("dashboard: a page could not be made", "path", c.URL.Path, "error", err)
		p = problemf(http.StatusInternalServerError, "This page could not be made. The log of Sluice says why.")
	}
	if c.caller.Role == source.Nobody {
		http.Error(c.w, p.Text, p.Status)
		return
	}
	if err := s.show(c, p.Status, "problem", page{Title: http.StatusText(p.Status), Data: p}); err != nil {
		s.Logger.Error("dashboard: a page could not be made", "path", c.URL.Path, "error", err)
		http.Error(c.w, p.Text, p.Status)
	}
}

// wantsPage reports whether a person waits for a page, rather than a script for data.
func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// problem is what is wrong, in words for people.
type problem struct {
	Status int
	Text   string
	// Fields are what the admin API says of parts of what was sent, by their JSON pointers.
	Fields []fieldProblem
}

type fieldProblem struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

func (p *problem) Error() string { return p.Text }

func problemf(status int, format string, args ...any) *problem {
	return &problem{Status: status, Text: fmt.Sprintf(format, args...)}
}

// do performs an operation of the admin API for the caller, and decodes its answer into out unless
// that is nil. What the API refuses is a *problem. The body is encoded as JSON, unless it is nil or
// a []byte.
func (c *call) do(method, path string, body, out any) error {
	return c.perform(operation{method: method, path: path, body: body}, out)
}

func (c *call) perform(o operation, out any) error {
	var sent []byte
	switch b := o.body.(type) {
	case nil:
	case []byte:
		sent = b
	default:
		var err error
		if sent, err = json.Marshal(b); err != nil {
			return err
		}
	}
	status, answer := c.s.Do(c.Context(), c.caller, o.method, o.path, o.match, sent)
	if status < 200 || status > 299 {
		return refused(status, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(out); err != nil {
		return fmt.Errorf("%s %s: %w", o.method, o.path, err)
	}
	return nil
}

// refused reads what the admin API says if it does not do something.
func refused(status int, answer []byte) *problem {
	var said struct {
		Detail string         `json:"detail"`
		Title  string         `json:"title"`
		Errors []fieldProblem `json:"errors"`
	}
	_ = json.Unmarshal(answer, &said)
	text := said.Detail
	if text == "" {
		text = said.Title
	}
	if text == "" {
		text = http.StatusText(status)
	}
	return &problem{Status: status, Text: text, Fields: said.Errors}
}

// redirect leads to another page after something was done.
func (c *call) redirect(to string) error {
	http.Redirect(c.w, c.Request, to, http.StatusSeeOther)
	return nil
}
