package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// inBetween starts a proxy from listen to upstream, in a separate process.
type inBetween func(dir, listen, upstream string) *exec.Cmd

// binDir is the environment variable with the directory of the gateways that were built for child processes.
const binDir = "BENCH_BIN"

const (
	bareProxy   = "httputil.ReverseProxy with a buffer pool"
	sluiceProxy = "sluice serve, three rules"
	unseenProxy = "sluice serve, three rules, --telemetry=false"
	nginxProxy  = "nginx, three limit_req"
	gateway     = "gateway: 16 callers"
	seenGateway = "gateway, counted or not: 16 callers"
)

func gatewayWorks(s setting) []work {
	all := []contender{
		{bareProxy, floor, inBetween(standardProxy("pooled"))},
		{"httputil.ReverseProxy without a pool", floor, inBetween(standardProxy("plain"))},
		{sluiceProxy, ours, inBetween(sluiceGateway)},
		{nginxProxy, rival, inBetween(nginxGateway)},
		{"HAProxy, three stick tables", rival, inBetween(haproxyGateway)},
	}
	if !s.quick {
		all = append(all,
			contender{"caddy", rival, inBetween(caddyGateway(false))},
			contender{"caddy with rate_limit, three zones", rival, inBetween(caddyGateway(true))})
	}
	cols := []string{"proxy CPU µs", "per second", "p50 µs", "p99 µs"}
	about := "`GET` of 43 bytes through a proxy in a separate process; three of four rules match"
	return []work{
		{gateway, about, all, passing(16), cols},
		// These two are measured without the others, because their ratio is so near to 1 that other contenders on
		// the machine would disturb it.
		{seenGateway, about, []contender{
			{sluiceProxy, ours, inBetween(sluiceGateway)},
			{unseenProxy, other, inBetween(unseenGateway)},
		}, passing(16), cols},
	}
}

// buildGateways builds the gateways that the works need, and returns a function that removes them.
func buildGateways(s setting, works []work) (cleanUp func(), err error) {
	has := func(names ...string) bool {
		return slices.ContainsFunc(works, func(w work) bool { return slices.Contains(names, w.name) })
	}
	asksRatelimit := !s.quick && has(rlsMemory, rlsRedis)
	if !has(gateway, seenGateway, oneStream, manyStreams, jsonDoor, respPiped, respAlone, rlsMemory, rlsRedis, doorsShared) {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	cleanUp = func() { _ = os.RemoveAll(dir) }
	build := func(name, module, pkg string) {
		if err == nil {
			var out []byte
			build := exec.Command("go", "build", "-C", module, "-o", filepath.Join(dir, name), pkg)
			if module != ".." {
				build.Env = append(os.Environ(), "GOWORK=off") // the modules of the rivals are not in a workspace
			}
			out, err = build.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("building %s: %w\n%s", name, err, out)
			}
		}
	}
	build("sluice", "..", "./cmd/sluice")
	if !s.quick && has(gateway) {
		build("caddy", "caddy", ".")
	}
	if asksRatelimit {
		build("ratelimit", "ratelimit", ".")
	}
	if err != nil {
		cleanUp()
		return nil, err
	}
	return cleanUp, os.Setenv(binDir, dir)
}

const gatewayPolicy = `version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 1000000/second, algorithm: sliding_window_counter}
  - {name: per-key, key: ["header:X-API-Key"], missing: skip, limit: 1000000/second burst 1000000}
  - {name: login, match: [POST /auth/login], key: [client_ip], limit: 5/minute}
  - {name: all, limit: 1000000/second}
`

func sluiceGateway(dir, listen, upstream string) *exec.Cmd {
	return serveGateway(gatewayPolicy, dir, listen, upstream)
}

func serveGateway(text, dir, listen, upstream string) *exec.Cmd {
	file := filepath.Join(dir, "policy.yaml")
	must(os.WriteFile(file, []byte(text), 0o600))
	return exec.Command(filepath.Join(os.Getenv(binDir), "sluice"), "serve", "--policy", file, "--proxy", listen, "--admin", "127.0.0.1:0", "--upstream", upstream, "--log-level", "error")
}

