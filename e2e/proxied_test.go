package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const proxiedPolicy = `
version: 1
trusted_proxies: [127.0.0.1]
lists: {abusers: [127.0.0.66]}
rules:
  - {name: abusers, clients: [abusers], block: true}
  - {name: logins, match: POST /login, key: [client_ip], limit: 3/day, algorithm: sliding_window_log, count: {status: [401]}}
  - {name: priced, match: /priced, key: [client_ip], limit: 1000/day, algorithm: fixed_window, cost: {response_header: X-Cost, estimate: 10, max: 600}}
  - {name: egress, match: /file, key: [client_ip], limit: 1000/day, algorithm: fixed_window, cost: {response_bytes: 1024}}
`

const upstreamPHP = `<?php
switch (strtok($_SERVER['REQUEST_URI'], '?')) {
case '/login':
	if (($_POST['password'] ?? '') !== 'right') http_response_code(401);
	break;
case '/priced':
	header('X-Cost: ' . $_GET['cost']);
	break;
case '/file':
	echo str_repeat('x', (int)$_GET['bytes']);
}
`

const nginxConf = `
daemon off; master_process off; pid nginx.pid; error_log error.log;
events {}
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen %s;
		location / {
			proxy_pass %s;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
	}
}
`

// launch starts a program that listens on an address, and kills it when the test ends.
func launch(t *testing.T, address, name string, args ...string) {
	t.Helper()
	var said strings.Builder
	c := exec.Command(testkit.Program(t, name), args...)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", name, &said)
		}
	})
	redistest.Eventually(t, name+" listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// front is nginx before the gateway before PHP.
type front struct {
	*testing.T
	url string
}

// proxied starts them.
func proxied(t *testing.T) front {
	t.Helper()
	free := func() string { return testkit.Addr(t) }
	php, nginx, dir := free(), free(), t.TempDir()
	launch(t, php, "php", "-n", "-S", php, write(t, "index.php", upstreamPHP))
	g := serve(t, "--upstream", "http://"+php, "--policy", write(t, "policy.yaml", proxiedPolicy))
	launch(t, nginx, "nginx", "-p", dir, "-e", "error.log", "-c", write(t, "nginx.conf", fmt.Sprintf(nginxConf, nginx, g.url)))
	return front{t, "http://" + nginx}
}

// ask sends a request from an address.
func (f front) ask(from, method, path string, form url.Values, header ...string) *http.Response {
	f.Helper()
	r := request(f.T, method, f.url+path, form.Encode(), header...)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	resp, err := (&http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		f.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

const alice, bob, abuser = "127.0.0.2", "127.0.0.3", "127.0.0.66"

// What people put together: nginx in front, which is trusted, and a server that is not in Go behind.
func TestBehindNginxBeforePHP(t *testing.T) {
	t.Parallel()
	f := proxied(t)
	awayFromMidnight(t)
	for name, test := range map[string]func(front){"block": testProxiedBlock, "logins": testProxiedLogins, "costs": testProxiedCosts} {
		t.Run(name, func(t *testing.T) { test(front{t, f.url}) })
	}
}

// Who is on the list is blocked, and nobody else, whatever they claim.
func testProxiedBlock(f front) {
	for _, forged := range []string{alice, abuser} {
		resp := f.ask(abuser, "GET", "/", nil, "X-Forwarded-For", forged)
		if resp.StatusCode != 403 || resp.Header.Get("Content-Type") != "application/problem+json" {
			f.Errorf("blocked: %s %v", resp.Status, resp.Header)
		}
		if resp := f.ask(alice, "GET", "/", nil, "X-Forwarded-For", forged); resp.StatusCode != 200 {
			f.Errorf("not blocked: %s", resp.Status)
		}
	}
}

// Right logins do not count, three wrong ones pass, and the next is refused, a right one too.
func testProxiedLogins(f front) {
	login := func(from, password string, want int) {
		f.Helper()
		if resp := f.ask(from, "POST", "/login", url.Values{"user": {"alice"}, "password": {password}}); resp.StatusCode != want {
			f.Errorf("%s login: %s, want %d", password, resp.Status, want)
		}
	}
	for range 5 {
		login(alice, "right", 200)
	}
	for range 3 {
		login(alice, "wrong", 401)
	}
	login(alice, "wrong", 429)
	login(alice, "right", 429)
	login(bob, "right", 200)
}

// The estimate is charged before, and in the end what PHP says, or the bytes that it sends.
func testProxiedCosts(f front) {
	left := func(path, want string) {
		f.Helper()
		redistest.Eventually(f.T, path+" leaves "+want, func() bool {
			return f.ask(alice, "GET", path, nil).Header.Get("X-RateLimit-Remaining") == want
		})
	}
	resp := f.ask(alice, "GET", "/priced?cost=300", nil)
	if resp.Header.Get("X-Cost") != "300" || resp.Header.Get("X-RateLimit-Remaining") != "990" {
		f.Errorf("what costs 300: %v", resp.Header)
	}
	left("/priced?cost=0", "690")
	f.ask(alice, "GET", "/priced?cost=9999", nil) // 600 is the most
	left("/priced?cost=0", "90")
	f.ask(alice, "GET", "/file?bytes=102401", nil)
	left("/file?bytes=0", "898") // one is the estimate
}
