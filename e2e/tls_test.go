package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// secure starts a gateway that ends TLS, with a certificate of ours.
func secure(t *testing.T, ours *authority, args ...string) *gateway {
	t.Helper()
	cert, key := ours.make("gateway", nil)
	g := serve(t, append([]string{"--tls-cert", cert, "--tls-key", key}, args...)...)
	g.url = strings.Replace(g.url, "http:", "https:", 1)
	return g
}

// client returns how a client of the authority's speaks TLS, with a certificate if it is given.
func (a *authority) client(files ...string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if len(files) == 2 {
		pair, err := tls.LoadX509KeyPair(files[0], files[1])
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// over returns a client of the versions of HTTP that are wanted.
func over(t *testing.T, c *tls.Config, http2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: c.Clone(), Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// curl speaks both versions of HTTP to the gateway, and what the upstream gets is HTTP/1.1 from a
// client of https.
func TestTLS(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %s", r.Proto, r.Method, r.Header.Get("X-Forwarded-Proto"), r.Header.Get("Cookie"), body)
	}))
	t.Cleanup(upstream.Close)
	ours := newAuthority(t)
	g := secure(t, ours, "--upstream", upstream.URL, "--policy", write(t, "policy.yaml", wide))
	for _, version := range []string{"--http1.1", "--http2"} {
		out, err := exec.CommandContext(t.Context(), testkit.Program(t, "curl"), "-sS", version, "--cacert", ours.ca, "-H", "Cookie: a=1",
			"--data", "body", "-w", " %{http_version} %header{x-ratelimit-limit}", g.url+"/").CombinedOutput()
		want := fmt.Sprintf("HTTP/1.1 POST https a=1 body %s 100000", strings.TrimSuffix(strings.TrimPrefix(version, "--http"), ".0"))
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, want %q, %v", version, out, want, err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), testkit.Program(t, "curl"), "-sS", g.url).CombinedOutput(); err == nil {
		t.Errorf("a client that does not know the authority: %s", out)
	}
	if got := readAll(t, dial(t, g, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")); !strings.Contains(got, "400") {
		t.Errorf("a client without TLS: %q", got)
	}
}

// With --tls-client-ca only clients of that authority get in, by either version of HTTP.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	g := secure(t, ours, "--tls-client-ca", ours.ca, "--upstream", "sample")
	for _, http2 := range []bool{false, true} {
		for _, test := range []struct {
			name   string
			config *tls.Config
			ok     bool
		}{{"none", ours.client(), false}, {"ours", ours.client(ours.make("client", nil)), true}, {"theirs", ours.client(theirs.make("client", nil)), false}} {
			resp, err := over(t, test.config, http2).Get(g.url + "/")
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != test.ok {
				t.Errorf("%s, HTTP/2 %v: %v", test.name, http2, err)
			}
		}
	}
}

// renewal is a way to replace the files of a certificate.
func renewals(dir string) map[string]func(cert, key string) error {
	replace := func(from, to string) error {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(to+".new", data, 0o600), os.Rename(to+".new", to))
	}
	generation := 0
	return map[string]func(cert, key string) error{
		"rename": func(cert, key string) error {
			return errors.Join(replace(cert, filepath.Join(dir, "cert.pem")), replace(key, filepath.Join(dir, "key.pem")))
		},
		// As Kubernetes does: a directory of links into a directory behind a link.
		"links": func(cert, key string) error {
			generation++
			at := filepath.Join(dir, fmt.Sprintf("..%d", generation))
			err := os.Mkdir(at, 0o700)
			for from, name := range map[string]string{cert: "cert.pem", key: "key.pem"} {
				err = errors.Join(err, replace(from, filepath.Join(at, name)))
				if generation == 1 {
					err = errors.Join(err, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
				}
			}
			link := filepath.Join(dir, "..data")
			return errors.Join(err, os.Symlink(at, link+".new"), os.Rename(link+".new", link))
		},
	}
}

