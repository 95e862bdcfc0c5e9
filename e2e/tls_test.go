package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// secure starts a gateway that ends TLS, with a certificate of ours.
func secure(t *testing.T, ours *authority, args ...string) *gateway {
	t.Helper()
	cert, key := ours.make("gateway", nil)
	g := serve(t, append([]string{"--tls-cert", cert, "--tls-key", key}, args...)...)
	g.URL = strings.Replace(g.URL, "http:", "https:", 1)
	return g
}

// over returns a client of the versions of HTTP that are wanted.
func over(t *testing.T, c *tls.Config, http2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: c.Clone(), Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// renew replaces the files of a certificate as Kubernetes does: a directory of links into a directory behind a link.
func renew(t *testing.T, dir, version, cert, key string) {
	t.Helper()
	at, link := filepath.Join(dir, version), filepath.Join(dir, "..data")
	err := os.Mkdir(at, 0o700)
	for from, name := range map[string]string{cert: "cert.pem", key: "key.pem"} {
		data, failed := os.ReadFile(from)
		overwrite(t, filepath.Join(at, name), string(data))
		err = errors.Join(err, failed)
		if _, none := os.Lstat(filepath.Join(dir, name)); none != nil {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	if err = errors.Join(err, os.Symlink(at, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
}

// serial returns that of the certificate that the gateway shows to a new connection.
func serial(t *testing.T, g *gateway, c *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", g.Addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
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
	g := serve(t, "--upstream", "sample", "--policy", testkit.File(t, "policy.yaml", wide), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
	client := ours.client(theirs.make("client", nil))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	client.NextProtos = []string{"http/1.1"}
	ask := func() (resumed bool, err error) {
		conn, err := tls.Dial("tcp", g.Addr, client)
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
	testkit.Await(t, "the certificate is renewed", func() bool {
		_, err := ask()
		return err == nil && strings.Contains(g.Logged(), "certificate renewed")
	})
	if resumed, err := ask(); !resumed || err != nil {
		t.Errorf("after a renewal: resumed %v, %v", resumed, err)
	}
	authorityOf(ours)
	testkit.Await(t, "the old authority is not trusted", func() bool {
		_, err := ask()
		return err != nil
	})
}

// Who begins a handshake and does not end it is let go, and has counted as a connection until then.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	g := secure(t, ours, "--upstream", "sample", "--header-timeout", "500ms", "--max-connections-per-address", "2", "--policy", testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: a, key: [client_ip], limit: 100000/day}]\n"))
	held := []net.Conn{dial(t, g, "\x16\x03\x01\x02\x00\x01\x00"), dial(t, g, "")}
	if got := readAll(t, dial(t, g, "")); got != "" {
		t.Errorf("the third connection: %q", got)
	}
	for _, c := range held {
		readAll(t, c) // until the gateway ends it
	}
	testkit.Await(t, "there is room again", func() bool {
		resp, err := over(t, ours.client(), true).Get(g.URL + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
}

// New certificates are shown without a restart, and clients that are served meanwhile notice nothing. A pair
// that is none changes nothing, and is told once.
func TestRenewal(t *testing.T) {
	t.Parallel()
	ours, dir := newAuthority(t), t.TempDir()
	cert, key := ours.make("first", nil)
	renew(t, dir, "..1", cert, key)
	g := serve(t, "--upstream", "sample", "--policy", testkit.File(t, "policy.yaml", wide),
		"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	g.URL = strings.Replace(g.URL, "http:", "https:", 1)
	first := serial(t, g, ours.client())
	var load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer load.Wait()
	defer stop()
	for _, http2 := range []bool{false, true} {
		load.Go(func() { keepAsking(ctx, t, g.URL, func() *http.Client { return over(t, ours.client(), http2) }) })
	}

	cert, key = ours.make("second", nil)
	renew(t, dir, "..2", cert, key)
	g.AwaitNext("the new one is told", func(r record) bool { return r.Msg == "certificate renewed" })
	second := serial(t, g, ours.client())
	if second == first {
		t.Error("the old certificate is shown")
	}
	_, other := ours.make("other", nil)
	bad := testkit.File(t, "bad.pem", "-----BEGIN CERTIFICATE-----\n")
	for version, pair := range map[string][2]string{"..3": {bad, other}, "..4": {cert, other}} {
		renew(t, dir, version, pair[0], pair[1])
		g.AwaitNext("the bad pair is told", func(r record) bool { return strings.HasPrefix(r.Msg, "new certificate refused") })
		if got := serial(t, g, ours.client()); got != second {
			t.Errorf("%s is shown, and not %s", got, second)
		}
	}
	cert, key = ours.make("third", nil)
	renew(t, dir, "..5", cert, key)
	g.AwaitNext("the next one is taken", func(r record) bool { return r.Msg == "certificate renewed" })
	if got := serial(t, g, ours.client()); got == second {
		t.Errorf("%s is still shown", got)
	}
	if n := strings.Count(g.Logged(), "new certificate refused"); n != 2 {
		t.Errorf("told %d times of 2 bad pairs", n)
	}
}

// keepAsking asks by one client after the other, and none may fail.
func keepAsking(ctx context.Context, t *testing.T, url string, client func() *http.Client) {
	for ctx.Err() == nil {
		c := client()
		for i := range 5 {
			resp, err := c.Get(url)
			if err != nil {
				t.Errorf("request %d: %v", i+1, err)
				return
			}
			resp.Body.Close()
		}
		c.CloseIdleConnections()
	}
}
