package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secured sets what holds for every answer.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// checkForm parses a form, and checks that a page of this server has sent it, which had the token.
func (s *server) checkForm(c *call, token string) error {
	if err := s.origin.Check(c.Request); err != nil {
		return problemf(http.StatusForbidden, "This was sent by a page of another origin, and nothing was changed.")
	}
	most := int64(maxForm)
	if c.caller.Role == source.Nobody {
		most = maxSignIn
	}
	reads := http.NewResponseController(c.w)
	_ = reads.SetReadDeadline(time.Now().Add(formTime)) // what can have none needs none
	c.Body = http.MaxBytesReader(c.w, c.Body, most)
	if err := c.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return problemf(http.StatusRequestEntityTooLarge, "That is too much: at most %d bytes.", large.Limit)
		}
		return problemf(http.StatusBadRequest, "This form could not be read, and nothing was changed.")
	}
	_ = reads.SetReadDeadline(time.Time{}) // behind it the browser would be taken for gone
	given := c.PostForm.Get("csrf")
	if field := c.Header.Get("X-CSRF-Token"); field != "" {
		given = field
	}
	if !hmac.Equal([]byte(given), []byte(token)) {
		return problemf(http.StatusForbidden, "This form is of another session, and nothing was changed: go back, load the page again, and try again.")
	}
	return nil
}

// formToken returns what forms of a caller carry. Pages of others cannot read it.
func (s *server) formToken(c *call) string {
	if c.session != nil {
		return s.token("session", string(c.session.id[:]))
	}
	return s.token("caller", c.caller.Name)
}

func (s *server) token(kind, of string) string {
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte(kind + "\x00" + of))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
