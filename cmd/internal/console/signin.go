package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// signInShown is the data of the page to sign in.
type signInShown struct {
	Next string
	Said string // the error as text
}

func (s *server) signInPage(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, w: w, s: s}
	next := within(r.URL.Query().Get("next"))
	if s.identify(c) == nil {
		_ = c.redirect(next)
		return
	}
	s.askForToken(c, http.StatusOK, signInShown{Next: next})
}

func (s *server) askForToken(c *call, status int, d signInShown) {
	c.caller, c.session = control.Caller{}, nil
	if err := s.show(c, status, "sign-in", page{Title: "Sign in", Data: d}); err != nil {
		s.fail(c, err)
	}
}

func (s *server) signIn(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, w: w, s: s}
	if err := s.readForm(c); err != nil {
		p := control.AsProblem(err)
		s.askForToken(c, p.Status, signInShown{Next: "/", Said: p.Detail})
		return
	}
	d := signInShown{Next: within(r.PostForm.Get("next"))}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" {
		d.Said = "Paste a token."
		s.askForToken(c, http.StatusUnauthorized, d)
		return
	}
	who, err := s.Access.SignIn(r.RemoteAddr, token)
	var many interface{ RetrySeconds() int }
	if errors.As(err, &many) {
		w.Header().Set("Retry-After", strconv.Itoa(many.RetrySeconds()))
		d.Said = fmt.Sprintf("Too many unknown tokens came from your address. Try again in %d seconds.", many.RetrySeconds())
		s.askForToken(c, http.StatusTooManyRequests, d)
		return
	}
	if p := control.AsProblem(err); isUnavailable(p) {
		d.Said = notNow(p)
		s.askForToken(c, p.Status, d)
		return
	}
	if err != nil || who.Role == source.Nobody {
		d.Said = "Signing in failed: the token is unknown or has expired."
		s.askForToken(c, http.StatusUnauthorized, d)
		return
	}
	http.SetCookie(w, s.sessions.begin(r, token))
	_ = c.redirect(d.Next)
}

func (s *server) signOut(c *call) error {
	if c.session != nil {
		s.sessions.end(c.session)
	}
	http.SetCookie(c.w, cookie(c.Request, "", -1))
	return c.redirect("/sign-in")
}

// within returns next if it is the URL of a page of this server, or else the URL of the first page.
func within(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") || strings.HasPrefix(u.Path, "/sign-") {
		return "/"
	}
	return next
}
