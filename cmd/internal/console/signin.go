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

// signInShown is what the page of that name says.
type signInShown struct {
	Next string
	Said string // that is wrong
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
	if err := s.checkForm(c, s.formToken(c)); err != nil {
		var p *problem
		errors.As(err, &p)
		s.askForToken(c, p.Status, signInShown{Next: "/", Said: p.Text})
		return
	}
	d := signInShown{Next: within(r.PostForm.Get("next"))}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" {
		d.Said = "Paste a token."
		s.askForToken(c, http.StatusUnauthorized, d)
		return
	}
	var who control.Caller
	var err error
	tried := s.Guess(r.RemoteAddr, token, func() (right, wrong bool) {
		who, err = s.SignIn(token)
		right = err == nil && who.Role != source.Nobody
		return right, !right
	})
	var many interface{ RetrySeconds() int }
	if errors.As(tried, &many) {
		w.Header().Set("Retry-After", strconv.Itoa(many.RetrySeconds()))
		d.Said = fmt.Sprintf("Too many unknown tokens came from your address. Try again in %d seconds.", many.RetrySeconds())
		s.askForToken(c, http.StatusTooManyRequests, d)
		return
	}
	if err != nil || who.Role == source.Nobody {
		d.Said = "That did not work: this token is not known, or has expired."
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

// within returns where to go on, which is a page of this server whatever it says.
func within(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") || strings.HasPrefix(u.Path, "/sign-") {
		return "/"
	}
	return next
}