// unseenGateway starts the gateway without telemetry.
func unseenGateway(dir, listen, upstream string) *exec.Cmd {
	cmd := sluiceGateway(dir, listen, upstream)
	cmd.Args = append(cmd.Args, "--telemetry=false")
	return cmd
}

// nginxConfig makes nginx serve in a single process.
const nginxConfig = `daemon off; master_process off; pid nginx.pid; error_log stderr crit;
worker_rlimit_nofile 4096;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	keepalive_requests 10000000;
	limit_req_zone $binary_remote_addr zone=address:1m rate=1000000r/s;
	limit_req_zone $http_x_api_key zone=key:1m rate=1000000r/s;
	limit_req_zone all zone=all:1m rate=1000000r/s;
	limit_req_status 429;
	upstream api { server %s; keepalive 64; keepalive_requests 10000000; }
	server {
		listen %s;
		limit_req zone=address burst=1000000 nodelay;
		limit_req zone=key burst=1000000 nodelay;
		limit_req zone=all burst=1000000 nodelay;
		location / {
			proxy_pass http://api;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
	}
}
`

func nginxGateway(dir, listen, upstream string) *exec.Cmd {
	file := filepath.Join(dir, "nginx.conf")
	must(os.WriteFile(file, fmt.Appendf(nil, nginxConfig, strings.TrimPrefix(upstream, "http://"), listen), 0o600))
	return exec.Command(installed("nginx"), "-p", dir, "-e", "stderr", "-c", file)
}

const haproxyConfig = `defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 30s
    option forwardfor
backend address
    stick-table type ip size 1m expire 10s store http_req_rate(1s)
backend key
    stick-table type string len 64 size 1m expire 10s store http_req_rate(1s)
backend all
    stick-table type integer size 1 expire 10s store http_req_rate(1s)
frontend bench
    bind %s
    http-request track-sc0 src table address
    http-request track-sc1 req.hdr(x-api-key) table key
    http-request track-sc2 int(1) table all
    http-request return status 429 if { sc_http_req_rate(0) gt 1000000 } || { sc_http_req_rate(1) gt 1000000 } || { sc_http_req_rate(2) gt 1000000 }
    default_backend api
backend api
    http-reuse always
    server api %s
`

func haproxyGateway(dir, listen, upstream string) *exec.Cmd {
	file := filepath.Join(dir, "haproxy.cfg")
	must(os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, listen, strings.TrimPrefix(upstream, "http://")), 0o600))
	return exec.Command(installed("haproxy"), "-db", "-f", file)
}

// installed returns the path of a server that was installed with the system's packages. It may be in a directory
// that is not in the PATH.
func installed(name string) string {
	if _, err := exec.LookPath(name); err != nil {
		return "/usr/sbin/" + name
	}
	return name
}

const caddyLimits = `{"handler": "rate_limit", "rate_limits": {
  "address": {"key": "{http.request.remote.host}", "window": "1s", "max_events": 1000000},
  "key": {"key": "{http.request.header.X-API-Key}", "window": "1s", "max_events": 1000000},
  "all": {"key": "all", "window": "1s", "max_events": 1000000}}},`

const caddyConfig = `{
"admin": {"disabled": true, "config": {"persist": false}},
"logging": {"logs": {"default": {"level": "ERROR"}}},
"apps": {"http": {"servers": {"bench": {
  "listen": [%q], "automatic_https": {"disable": true},
  "routes": [{"handle": [%s
    {"handler": "reverse_proxy", "upstreams": [{"dial": %q}],
     "transport": {"protocol": "http", "keep_alive": {"max_idle_conns_per_host": 1024}}}]}]}}}}}`

