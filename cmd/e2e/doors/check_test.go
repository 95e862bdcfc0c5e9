package doors

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const jobs = `
version: 1
rules:
  - {name: jobs, key: [api_key], limit: 1/second burst 2}
  - {name: held, key: [client_ip], limit: 5/hour}
`

const question = `{"rule": "held", "key": {"client_ip": "192.0.2.1"}}`

// peek asks a limiter, and returns the status.
func peek(t *testing.T, l *limiter, token string) int {
	t.Helper()
	return ask(t, "POST", "http://"+l.addr+"/v1/peek", question, "Content-Type", "application/json", "Authorization", "Bearer "+token).status
}

// Programs of other languages that ask before they work do all of it, and are refused only once for
// each piece that has to wait: then they wait for as long as they are told.
func TestClientsByJSON(t *testing.T) {
	t.Parallel()
	for _, program := range [][]string{{"python3", "python/json_client.py"}, {"node", "node/json_client.mjs"}} {
		t.Run(program[0], func(t *testing.T) {
			t.Parallel()
			l := limit(t, jobs, "--door-tokens", testkit.File(t, "tokens", "worker "+hashed("secret")+"\n"))
			path := filepath.Join("..", "..", "..", "examples", "clients", program[1])
			c := command(program[0], path, l.addr, "4")
			c.Env = append(c.Env, "DOOR_TOKEN=secret")
			began := time.Now()
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			// A client that is as slow as the limit does not have to wait.
			waits, slow := bytes.Count(out, []byte("waiting 1 s")), time.Since(began) > 2*time.Second
			if !bytes.HasSuffix(out, []byte("work 4\n")) || waits == 0 && !slow || waits > 2 {
				t.Errorf("%s", out)
			}
			c = command(program[0], path, l.addr, "1")
			if out, err := c.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("401")) {
				t.Errorf("without a token: %v\n%s", err, out)
			}
		})
	}
}

func hashed(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

// The file of tokens is followed, and a slip in it turns nobody away.
func TestDoorTokens(t *testing.T) {
	t.Parallel()
	path := testkit.File(t, "tokens", "# who may ask\nold "+hashed("old")+" 2020-01-31\nnew "+hashed("new")+" 2127-01-31\n")
	l := limit(t, jobs, "--door-tokens", path)
	asked := func(token string) int { return peek(t, l, token) }
	for token, want := range map[string]int{"": 401, "old": 401, "other": 401, "new": 200} {
		if got := asked(token); got != want {
			t.Errorf("with %q: %d, want %d", token, got, want)
		}
	}
	replace := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace("newer secret\n")
	testkit.Await(t, "the slip is logged", func() bool { asked("new"); return strings.Contains(l.logged(), "the tokens that it had go on") })
	if asked("new") != 200 {
		t.Error("a slip in the file has turned away who may ask")
	}
	if strings.Contains(l.logged(), "secret") {
		t.Error("the log has what is in the file")
	}
	replace("newer " + hashed("newer") + "\n")
	testkit.Await(t, "the new token is known", func() bool { return asked("newer") == 200 })
	if asked("new") != 401 {
		t.Error("a token that has gone lets in")
	}
}

// HTTP/2 is spoken with TLS and without, and /healthz needs no token.
func TestCheckSpeaksHTTP2(t *testing.T) {
	t.Parallel()
	certs := redistest.NewCerts(t)
	pem, err := os.ReadFile(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	encrypted := limit(t, jobs, "--door-tls-cert", certs.Cert, "--door-tls-key", certs.Key, "--door-tokens", testkit.File(t, "tokens", "a "+hashed("secret")+"\n"))
	clear := &http.Transport{Protocols: new(http.Protocols)}
	clear.Protocols.SetUnencryptedHTTP2(true)
	for url, transport := range map[string]*http.Transport{
		"https://" + encrypted.addr:     {TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true},
		"http://" + limit(t, jobs).addr: clear,
	} {
		defer transport.CloseIdleConnections()
		r, err := http.NewRequest("POST", url+"/v1/peek", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer secret"}}
		health, err := http.NewRequest("GET", url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*http.Request{r, health} {
			response, err := (&http.Client{Transport: transport}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
				t.Errorf("%s: %s by %s", r.URL, response.Status, response.Proto)
			}
		}
	}
}

// Clients that stop in the middle, or announce what they never send, are let go, and others are
// answered all the while.
func TestSlowAndOddClients(t *testing.T) {
	t.Parallel()
	l := limit(t, jobs, "--header-timeout", "1s")
	const head = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct{ sent, want string }{
		"half a head":   {head, ""},
		"half a body":   {head + "Content-Length: 100\r\n\r\n{\"rule\":", "408"},
		"half a chunk":  {head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"ru", "408"},
		"a huge length": {head + "Content-Length: 9000000000000000000\r\n\r\n{", "413"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", l.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.sent); err != nil {
				t.Fatal(err)
			}
			if status := peek(t, l, ""); status != 200 {
				t.Errorf("another client is answered %d meanwhile", status)
			}
			_ = conn.SetReadDeadline(time.Now().Add(testkit.Patience))
			answer, err := io.ReadAll(conn) // until it is let go
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(answer), strings.TrimSpace("HTTP/1.1 "+c.want)) && c.want != "" {
				t.Errorf("answered %q, want %s", answer, c.want)
			}
		})
	}
}
