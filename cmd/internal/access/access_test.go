package access_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// roles returns a token for each role, which is the name of the role, and an expired token.
func roles() ([]source.TokenRow, error) {
	all := []source.TokenRow{{Name: "late", Hash: source.HashToken("expired"), Role: source.Admin, Until: time.Now().Add(-time.Second).Format(time.RFC3339)}}
	for _, r := range []source.Role{source.Viewer, source.Operator, source.Admin} {
		all = append(all, source.TokenRow{Name: "the " + r.String(), Hash: source.HashToken(r.String()), Role: r, Until: time.Now().Add(time.Hour).Format(time.RFC3339)})
	}
	return all, nil
}

func TestSignIn(t *testing.T) {
	a := &access.Access{Tokens: roles}
	if who, err := a.SignIn("192.0.2.1:1", " operator "); who != (control.Caller{Name: "the operator", Role: source.Operator}) || err != nil {
		t.Error(who, err)
	}
	for _, token := range []string{"", "wrong", "expired", source.HashToken("admin").String()} {
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
