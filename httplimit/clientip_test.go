package httplimit

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/clientip"
	"github.com/sluicehq/sluice/internal/testkit"
)

func prefixes(s ...string) (all []netip.Prefix) {
	for _, p := range s {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func request(remote string, header http.Header) *http.Request {
	r, _ := http.NewRequest("GET", "/", nil)
	r.RemoteAddr = remote
	r.Header = header
	return r
}

// ClientIP returns the addresses and keys in testdata/clientip.txt.
func TestClientIP(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/clientip.txt") {
		t.Run(c.Name, func(t *testing.T) {
			var client ClientIP
			of := func(r *http.Request) string { return client.Addr(r).String() }
			for line := range strings.Lines(c.Setup) {
				switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
				case "trusted":
					client.Trusted = prefixes(strings.Fields(value)...)
				case "header":
					client.Header = strings.TrimSpace(value)
				case "trusts": // the steps are addresses that may be trusted
					client.Trusted = prefixes(strings.Fields(value)...)
					of = func(r *http.Request) string { return fmt.Sprint(client.Trusts(netip.MustParseAddr(r.RemoteAddr))) }
				case "key":
					of = func(r *http.Request) string { return client.Key(r) }
					client.IPv6Prefix, _ = strconv.Atoi(strings.TrimSpace(value))
				}
			}
			c.Play(t, func(step string) string {
				remote, fields, _ := strings.Cut(step, "\n")
				header := make(http.Header)
				for field := range strings.SplitSeq(fields, "\n") {
					if name, value, found := strings.Cut(field, ": "); found {
						header.Add(name, value)
					}
				}
				return of(request(remote, header))
			})
		})
	}
}

// FuzzPlain4 compares the fast parser of a peer's address with package netip.
func FuzzPlain4(f *testing.F) {
	for _, s := range []string{
		"192.0.2.1:80", "0.0.0.0:0", "255.255.255.255:65535", "256.0.2.1:80", "1.2.3:80", "1.2.3.4.5:80", "01.2.3.4:80", "1.2.3.00:80",
		"1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", "1.2.3.4:_gw", "1.2.3.4:80:90", "1..3.4:80", ".1.2.3:80", "1234.1.1.1:1",
		" 1.2.3.4:80", "1.2.3.4 :80", "[1.2.3.4]:80", "[::1]:80", "::ffff:1.2.3.4:80", ":80", "", "1", "1.2.3.4/80", "1:2:3:4.80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := ""
		if i := strings.LastIndexByte(s, ':'); i >= 0 && naivePort(s[i+1:]) {
			if addr, err := netip.ParseAddr(s[:i]); err == nil && addr.Is4() {
				want = addr.String()
			}
		}
		addr, host := clientip.Plain4(s)
		if host != want || host != "" && netip.AddrFrom4(addr).String() != want {
			t.Fatalf("%q is %q, %v, want %q", s, host, addr, want)
		}
		if host != "" && (ClientIP{}.Key(request(s, nil)) != want || ClientIP{}.Addr(request(s, nil)).String() != want) {
			t.Fatalf("%q has another key or address than %q", s, want)
		}
	})
}

// A client on a Unix socket has the address 127.0.0.1, and can be trusted like it.
func TestClientIPUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 2)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- ClientIP{}.Key(r)
		got <- ClientIP{Trusted: prefixes("127.0.0.0/8")}.Key(r)
	})}
	go server.Serve(l)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	r := request("", http.Header{"X-Forwarded-For": {"203.0.113.9"}})
	r.URL.Scheme, r.URL.Host = "http", "server"
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if key := <-got; key != "127.0.0.1" {
		t.Errorf("without trusted proxies: %s", key)
	}
	if key := <-got; key != "203.0.113.9" {
		t.Errorf("with this machine trusted: %s", key)
	}
}

// If middleware has replaced RemoteAddr, a client on a network is not treated as one on a Unix socket.
func TestClientIPNotASocket(t *testing.T) {
	t.Parallel()
	r := request("@", http.Header{"X-Forwarded-For": {"203.0.113.9"}})
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{}))
	if got := (ClientIP{Trusted: prefixes("127.0.0.0/8")}).Key(r); got != "unknown" {
		t.Errorf("got %s", got)
	}
}

