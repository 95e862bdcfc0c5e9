package adminapi_test

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/adminapi"
)

// A viewer gets no more of a key than what people are to see of it.
func TestViewersGetNoKeys(t *testing.T) {
	s := start(t, func(c *adminapi.Config) {
		c.Tokens, c.Local = roles, false
		c.Find = func(string) (string, bool) { return "per-key/k-42", true }
	})
	id := adminapi.control.OverrideID("per-key", map[string]string{"api_key": "k-42"})
	for _, test := range []struct{ path, hidden string }{
		{"/v1/overrides", "k-42"}, {"/v1/overrides?rule=per-key", "k-42"}, {"/v1/overrides/" + id, "k-42"},
		{"/v1/subjects?id=x", "k-42"}, {"/v1/subjects", "k-7"}, {"/v1/subjects?limit=1", "k-7"},
	} {
		s.token = "viewer"
		if body := string(s.do("GET", test.path, "").want(200).body); strings.Contains(body, test.hidden) {
			t.Errorf("GET %s tells a viewer %s", test.path, body)
		}
	}
	s.do("GET", "/v1/overrides", "").want(200).says(`"shown":"…"`).says("203.0.113.0/24") // which its rule shows whole
	s.token = "operator"
	s.do("GET", "/v1/overrides", "").want(200).says("k-42")
	s.do("GET", "/v1/subjects", "").want(200).says("k-7")
}
