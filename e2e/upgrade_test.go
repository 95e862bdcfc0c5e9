package e2e

//lint:file-ignore SA1019 upstreams still take HTTP/2 by an upgrade, and nothing newer does

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

// wsKey and wsAccept are the example of RFC 6455, section 1.3.
const (
	wsKey     = "dGhlIHNhbXBsZSBub25jZQ=="
	wsAccept  = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	handshake = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + wsKey + "\r\n"
)

// An upstream that takes HTTP/2 by an upgrade would let through that tunnel any number of
// requests for the one that was counted.
func TestNoUpgradeToHTTP2(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(h2c.NewHandler(u, &http2.Server{}))
	t.Cleanup(upstream.Close)
	settings := base64.RawURLEncoding.EncodeToString([]byte{0, 3, 0, 0, 0, 100})
	for _, direct := range []bool{true, false} {
		// The upstream would do it, so that the test can fail.
		addr := strings.TrimPrefix(upstream.URL, "http://")
		if !direct {
			addr = serve(t, "--policy", write(t, "p.yaml", wide), "--upstream", upstream.URL).addr
		}
		for name, head := range map[string]string{
			"plain":         "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: " + settings,
			"case":          "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: " + settings,
			"two tokens":    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket, h2c\r\nHTTP2-Settings: " + settings,
			"the other way": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, websocket\r\nHTTP2-Settings: " + settings,
			"two fields":    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket\r\nUpgrade: h2c\r\nHTTP2-Settings: " + settings,
			"reversed":      "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nUpgrade: websocket\r\nHTTP2-Settings: " + settings,
			"two lines":     "Connection: Upgrade\r\nConnection: HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: " + settings,
			"by underscore": "Connection: Upgrade, HTTP2_Settings\r\nUpgrade: h2c\r\nHTTP2_Settings: " + settings,
		} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			fmt.Fprintf(c, "GET /auth/login HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", head)
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := 200
			if direct && name == "plain" {
				want = 101
			}
			if resp.StatusCode != want && !direct || direct && name == "plain" && resp.StatusCode != want {
				t.Errorf("%s: %s, want %d", name, resp.Status, want)
			}
		}
	}
}

// The upstream sees the upgrade of a WebSocket's handshake, and no other.
func TestUpgradeFields(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		fmt.Fprintf(w, "%q%q%q", h["Connection"], h["Upgrade"], h["Http2-Settings"])
	})
	const key = "Sec-WebSocket-Key: " + wsKey + "\r\n"
	for _, test := range []struct{ send, want string }{
		{"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key, `["Upgrade"]["websocket"][]`},
		{"GET / HTTP/1.1\r\nConnection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n" + key, `["Upgrade"]["WebSocket"][]`},
		{"GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket\r\nHTTP2-Settings: AAMAAABk\r\n" + key, `["Upgrade"]["websocket"][]`},
		{"GET / HTTP/1.1\r\nConnection: HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n", `[][][]`},
		{"GET / HTTP/1.1\r\nHTTP2-Settings: AAMAAABk\r\n", `[][][]`},
		{"GET / HTTP/1.1\r\nUpgrade: websocket\r\n" + key, `[][][]`},
		{"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", `[][][]`},
		{"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key + key, `[][][]`},
		{"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket/13\r\n" + key, `[][][]`},
		{"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n" + key, `[][][]`},
		{"GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key, `[][][]`},
		{"POST / HTTP/1.1\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key, `[][][]`},
		{"GET / HTTP/1.1\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" + key, `[][][]`},
		{"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key + "\r\n0\r\n", `[][][]`},
	} {
		line, rest, _ := strings.Cut(test.send, "\r\n")
		if status, body := raw(t, g, line+"\r\nHost: a\r\n"+rest+"\r\n"); status != 200 || body != test.want {
			t.Errorf("%q: %d, and the upstream sees %s, want %s", test.send, status, body, test.want)
		}
	}
}

// An upstream that says 101 without having understood the handshake, perhaps because a
// client may choose its status, opens no tunnel.
func TestSwitchNeedsProof(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	says := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", <-says)
				_, _ = io.Copy(c, r) // what comes through the tunnel comes back
			}()
		}
	}()
	g := serve(t, "--policy", write(t, "p.yaml", wide), "--upstream", "http://"+l.Addr().String())
	const plain = "GET /status/101 HTTP/1.1\r\nHost: a\r\n"
	for _, test := range []struct {
		name, send, says string
		status           int
	}{
		{"all right", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n", 101},
		{"no proof", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n", 502},
		{"wrong proof", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsKey + "\r\n", 502},
		{"two proofs", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsAccept + "\r\nSec-WebSocket-Accept: x\r\n", 502},
		{"another protocol", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n", 502},
		{"not asked", plain, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n", 502},
		{"not asked, no upgrade", plain, "", 502},
		{"asked for h2c", plain + "Connection: Upgrade\r\nUpgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			says <- test.says
			c := dial(t, g, test.send+"\r\n")
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != test.status {
				t.Fatalf("%s, want %d", resp.Status, test.status)
			}
			if test.status == 101 {
				fmt.Fprint(c, "ping\n")
				if line, err := r.ReadString('\n'); line != "ping\n" {
					t.Errorf("%q, %v", line, err)
				}
			}
		})
	}
}

// What Connection names is not there for the upstream, so it is not there for the rules.
func TestConnectionNominates(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q%q%q", r.Header["X-Api-Key"], r.Header["Content-Type"], r.Header["Connection"])
	}))
	t.Cleanup(upstream.Close)
	g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "p.yaml",
		"version: 1\nrules: [{name: a, match: /key, key: [header:X-API-Key], limit: 2/day}, {name: b, match: /form, key: [body:user], limit: 2/day}]\n"))
	send := func(path, head, body string) int {
		status, _ := raw(t, g, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\n%s\r\nContent-Length: %d\r\n\r\n%s", path, head, len(body), body))
		return status
	}
	// A made-up key is no key, since the upstream gets none: they share one count.
	var keys []int
	for i, connection := range []string{"X-API-Key", "close, x-api-key", "close\r\nConnection:  X-Api-Key ,"} {
		keys = append(keys, send("/key", fmt.Sprintf("Connection: %s\r\nX-API-Key: made-up-%d", connection, i), ""))
	}
	if want := []int{200, 200, 429}; !slices.Equal(keys, want) {
		t.Errorf("keys: %v, want %v", keys, want)
	}
	// Without a type, a body may be read as a form, whatever type was said.
	var forms []int
	for range 3 {
		forms = append(forms, send("/form", "Connection: Content-Type\r\nContent-Type: application/xml", "user=alice"))
	}
	if want := []int{200, 200, 429}; !slices.Equal(forms, want) {
		t.Errorf("forms: %v, want %v", forms, want)
	}
	_, seen := raw(t, g, "GET /other HTTP/1.1\r\nHost: a\r\nConnection: X-API-Key, Content-Type\r\nX-API-Key: k\r\nContent-Type: t\r\n\r\n")
	if seen != "[][][]" {
		t.Errorf("the upstream sees %s", seen)
	}
}