// FuzzClientIP checks two properties. Whatever a client sends, if its proxies append the addresses that they see, the
// result is the client. And whatever X-Forwarded-For contains, the result is that of a naive parser.
func FuzzClientIP(f *testing.F) {
	f.Add("1.1.1.1", "", uint8(0))
	f.Add(`for="1.1.1.1`, `for=1.1.1.1;x="\`, uint8(7))
	f.Add(`10.0.0.1`, ` , [::1]:9 ,,`, uint8(3))
	f.Add("fe80::1%eth0, ::ffff:1.2.3.4", "10.0.0.1:99", uint8(1))
	f.Add("::ffff:1.2.3.4%x", "::%", uint8(1))
	trusted := prefixes("10.0.0.0/8", "fd00::/8", "::ffff:0:0/112")
	f.Fuzz(func(t *testing.T, line1, line2 string, how uint8) {
		client, proxies := "203.0.113.9", []string{"10.0.0.7", "10.1.1.1:80", "[fd00::1]:443"}
		header, name := http.Header{}, "X-Forwarded-For"
		if how&1 == 1 {
			name = "Forwarded"
		}
		if how&2 == 2 {
			client = "2001:db8::1"
		}
		lines := []string{line1, line2}[:how>>2&3%3]
		for i, hop := range append([]string{client}, proxies[:how>>4&3]...) {
			if name == "Forwarded" {
				hop = `proto=http;for="` + strings.Replace(hop, client, "["+client+"]", strings.Count(client, "::")) + `"`
			}
			if n := len(lines); n > 0 && (how>>6+uint8(i))&1 == 0 {
				lines[n-1] += ", " + hop
			} else {
				lines = append(lines, hop)
			}
		}
		header[name] = lines
		r := request("10.0.0.1:1", header)
		if got := (ClientIP{Trusted: trusted, Header: name}).Addr(r).String(); got != client {
			t.Errorf("%q: got %s, want %s", lines, got, client)
		}

		r = request("10.0.0.1:1", http.Header{"X-Forwarded-For": {line1, line2}})
		got := (ClientIP{Trusted: trusted}).Addr(r).String()
		if want := naiveClient("10.0.0.1", line1+","+line2); got != want {
			t.Errorf("%q: got %s, want %s", []string{line1, line2}, got, want)
		}
		r = request("10.0.0.1:1", http.Header{"Forwarded": {line1, line2}})
		if got := (ClientIP{Trusted: trusted, Header: "Forwarded"}).Addr(r); !got.IsValid() {
			t.Errorf("Forwarded %q: no address", []string{line1, line2})
		}
	})
}

// naiveClient is an oracle that uses package net instead of net/netip, for the proxies that FuzzClientIP trusts.
func naiveClient(peer, list string) string {
	entries := strings.Split(list, ",")
	for i := range min(len(entries), 100) {
		ip := net.ParseIP(peer)
		proxy := ip.To4() != nil && (ip.To4()[0] == 10 || ip.To4()[0] == 0 && ip.To4()[1] == 0) || ip.To4() == nil && ip[0] == 0xfd
		if !proxy {
			break
		}
		hop := naiveHop(strings.Trim(entries[len(entries)-1-i], " \t"))
		if hop == "" {
			break
		}
		peer = hop
	}
	return peer
}

func naiveHop(s string) string {
	if len(s) > 100 {
		return ""
	}
	if host, port, err := net.SplitHostPort(s); err == nil {
		bracketed := strings.HasPrefix(s, "[")
		if !naivePort(port) || bracketed != strings.Contains(host, ":") {
			return ""
		}
		s = host
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && strings.Contains(s, ":") {
		s = s[1 : len(s)-1]
	}
	if address, zone, found := strings.Cut(s, "%"); found {
		if zone == "" || !strings.Contains(address, ":") {
			return ""
		}
		s = address
	}
	if ip := net.ParseIP(s); ip != nil {
		return ip.String()
	}
	return ""
}

func naivePort(s string) bool {
	valid, made := len(s) > 0 && len(s) < 6, strings.HasPrefix(s, "_")
	for _, c := range []byte(s) {
		digit := c >= '0' && c <= '9'
		valid = valid && digit
		made = made && (digit || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("._-", c) >= 0)
	}
	return valid || made
}
