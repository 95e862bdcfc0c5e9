package e2e

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// secure starts a gateway that terminates TLS, with a certificate of ours.
func secure(t *testing.T, ours *testkit.Authority, args ...string) *gateway {
	t.Helper()
	cert, key := ours.Make("gateway")
	g := serve(t, append([]string{"--tls-cert", cert, "--tls-key", key}, args...)...)
	g.URL = strings.Replace(g.URL, "http:", "https:", 1)
	return g
}

// over returns a client that uses HTTP/2, or only HTTP/1.1.
func over(t *testing.T, c *tls.Config, http2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: c.Clone(), Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Session tickets remain valid when certificates are renewed, so that clients need no full handshake. If the authority
// of a client is no longer trusted, the client's ticket is rejected.
func TestResumption(t *testing.T) {
	t.Parallel()
	ours, theirs := testkit.NewAuthority(t), testkit.NewAuthority(t)
	cert, key := ours.Make("gateway")
	ca := filepath.Join(t.TempDir(), "clients.pem")
	authorityOf := func(a *testkit.Authority) {
		data, err := os.ReadFile(a.CA)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, ca, string(data))
	}
	authorityOf(theirs)
	g := serve(t, "--upstream", "sample", "--policy", testkit.File(t, "policy.yaml", wide), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
	client := ours.Client(theirs.Make("client"))
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
			_, err = io.ReadAll(conn) // the ticket comes before the response
		}
		return conn.ConnectionState().DidResume, err
	}
	if resumed, err := ask(); resumed || err != nil {
		t.Fatalf("the first connection: resumed %v, %v", resumed, err)
	}
	if resumed, err := ask(); !resumed || err != nil {
		t.Errorf("the second: resumed %v, %v", resumed, err)
	}
	ours.Make("gateway") // replaces the old certificate
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

// A client that does not complete its handshake is disconnected, and counts as a connection until then.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	g := secure(t, ours, "--upstream", "sample", "--header-timeout", "500ms", "--max-connections-per-address", "2", "--policy", testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: a, key: [client_ip], limit: 100000/day}]\n"))
	testkit.Await(t, "one of three connections is refused", func() bool {
		for _, hello := range []string{"\x16\x03\x01\x02\x00\x01\x00", "", ""} {
			defer readAll(t, dial(t, g, hello)) // until the gateway ends it
		}
		// TryMetric may fail: the gateway also closes a connection if no head arrives within --header-timeout.
		refused, err := g.TryMetric(`sluice_connections_refused_total{reason="address"}`)
		return err == nil && refused > 0
	})
	testkit.Await(t, "new connections are accepted again", func() bool {
		resp, err := over(t, ours.Client(), true).Get(g.URL + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
}
