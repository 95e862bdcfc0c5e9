package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

const (
	sessionLife = 12 * time.Hour
	maxSessions = 1000
	// maxOfOne is the maximum number of sessions of one token. It keeps the sessions of one token from displacing
	// those of other tokens.
	maxOfOne = 50
)

// session is the session of a browser that has signed in.
type session struct {
	id    [sha256.Size]byte // the hash of the cookie's value
	token string
	ends  time.Time
}

// sessions has all sessions. They end with the process.
type sessions struct {
	mu  sync.Mutex
	all []*session // sorted by end
}

// begin starts a session, and returns its cookie.
func (s *sessions) begin(r *http.Request, token string) *http.Cookie {
	text, now := rand.Text(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(old *session) bool { return !old.ends.After(now) })
	first, own := 0, 0
	for i, old := range slices.Backward(s.all) {
		if old.token == token {
			first, own = i, own+1
		}
	}
	switch {
	case own >= maxOfOne:
		s.all = slices.Delete(s.all, first, first+1)
	case len(s.all) >= maxSessions:
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, &session{sha256.Sum256([]byte(text)), token, now.Add(sessionLife)})
	return cookie(r, text, int(sessionLife.Seconds()))
}

// lookup returns the session of a request and its caller, or nil without a valid session. The error is not nil if the
// token cannot be checked now.
func (s *sessions) lookup(r *http.Request, signIn func(string) (control.Caller, error)) (*session, control.Caller, error) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil, control.Caller{}, nil
	}
	found := s.find(sha256.Sum256([]byte(c.Value)))
	if found == nil || !found.ends.After(time.Now()) {
		return nil, control.Caller{}, nil
	}
	// signIn is called without s.mu, because it may read the database. If the token cannot be checked now, the session
	// is kept.
	who, err := signIn(found.token)
	switch {
	case isUnavailable(control.AsProblem(err)):
		return nil, control.Caller{}, err
	case err != nil:
		return nil, control.Caller{}, nil
	}
	return found, who, nil
}

func (s *sessions) find(id [sha256.Size]byte) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The IDs are hashes, so the time of this comparison reveals nothing useful.
	if i := slices.IndexFunc(s.all, func(one *session) bool { return one.id == id }); i >= 0 {
		return s.all[i]
	}
	return nil
}

func (s *sessions) end(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(old *session) bool { return old == one })
}

// cookieName returns the name of the cookie. Browsers accept a cookie with the prefix __Host- only over TLS, and
// only from the host itself.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-sluice"
	}
	return "sluice"
}

func cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}
