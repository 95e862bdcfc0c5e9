package doors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nginxProgram = "/usr/sbin/nginx"

// nginxMain is what stands around the examples, which are for the http block.
const nginxMain = `
daemon off;
master_process off;
worker_processes 1;
error_log %[1]s/error.log info;
pid %[1]s/pid;
events {}
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    include %[2]s;
}
`

// nginx runs nginx with a configuration for the http block, and waits until it listens on addr.
func nginx(t *testing.T, addr, config string) (url string) {
	t.Helper()
	file := nginxFile(t, config)
	c := command(nginxProgram, "-p", filepath.Dir(file), "-c", file)
	run(t, c, addr, func() string {
		log, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "error.log"))
		return string(log)
	})
	return "http://" + addr
}

// nginxFile writes a whole configuration, in a directory of its own.
func nginxFile(t *testing.T, config string) string {
	t.Helper()
	dir, included := t.TempDir(), write(t, "example.conf", config)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxMain, dir, included), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A 403 of nginx itself stays one, and is told from a refusal.
func TestNginxForbids(t *testing.T) {
	t.Parallel()
	l := limit(t, threeADay, "--auth", "nginx+id")
	url := nginxExample("nginx/auth-request.conf")(t, l.addr, backend(t), "        auth_request /_sluice;", "        auth_request /_sluice;\n        deny all;")
	if got := status(t, http.StatusForbidden, "GET", url+"/", ""); strings.Contains(got.body, "rate_limit") || got.header.Get("Retry-After") != "" {
		t.Errorf("%+v", got)
	}
}

// With --door-tokens a proxy without one of them is refused, and cannot be told from a limiter that
// is misconfigured; clients' own credentials stay theirs.
func TestNginxToken(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("secret"))
	tokens := write(t, "tokens", "edge "+hex.EncodeToString(hash[:])+"\n")
	l := limit(t, "version: 1\nrules: [{name: keys, key: [api_key], missing: refuse, limit: 1/day}]\n", "--auth", "nginx+id", "--door-tokens", tokens)
	start := nginxExample("nginx/auth-request.conf")
	status(t, http.StatusServiceUnavailable, "GET", start(t, l.addr, backend(t))+"/", "", "Authorization", "Bearer k-1", "X-Sluice-Token", "guess")
	l.awaitLog("X-Sluice-Token is not a token that may ask")
	url := start(t, l.addr, backend(t), `# proxy_set_header X-Sluice-Token "…";`, `proxy_set_header X-Sluice-Token "secret";`)
	status(t, http.StatusOK, "GET", url+"/", "", "Authorization", "Bearer k-1")
	status(t, http.StatusTooManyRequests, "GET", url+"/", "", "Authorization", "Bearer k-1")
	status(t, http.StatusOK, "GET", url+"/", "", "Authorization", "Bearer k-2")
}

// run runs a proxy until the test ends, and waits until it listens on addr.
func run(t *testing.T, c *exec.Cmd, addr string, log func() string) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s says:\n%s%s", c.Path, &out, log())
		}
	})
	await(t, c.Path+" listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended:\n%s%s", c.Path, &out, log())
		default:
		}
		return listens(addr)
	})
}