// serial returns that of the certificate that the gateway shows to a new connection.
func serial(t *testing.T, g *gateway, c *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", g.addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// New certificates are shown without a restart, however their files are replaced, and clients
// that are served meanwhile notice nothing. A pair that is none changes nothing, and is told once.
func TestRenewal(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"rename", "links"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			ours, dir := newAuthority(t), t.TempDir()
			renew := renewals(dir)[way]
			if err := renew(ours.make("first", nil)); err != nil {
				t.Fatal(err)
			}
			cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
			g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", wide), "--tls-cert", cert, "--tls-key", key)
			g.url = strings.Replace(g.url, "http:", "https:", 1)
			client := ours.client()
			first := serial(t, g, client)

			var load sync.WaitGroup
			var failed atomic.Pointer[error]
			ctx, stop := context.WithCancel(t.Context())
			defer load.Wait()
			defer stop()
			for _, http2 := range []bool{false, true} {
				load.Go(func() {
					for ctx.Err() == nil {
						c := over(t, client, http2)
						for i := range 5 {
							r, _ := http.NewRequest("GET", g.url+"/", nil)
							resp, err := c.Do(r)
							if err != nil {
								err = fmt.Errorf("HTTP/2 %v, request %d: %w", http2, i, err)
								failed.Store(&err)
								return
							}
							resp.Body.Close()
						}
						c.CloseIdleConnections()
					}
				})
			}
			if err := renew(ours.make("second", nil)); err != nil {
				t.Fatal(err)
			}
			second := first
			g.eventually(t, "the new certificate is shown", func() bool {
				second = serial(t, g, client)
				return second != first
			})
			g.await("it is told", func(r record) bool { return r.Msg == "certificate renewed" })

			_, other := ours.make("other", nil)
			bad := filepath.Join(dir, "..bad.pem")
			overwrite(t, bad, "-----BEGIN CERTIFICATE-----\n")
			for _, pair := range [][2]string{{bad, other}, {filepath.Join(ours.dir, "second.pem"), other}} {
				g.forget()
				if err := renew(pair[0], pair[1]); err != nil {
					t.Fatal(err)
				}
				g.await("the bad pair is told", func(r record) bool { return strings.HasPrefix(r.Msg, "new certificate refused") })
				if got := serial(t, g, client); got != second {
					t.Errorf("%s is shown, and not %s", got, second)
				}
			}
			g.forget()
			if err := renew(ours.make("third", nil)); err != nil {
				t.Fatal(err)
			}
			g.await("the next one is taken", func(r record) bool { return r.Msg == "certificate renewed" })
			if got := serial(t, g, client); got == second {
				t.Errorf("%s is still shown", got)
			}
			stop()
			load.Wait()
			if err := failed.Load(); err != nil {
				t.Errorf("a request failed: %v", *err)
			}
			if n := strings.Count(g.log(), "new certificate refused"); n != 2 {
				t.Errorf("told %d times of 2 bad pairs", n)
			}
		})
	}
}

// Tickets go on being good while certificates are renewed, so that clients come back without a
// whole handshake. One of a client whose authority is no longer trusted is not.
func TestResumption(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.make("gateway", nil)
	ca := filepath.Join(t.TempDir(), "clients.pem")
	authorityOf := func(a *authority) {
		data, err := os.ReadFile(a.ca)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, ca, string(data))
	}
	authorityOf(theirs)
	g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", wide), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
	client := ours.client(theirs.make("client", nil))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	client.NextProtos = []string{"http/1.1"}
	ask := func() (resumed bool, err error) {
		conn, err := tls.Dial("tcp", g.addr, client)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if err == nil {
			_, err = io.ReadAll(conn) // the ticket comes first
		}
		return conn.ConnectionState().DidResume, err
	}
	if resumed, err := ask(); resumed || err != nil {
		t.Fatalf("the first connection: resumed %v, %v", resumed, err)
	}
	if resumed, err := ask(); !resumed || err != nil {
		t.Errorf("the second: resumed %v, %v", resumed, err)
	}
	ours.make("gateway", nil) // in place of the old one
	g.eventually(t, "the certificate is renewed", func() bool {
		_, err := ask()
		return err == nil && strings.Contains(g.log(), "certificate renewed")
	})
	if resumed, err := ask(); !resumed || err != nil {
		t.Errorf("after a renewal: resumed %v, %v", resumed, err)
	}
	authorityOf(ours)
	g.eventually(t, "the old authority is not trusted", func() bool {
		_, err := ask()
		return err != nil
	})
}

