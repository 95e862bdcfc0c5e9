package dashboard

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
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
	c.caller, c.session = Caller{}, nil
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
	if !s.failures.mayTry(r.RemoteAddr, time.Now()) {
		w.Header().Set("Retry-After", "60")
		d.Said = "Too many tokens from your address were not known. Try again in a minute."
		s.askForToken(c, http.StatusTooManyRequests, d)
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" {
		d.Said = "Paste a token."
		s.askForToken(c, http.StatusUnauthorized, d)
		return
	}
	who, err := s.SignIn(token)
	if err != nil || who.Role == Nobody {
		if s.failures.note(r.RemoteAddr, time.Now()) {
			s.Logger.Warn("dashboard: somebody could not sign in", "from", r.RemoteAddr, "reason", err)
		}
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

const (
	maxFailures  = 10 // of an address in a minute
	maxAddresses = 4096
)

// failures counts tokens that were not known by address, for a minute.
type failures struct {
	mu     sync.Mutex
	minute int64
	by     map[netip.Prefix]int
}

// mayTry reports whether an address has some left.
func (f *failures) mayTry(remote string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at(now)[f.bucket(remote)] < maxFailures
}

// note counts one, and reports whether to log it.
func (f *failures) note(remote string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	by, who := f.at(now), f.bucket(remote)
	by[who]++
	return by[who] == 1 || by[who] == maxFailures
}

func (f *failures) at(now time.Time) map[netip.Prefix]int {
	if m := now.Unix() / 60; m != f.minute || f.by == nil {
		f.minute, f.by = m, map[netip.Prefix]int{}
	}
	return f.by
}

// bucket returns an address, or the network of one of IPv6. Those beyond the most share one.
func (f *failures) bucket(remote string) netip.Prefix {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	a, bits := peer.Addr().Unmap().WithZone(""), 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	if _, known := f.by[p]; !known && len(f.by) >= maxAddresses {
		return netip.Prefix{}
	}
	return p
}
