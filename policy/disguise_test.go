package policy

import (
	"strings"
	"testing"
)

func TestNothingSlipsPast(t *testing.T) {
	for _, p := range []string{
		"/auth/login", "//auth/login", "/auth//login", "/auth/./login", "/x/../auth/login", "/auth/login/", "/auth/login//",
		"/auth%2flogin", "/auth%2Flogin", "/auth%252flogin", "/auth/login;x=1", "/auth;a=b/login", "/auth/login;", "/auth/login%3bx",
		"/auth/x/%2e%2e/login", "/auth/x/.%2e/login", "/auth/%2e/login", "/x/%252e%252e/auth/login", "/%61uth/log%69n", "/auth/lo%2567in",
		`/auth\login`, "/auth%5clogin", "/auth%255clogin", "/auth/login%253bx", "/auth%5Clogin", `/x\..\auth/login`, "/x/..;/auth/login", "/x/..;a=b/auth/login", "/auth/.;/login",
		"/auth//../login", "/auth/login/x/..", "/auth/login/.", "/auth/login%00", "/auth/login%00.html", "/auth/login#x", "/auth/login%23x",
		"/auth/login?x", "/auth/login%3fx=1", "/auth/login;x%2fy", `/auth/login;x\y`, "/auth/login;x%5cy", "/auth;x%2flogin",
		"/auth%2flogin/x%2fy/..", "/../auth/login", "//h/auth/login", "///h/auth/login", "//user@h:80/auth/login", `/\h/auth/login`, `\\h\auth\login`[1:], "/%2fh/auth/login",
		"/auth/login.json", "/auth/login.", "/auth/login%2ejson", "/auth/login.json/",
		"/auth/login%0a", "/auth/login%09", "/auth%25%32%66login", "/auth%c0%aflogin", "/%u0061uth/login", "/./auth/login", "auth/login", "http://evil.example/auth/login",
		"/auth/login" + strings.Repeat("/", 10_000), "/auth%2flogin;" + strings.Repeat("x", 1<<20), "/" + strings.Repeat("x/../", 10_000) + "auth/login",
		"/auth%2flogin%2f" + strings.Repeat("%2e%2f", 20_000),
	} {
		some, _ := matches(t, "POST /auth/login", "POST", "", p, false)
		if !some {
			t.Errorf("%.60q slips past", p)
		}
	}
	// Below a subtree, for a server that leaves dots alone.
	if some, _ := matches(t, "/api/search/{rest...}", "GET", "", "/api/search/../x", false); !some {
		t.Error("/api/search/../x slips past")
	}
}

func TestOthersAreNotHit(t *testing.T) {
	for _, p := range []string{
		"/auth", "/auth/logins", "/auth/login/x", "/xauth/login", "/api/auth/login", "/api/v4/projects/auth%2Flogin", "/files/auth%2Flogin",
		"/auth/..%2f..%2flogin", "/AUTH/login", "/auth.json/login", "/auth/.login", "/auth%2525252flogin", "/wiki/C%23", "/auth/lo%2fgin",
	} {
		if some, _ := matches(t, "/auth/login", "GET", "", p, false); some {
			t.Errorf("%s is taken for /auth/login", p)
		}
	}
}

func TestNothingHidesInAnExemption(t *testing.T) {
	for _, tt := range []struct{ pattern, path string }{
		{"GET /health", "/health.json"},
		{"/static/", "//static/auth/login"},
		{"/static/", "///static/auth/login"},
		{"/static/", `/\static/auth/login`},
		{"GET /health", "//health"},
		{"GET /health", "/api/search/..%2f..%2fhealth"},
		{"GET /health", "/api/search/..;/..;/health"},
		{"GET /health", `/api/search/..\..\health`},
		{"GET /health", "/api/search/../../health"},
		{"GET /health", "/health%2f..%2fapi%2fsearch"},
		{"GET /health", "/health;/../api/search"},
		{"GET /health", "/health%23/../api"},
		{"/static/", "/static/..%2fapi"},
		{"/static/", "/static/%2e%2e/api"},
		{"/static/", `/static/..\api`},
		{"/static/", "/static/%252e%252e/api"},
		{"/static/", "/static/..;/api"},
		{"/static/", "/static/x%2fy%2f..%2f..%2f..%2fapi;" + strings.Repeat("x", 1<<17)},
	} {
		if _, all := matches(t, tt.pattern, "GET", "", tt.path, false); all {
			t.Errorf("%.60q is exempt by %s", tt.path, tt.pattern)
		}
	}
	for _, p := range []string{"/health", "/health/", "/health//", "/%68ealth"} {
		if _, all := matches(t, "GET /health", "GET", "", p, false); !all {
			t.Errorf("%s is not exempt", p)
		}
	}
}
