package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
)

// HTTP/2 has a field of its own for the host, so a path that names a host is rejected.
func TestTargetsOverHTTP2(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/x": 200, "http://b/x": 400, "a:http://b/x": 400, "*": 400} {
		r := httptest.NewRequest("GET", path, nil)
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		if w := recorded(Policy(policytest.Engine(t, layers))(things), r); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// A path that http.StripPrefix has shortened is not rejected.
func TestTargetBehindStripPrefix(t *testing.T) {
	t.Parallel()
	h := http.StripPrefix("/api/", Policy(policytest.Engine(t, layers))(things))
	for _, path := range []string{"/api/", "/api/other", "/api/*"} {
		if w := recorded(h, httptest.NewRequest("GET", path, nil)); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