// A trailer is not decided by, so it does not go on under the name of what is.
func TestTrailersAreNoFields(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		var names []string
		for name := range r.Trailer {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprint(w, names)
	}))
	t.Cleanup(upstream.Close)
	for _, key := range []string{"header:X-Tenant", "body:user"} { // the body is read late, and early
		g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "p.yaml", "version: 1\nrules: [{name: a, key: ["+key+"], limit: 9/day}, {name: b, key: [header:X-Tenant], limit: 9/day}]\n"))
		send := func(declared string) string {
			_, body := raw(t, g, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: "+declared+"\r\n\r\n1\r\nx\r\n0\r\n"+
				"X-Sum: 1\r\nX-Tenant: forged\r\nX-API-Key: forged\r\nX_Sum: 1\r\nContent-Type: text/plain\r\nX-HTTP-Method-Override: PUT\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
			return body
		}
		if got := send("X-Sum"); got != "[X-Sum]" {
			t.Errorf("%s: the upstream sees the trailers %s", key, got)
		}
		if got := send("X-Sum, X-Tenant, X-API-Key, Content-Type"); got != "[X-Sum]" {
			t.Errorf("%s: declared, the upstream sees the trailers %s", key, got)
		}
	}
}

// Fields that some frameworks take for the path, the method or the host do not pass, but
// for those that are asked for.
func TestOverridingFields(t *testing.T) {
	t.Parallel()
	names := []string{"X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override",
		"X-Original-URI", "X-Host", "X-Forwarded-Prefix", "X-Forwarded-Uri", "X-Script-Name", "X-Forwarded-Script-Name", "Proxy-Authorization", "Keep-Alive"}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			if r.Header.Get(name) != "" {
				fmt.Fprint(w, name, " ")
			}
		}
	}))
	t.Cleanup(upstream.Close)
	header := []string{}
	for _, name := range names {
		header = append(header, name, "/x")
	}
	strangers := write(t, "p.yaml", "version: 1\nrules: [{name: a, limit: 99/day}]\n")
	for _, test := range []struct {
		want string
		args []string
	}{
		{"", []string{"--policy", strangers}},
		{"X-Rewrite-URL X-HTTP-Method-Override ", []string{"--policy", strangers, "--keep-headers", "x-http-method-override,X-Rewrite-Url"}},
		{"X-Forwarded-Prefix X-Forwarded-Uri X-Forwarded-Script-Name ", []string{"--policy", write(t, "t.yaml", wide)}},
	} {
		g := serve(t, append(test.args, "--upstream", upstream.URL)...)
		if _, body := do(t, request(t, "GET", g.url, "", header...)); body != test.want {
			t.Errorf("%v: the upstream sees %q, want %q", test.args, body, test.want)
		}
	}
}
