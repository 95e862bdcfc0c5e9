package console

import (
	"errors"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secured sets the security headers of every response.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// readForm parses a form, unless a page of another origin may have sent it. Browsers send the origin of a POST in
// Sec-Fetch-Site or Origin. A request without both may come from an old browser, so it is accepted only if it
// authenticates itself instead of using a session. The Host has been checked, so a page cannot pass as this origin
// by making its own name resolve to this address.
func (s *server) readForm(c *call) error {
	reads := http.NewResponseController(c.w)
	_ = reads.SetReadDeadline(time.Now().Add(formTime)) // set before any refusal, because the server reads the rest of a refused request's body
	h := c.Header
	silent := h.Get("Sec-Fetch-Site") == "" && h.Get("Origin") == "" && h.Get("Authorization") == ""
	if err := s.origin.Check(c.Request); err != nil || silent {
		return control.Problemf(http.StatusForbidden, "This request may have come from a page of another origin. Nothing was changed.")
	}
	most := int64(maxForm)
	if c.caller.Role == source.Nobody {
		most = maxSignIn
	}
	c.Body = http.MaxBytesReader(c.w, c.Body, most)
	unreadable := control.Problemf(http.StatusBadRequest, "This form is unreadable. Nothing was changed.")
	if err := c.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return control.Problemf(http.StatusRequestEntityTooLarge, "The form is too large: the maximum is %d bytes.", large.Limit)
		}
		return unreadable
	}
	_ = reads.SetReadDeadline(time.Time{}) // otherwise the server would cancel the request at the deadline
	for _, values := range c.PostForm {
		if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			return unreadable // browsers do not send such forms, and documents cannot store such text
		}
	}
	return nil
}