// caddyGateway starts Caddy as a proxy, with limits like our rules if the parameter limits is true.
func caddyGateway(limits bool) func(dir, listen, upstream string) *exec.Cmd {
	return func(dir, listen, upstream string) *exec.Cmd {
		file, handler := filepath.Join(dir, "caddy.json"), ""
		if limits {
			handler = caddyLimits
		}
		must(os.WriteFile(file, fmt.Appendf(nil, caddyConfig, listen, handler, strings.TrimPrefix(upstream, "http://")), 0o600))
		cmd := exec.Command(filepath.Join(os.Getenv(binDir), "caddy"), "run", "--config", file)
		cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		return cmd
	}
}

// standardProxy starts this program as a floor.
func standardProxy(kind string) func(dir, listen, upstream string) *exec.Cmd {
	return func(_, listen, upstream string) *exec.Cmd {
		return exec.Command(os.Args[0], "-reverse-proxy", listen, upstream, kind)
	}
}

// reverseProxy is the floor: the proxy of the standard library without limits, with a transport that keeps enough
// connections. A pool of buffers halves its cost.
func reverseProxy(listen, upstream string, pooled bool) error {
	u, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	p := &httputil.ReverseProxy{Transport: t, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.SetXForwarded()
	}}
	if pooled {
		p.BufferPool = new(buffers)
	}
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 { // otherwise the server may close the body while the transport looks for the body's end
			must(http.NewResponseController(w).EnableFullDuplex())
		}
		p.ServeHTTP(w, r)
	}))
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buf[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }

// startProxy starts a proxy in a separate process.
func startProxy(in inBetween, upstream string) (*server, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	listen := freeAddress()
	s := &server{cmd: in(dir, listen, upstream), addr: listen, dir: dir}
	s.cmd.Stderr = os.Stderr
	return s, s.start()
}

// passing measures the requests of a number of callers through a proxy.
func passing(callers int) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"users":[{"name":"alice"},{"name":"bob"}]}`)
		}))
		defer upstream.Close()
		s, err := startProxy(c.start.(inBetween), upstream.URL)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		load(callers, gatewayBudget/4, s.addr)
		before, start := s.cpu(), time.Now()
		took, fields := load(callers, gatewayBudget, s.addr)
		wall, used := time.Since(start), s.cpu()-before
		if len(took) < 1000 || fields != (c.role == ours || c.role == other) {
			return nil, fmt.Errorf("%d answers came; rate limit fields in the last of them: %t", len(took), fields)
		}
		slices.Sort(took)
		n := float64(len(took))
		return sample{
			"proxy CPU µs": float64(used) / 1000 / n,
			"per second":   n / wall.Seconds(),
			"p50 µs":       float64(took[len(took)/2]) / 1000,
			"p99 µs":       float64(took[len(took)*99/100]) / 1000,
		}, nil
	}
}

const gatewayBudget = 2 * time.Second

// load sends requests over persistent connections, and reads the answers. The result fields reports whether the
// last answers had rate limit fields.
func load(callers int, d time.Duration, addr string) (took []time.Duration, fields bool) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for range callers {
		wg.Go(func() {
			mine, f := caller(ctx, addr)
			mu.Lock()
			defer mu.Unlock()
			took, fields = append(took, mine...), f
		})
	}
	wg.Wait()
	return took, fields
}

// caller sends requests over one connection, and costs less than net/http's client.
func caller(ctx context.Context, addr string) (took []time.Duration, fields bool) {
	c, err := net.Dial("tcp", addr)
	must(err)
	defer c.Close()
	r := bufio.NewReader(c)
	request := []byte("GET /api/users HTTP/1.1\r\nHost: " + addr + "\r\nX-API-Key: k1\r\n\r\n")
	for ctx.Err() == nil {
		start := time.Now()
		_, err := c.Write(request)
		must(err)
		res, err := http.ReadResponse(r, nil)
		must(err)
		_, err = io.Copy(io.Discard, res.Body)
		must(err)
		if res.StatusCode != http.StatusOK {
			panic(res.Status)
		}
		took, fields = append(took, time.Since(start)), strings.Contains(strings.Join(res.Header["Ratelimit"], ""), "per-address")
	}
	return took, fields
}
