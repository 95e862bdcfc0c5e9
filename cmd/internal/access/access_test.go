package access_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// roles are tokens each of which is the name of its role, and one that has expired.
func roles() ([]control.Token, error) {
	all := []control.Token{{Name: "late", Hash: control.HashToken("expired"), Role: source.Admin, Expires: time.Now().Add(-time.Second)}}
	for _, r := range []source.Role{source.Viewer, source.Operator, source.Admin} {
		all = append(all, control.Token{Name: "the " + r.String(), Hash: control.HashToken(r.String()), Role: r, Expires: time.Now().Add(time.Hour)})
	}
	return all, nil
}

func TestSignIn(t *testing.T) {
	a := &access.Access{Tokens: roles}
	if who, err := a.SignIn("192.0.2.1:1", " operator "); who != (control.Caller{Name: "the operator", Role: source.Operator}) || err != nil {
		t.Error(who, err)
	}
	for _, token := range []string{"", "wrong", "expired", control.HashToken("admin")} {
		if who, err := a.SignIn("192.0.2.1:1", token); err == nil || who.Role != source.Nobody {
			t.Errorf("%q: %v %v", token, who, err)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	if who, err := a.Identify(r); err == nil || who.Role != source.Nobody {
		t.Error(who, err)
	}
	r.Header.Set("Authorization", "Bearer viewer")
	if who, err := a.Identify(r); who != (control.Caller{Name: "the viewer", Role: source.Viewer}) || err != nil {
		t.Error(who, err)
	}
}
