package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// call is a request of a known caller.
type call struct {
	*http.Request
	w       http.ResponseWriter
	s       *server
	caller  control.Caller
	session *session // nil if the request authenticates itself
	// policy is the policy in force when the request arrived. It must not be changed.
	policy *control.InForce
}

// maxForm is the maximum size of a form in bytes. A form may contain a policy twice, before and after editing, each
// with tens of thousands of rules and with escapes.
const maxForm = 16 << 20

// maxSignIn is the maximum size of a form from an unknown caller, in bytes.
const maxSignIn = 16 << 10

// callTime is the time for making a page after the slowest form: a request has formTime+callTime in total.
const callTime = 15 * time.Second

// formTime bounds the time in which a form arrives. Tests shorten it.
var formTime = 20 * time.Second

// admitted returns the handler of a route. It authenticates the caller and checks the permission.
func (s *server) admitted(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := &call{Request: req, w: w, s: s}
		if r.pattern != liveRoute {
			ctx, cancel := context.WithTimeout(req.Context(), formTime+callTime)
			defer cancel()
			c.Request = req.WithContext(ctx)
		}
		if err := s.admit(c, r); err != nil {
			s.fail(c, err)
			return
		}
		if err := r.handle(s, c); err != nil {
			s.fail(c, err)
		}
	})
}

// errUnknown is the error for a caller that must sign in.
var errUnknown = errors.New("sign in first")

func (s *server) admit(c *call, r route) (err error) {
	if err := s.identify(c); err != nil {
		return err
	}
	if err := c.caller.Needs(r.role); err != nil {
		return err
	}
	if c.Method != http.MethodGet && c.Method != http.MethodHead {
		if err := s.readForm(c); err != nil {
			return err
		}
	}
	c.policy, err = s.Control.InForce(c.caller)
	return err
}

// via is the name of the console in the log.
const via = "console"

// identify sets the caller, and the session if the request has one.
func (s *server) identify(c *call) (err error) {
	c.session, c.caller, err = s.sessions.lookup(c.Request, s.Access.Holder)
	if c.session == nil && err == nil {
		c.caller, err = s.Access.Identify(c.Request)
	}
	switch p := control.AsProblem(err); {
	case isUnavailable(p): // the tokens cannot be read now
		return p
	case err != nil:
		return errUnknown
	}
	c.caller.Via = via
	return nil
}

// fail answers with a page about the error.
func (s *server) fail(c *call, err error) {
	if errors.Is(err, errUnknown) {
		if wantsPage(c.Request) {
			next := ""
			if c.URL.Path != "/" || c.URL.RawQuery != "" {
				next = "?next=" + url.QueryEscape(c.URL.RequestURI())
			}
			http.Redirect(c.w, c.Request, "/sign-in"+next, http.StatusSeeOther)
			return
		}
		err = control.Problemf(http.StatusUnauthorized, "Your session has ended: sign in again.")
	}
	s.logUnavailable(c, err)
	p := control.AsProblem(err)
	if p == nil {
		s.Logger.Error("console: rendering a page failed", "path", c.URL.Path, "error", err)
		p = control.Problemf(http.StatusInternalServerError, "Internal error: see the log of Sluice.")
	}
	if c.caller.Role == source.Nobody {
		http.Error(c.w, p.Detail, p.Status)
		return
	}
	if err := s.show(c, p.Status, "problem", page{Title: http.StatusText(p.Status), Data: p}); err != nil {
		s.Logger.Error("console: rendering a page failed", "path", c.URL.Path, "error", err)
		http.Error(c.w, p.Detail, p.Status)
	}
}

// wantsPage reports whether a browser asks for a page, rather than a script for data.
func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// changedSince is the message for an ETag that is no longer valid.
const changedSince = "Nothing was changed, because someone else has changed this since you loaded the page. Check it, and try again."

// refusal returns the reason for which package control refused a change, in words for the console. It returns other
// errors unchanged.
func (c *call) refusal(err error) (*control.Problem, error) {
	c.s.logUnavailable(c, err)
	p := control.AsProblem(err)
	switch {
	case p == nil:
		return nil, err
	case p.Status == http.StatusPreconditionFailed:
		return control.Problemf(p.Status, changedSince), nil
	case isUnavailable(p):
		return control.Problemf(p.Status, "%s", notNow(p)), nil
	}
	return p, nil
}

// isUnavailable reports whether a problem, which may be nil, has the status of [control.Unavailable].
func isUnavailable(p *control.Problem) bool {
	return p != nil && p.Status == http.StatusServiceUnavailable
}

// notNow returns the text of a problem that isUnavailable.
func notNow(p *control.Problem) string { return fmt.Sprintf("Not now: %s.", p.Detail) }

// logUnavailable logs that the database has failed.
func (s *server) logUnavailable(c *call, err error) {
	if errors.Is(err, source.ErrUnavailable) || errors.Is(err, source.ErrNotMigrated) {
		s.Logger.Warn("console: the database failed", "path", c.URL.Path, "error", err)
	}
}

// redirect answers with a redirect to another page.
func (c *call) redirect(to string) error {
	http.Redirect(c.w, c.Request, to, http.StatusSeeOther)
	return nil
}
