//go:build long

package python

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Programs make checks without a request, over TLS and with a token. With a wrong token, on_error decides.
func TestLongCalls(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	cert, key := authority.Make("server")
	tokens := testkit.File(t, "tokens", fmt.Sprintf("app %x\n", sha256.Sum256([]byte("right"))))
	g := service(t, "version: 1\nrules: [{name: jobs, key: [api_key], limit: 10/day}]\n",
		"--door-tls-cert", cert, "--door-tls-key", key, "--door-tokens", tokens)
	for token, want := range map[string]string{
		"right": "200 [7], 200 [7], 200 [9], 429 [9]\n200 [9], 200 [8], 200 [9], 200 [8]\n200 [6], 200 [6], 200 [8]",
		"wrong": "the service answered 401",
	} {
		c := python(t, "calls.py", "https://"+g.Check, token)
		c.Env = append(c.Env, "SSL_CERT_FILE="+authority.CA)
		out, err := c.CombinedOutput()
		if !strings.Contains(string(out), want) || (err == nil) != (token == "right") {
			t.Errorf("%s: %v\n%s\nwant %s", token, err, out, want)
		}
	}
}

// With everywhere=False, only functions with a limit make checks.
func TestLongOnly(t *testing.T) {
	t.Parallel()
	needs(t, "starlette", "uvicorn")
	g := service(t, "version: 1\nrules: [{name: users, key: [\"attr:user\"], missing: skip, limit: 1/day}, {name: all, limit: 10/day}]\n")
	url := app(t, "uvicorn", "only_starlette:app", "SLUICE_URL=http://"+g.Check)
	for i, c := range []struct {
		path      string
		status    int
		remaining string
		header    []string
	}{
		{"/open", 200, "", nil},
		{"/api/limited", 200, "9", nil},
		{"/api/limited", 200, "0", []string{"X-User: alice"}},
		{"/api/limited", 429, "0", []string{"X-User: alice"}},
		{"/open", 200, "", []string{"X-User: alice"}},
		{"/api/limited", 200, "7", nil},
	} {
		if got := do(t, "GET", url+c.path, "", c.header...); got.status != c.status || remaining(got) != c.remaining {
			t.Errorf("request %d: %d, %q remain\n%s", i, got.status, remaining(got), got.body)
		}
	}
}

// A cancelled request does not keep its permit in flight.
func TestLongCancelled(t *testing.T) {
	t.Parallel()
	needs(t, "django")
	g := service(t, "version: 1\nrules: [{name: all, key: [client_ip], in_flight: 1}]\n")
	out, err := python(t, "cancelled.py", "http://"+g.Check).CombinedOutput()
	if want := "{'Django': 0, 'ASGI': 0, 'Django in threads': 0, 'WSGI': 0}\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}
}