// Who begins a handshake and does not end it is let go, and has counted as a connection until then.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	g := secure(t, ours, "--upstream", "sample", "--header-timeout", "500ms", "--max-connections-per-address", "2", "--policy", write(t, "policy.yaml", "version: 1\nrules: [{name: a, key: [client_ip], limit: 100000/day}]\n"))
	held := []net.Conn{dial(t, g, "\x16\x03\x01\x02\x00\x01\x00"), dial(t, g, "")}
	if got := readAll(t, dial(t, g, "")); got != "" {
		t.Errorf("the third connection: %q", got)
	}
	for _, c := range held {
		readAll(t, c) // until the gateway ends it
	}
	g.eventually(t, "there is room again", func() bool {
		resp, err := over(t, ours.client(), true).Get(g.url + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
}

const byFingerprint = `
version: 1
rules:
  - {name: programs, key: [tls_fingerprint], limit: 2/day, missing: skip}
`

// Programs are told apart by how they speak TLS, whatever they say of themselves.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	path := write(t, "policy.yaml", byFingerprint)
	g := secure(t, ours, "--upstream", named(t, "here"), "--policy", path)
	curl := func(args ...string) string {
		args = append([]string{"-sS", "-o", os.DevNull, "-w", "%{http_code}", "--cacert", ours.ca}, args...)
		out, err := exec.CommandContext(t.Context(), testkit.Program(t, "curl"), append(args, g.url+"/")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return string(out)
	}
	var got []string
	for _, args := range [][]string{{}, {"-A", "another"}, {"-H", "X-Api-Key: new"}, {"--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"}} {
		got = append(got, curl(args...))
	}
	resp, err := over(t, ours.client(), true).Get(g.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	got = append(got, fmt.Sprint(resp.StatusCode))
	if want := []string{"200", "200", "429", "200", "200"}; !slices.Equal(got, want) {
		t.Errorf("curl twice, curl as another, with other ciphers, Go: %v, want %v", got, want)
	}
}

// A policy that counts by what the gateway does not see is refused, at the start and later.
func TestFingerprintsWithoutTLS(t *testing.T) {
	t.Parallel()
	path := write(t, "policy.yaml", byFingerprint)
	if code, stderr := run(t, "serve", "--upstream", "sample", "--policy", path); code != 1 || !strings.Contains(stderr, `rule "programs": the rule counts by tls_fingerprint, and the gateway ends no TLS; give --tls-cert`) {
		t.Errorf("%d %s", code, stderr)
	}
	later := write(t, "later.yaml", limited(7))
	g := serve(t, "--upstream", "sample", "--policy", later)
	overwrite(t, later, byFingerprint)
	g.await("it is refused", refused)
	wantInForce(t, g, 7)
}

// named is an upstream that says who it is and for which host it was asked.
func named(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s%s", name, r.Host, r.URL.Path) }))
	t.Cleanup(s.Close)
	return s.URL
}

// Each host has its upstream, rules see the host, and what is for none of them gets 421.
func TestUpstreamsByHost(t *testing.T) {
	t.Parallel()
	policy := write(t, "policy.yaml", "version: 1\nrules: [{name: a, hosts: [api.example.com], key: [const:all], limit: 5/day}]\n")
	hosts := []string{"--policy", policy, "--upstream", "API.example.com=" + named(t, "api"), "--upstream", "www.example.com=" + named(t, "www") + "/site,[2001:DB8::1]=" + named(t, "six")}
	ask := func(g *gateway, host string) string {
		r := request(t, "GET", g.url+"/x", "")
		r.Host = host
		resp, body := do(t, r)
		if resp.StatusCode != 200 {
			return fmt.Sprint(resp.StatusCode)
		}
		return body
	}
	only := serve(t, hosts...)
	with := serve(t, append(hosts, "--upstream", named(t, "rest"))...)
	for host, want := range map[string][2]string{
		"api.example.com":      {"api api.example.com/x"},
		"Api.Example.COM:8080": {"api Api.Example.COM:8080/x"},
		"api.example.com.":     {"api api.example.com./x"},
		"www.example.com":      {"www www.example.com/site/x"},
		"[2001:db8:0::1]:80":   {"six [2001:db8:0::1]:80/x"},
		"example.com":          {"421", "rest example.com/x"},
		"x.api.example.com":    {"421", "rest x.api.example.com/x"},
		"127.0.0.1":            {"421", "rest 127.0.0.1/x"},
	} {
		if want[1] == "" {
			want[1] = want[0]
		}
		if got := [2]string{ask(only, host), ask(with, host)}; got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	for range 2 { // three were for the host
		ask(only, "api.example.com")
	}
	if got := ask(only, "api.example.com:1"); got != "429" {
		t.Errorf("the rule does not see the host: %s", got)
	}
}

// An https upstream is held against --upstream-ca.
func TestUpstreamCA(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	pair, err := tls.LoadX509KeyPair(ours.make("upstream", nil))
	if err != nil {
		t.Fatal(err)
	}
	upstream.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	policy := write(t, "policy.yaml", wide)
	for _, test := range []struct {
		args []string
		want string
	}{{[]string{"--upstream-ca", ours.ca}, "200 HTTP/2.0"}, {[]string{"--upstream-ca", newAuthority(t).ca}, "502"}, {nil, "502"}} {
		g := serve(t, append(test.args, "--policy", policy, "--upstream", upstream.URL)...)
		if code, body := get(t, g.url+"/"); !strings.HasPrefix(fmt.Sprint(code, " ", body), test.want) {
			t.Errorf("%q: %d %s, want %s", test.args, code, body, test.want)
		}
	}
	if code, stderr := run(t, "serve", "--upstream", upstream.URL, "--policy", policy, "--upstream-ca", policy); code != 1 || !strings.Contains(stderr, "--upstream-ca: "+policy+" has no certificate in PEM") {
		t.Errorf("%d %s", code, stderr)
	}
}
