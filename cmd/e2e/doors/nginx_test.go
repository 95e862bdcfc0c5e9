package doors

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// nginx runs nginx with a configuration for the http block, and waits until it listens on addr.
func nginx(t *testing.T, addr, config string) (url string) {
	t.Helper()
	file := nginxFile(t, config)
	testkit.Launch(t, command(testkit.Program(t, "nginx"), "-p", filepath.Dir(file), "-c", file), addr)
	return "http://" + addr
}

// nginxFile writes a complete configuration, in a new directory.
func nginxFile(t *testing.T, config string) string {
	t.Helper()
	around, err := os.ReadFile("testdata/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	example := testkit.File(t, "example.conf", config)
	return testkit.File(t, "nginx.conf", strings.NewReplacer("DIR", t.TempDir(), "EXAMPLE", example).Replace(string(around)))
}

// A 403 that nginx itself sends is not taken for a denial.
func TestNginxForbids(t *testing.T) {
	t.Parallel()
	l := limit(t, threeADay, "--auth", "nginx+id")
	url := nginxExample("nginx/auth-request.conf")(t, l.Check, backend(t), "        auth_request /_sluice;", "        auth_request /_sluice;\n        deny all;")
	if got := status(t, http.StatusForbidden, "GET", url+"/", ""); strings.Contains(got.body, "rate_limit") || got.header.Get("Retry-After") != "" {
		t.Errorf("%+v", got)
	}
}

// With --door-tokens, requests through a proxy without a valid token get the same 503 as with a misconfigured limiter.
// The credentials of clients remain their API keys.
func TestNginxToken(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("secret"))
	tokens := testkit.File(t, "tokens", "edge "+hex.EncodeToString(hash[:])+"\n")
	l := limit(t, "version: 1\nrules: [{name: keys, key: [api_key], missing: refuse, limit: 1/day}]\n", "--auth", "nginx+id", "--door-tokens", tokens)
	start := nginxExample("nginx/auth-request.conf")
	status(t, http.StatusServiceUnavailable, "GET", start(t, l.Check, backend(t))+"/", "", "Authorization", "Bearer k-1", "X-Sluice-Token", "guess")
	l.Await("the guess is logged", func(r testkit.Record) bool { return strings.Contains(r.Text, "X-Sluice-Token: unknown token") })
	url := start(t, l.Check, backend(t), `# proxy_set_header X-Sluice-Token "…";`, `proxy_set_header X-Sluice-Token "secret";`)
	status(t, http.StatusOK, "GET", url+"/", "", "Authorization", "Bearer k-1")
	status(t, http.StatusTooManyRequests, "GET", url+"/", "", "Authorization", "Bearer k-1")
	status(t, http.StatusOK, "GET", url+"/", "", "Authorization", "Bearer k-2")
}

// With the configuration of docs/keys.md, nginx sends logins through the gateway, which sees whether they fail.
func TestNginxLogins(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "keys.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no %s", pattern)
		}
		return string(m[1])
	}
	policy := strings.Replace(block("(?s)```yaml\n([^`]*login-name[^`]*)```"), "version: 1\n", "version: 1\ntrusted_proxies: [127.0.0.1]\n", 1)
	location := block("(?s)```nginx\n([^`]*)```")
	args := strings.Fields(block(`(?m)^sluice serve --policy api.yaml (.*)$`))

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "correct horse" {
			http.Error(w, "no", http.StatusUnauthorized)
		}
	}))
	t.Cleanup(api.Close)
	backend, gateway := api.Listener.Addr().String(), testkit.Addr(t)
	here := strings.NewReplacer("127.0.0.1:8080", gateway, "127.0.0.1:8081", "127.0.0.1:0", "127.0.0.1:3000", backend)
	for i := range args {
		args[i] = here.Replace(args[i])
	}
	l := limit(t, policy, args...)
	url := nginxExample("nginx/accel.conf")(t, l.Check, backend, "    location / {", here.Replace(location)+"\n    location / {")

	login := func(times int, from, path, password string, want int) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}}
		defer client.CloseIdleConnections()
		for range times {
			resp, err := client.PostForm(url+path, map[string][]string{"username": {"alice"}, "password": {password}})
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s from %s with %q: %d, want %d", path, from, password, resp.StatusCode, want)
			}
		}
	}
	login(10, "127.0.0.2", "/login", "correct horse", http.StatusOK) // correct passwords are never denied
	login(5, "127.0.0.3", "/login", "guess", http.StatusUnauthorized)
	login(1, "127.0.0.3", "/login", "guess", http.StatusTooManyRequests)
	login(1, "127.0.0.3", "/login/", "guess", http.StatusTooManyRequests)
	login(1, "127.0.0.2", "/login", "correct horse", http.StatusOK)
	login(5, "127.0.0.4", "/login/", "correct horse", http.StatusOK) // the gateway does not see that these are correct
	login(1, "127.0.0.4", "/login/", "correct horse", http.StatusTooManyRequests)
}
