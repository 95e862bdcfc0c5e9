package incident

import (
	"testing"
	"testing/synctest"
)

// The hour is what its script says.
func TestHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Start(t)
		h.PlayTo(LoginEnds)
		logins := h.Books.Subjects("login", LoginBegins, LoginEnds)
		for _, name := range Attacked {
			sent, passed := logins[name], uint64(LoginLimit*(LoginEnds-LoginBegins).Minutes())
			if sent.Asked < 8700 || sent.Asked > 9300 || sent.Asked-sent.Refused < passed || sent.Asked-sent.Refused > passed+LoginLimit {
				t.Errorf("%s was guessed at %d times, and %d were refused", name, sent.Asked, sent.Refused)
			}
		}
		for _, name := range Mistyped {
			if sent := logins[name]; sent.Asked != 8 || sent.Refused != 2 {
				t.Errorf("%s was mistyped %d times, and refused %d times", name, sent.Asked, sent.Refused)
			}
		}
		api := h.Books.Subjects("api", 0, LoginEnds)
		for key, one := range h.Books.Customers("pro", 0, LoginEnds) {
			if _, hurt := Hurt[key]; hurt != (one.Refused > 0) || hurt && (one.Share() < 0.25 || one.Share() > 0.6) || api[key].Refused > 0 {
				t.Errorf("%s asked %d times, and was refused %d times, %d of them by api", key, one.Asked, one.Refused, api[key].Refused)
			}
		}
		if n := len(h.Books.Subjects("per-address", -Lead, LoginEnds)); n < 4000 {
			t.Errorf("there were %d addresses", n)
		}
	})
}
