package httplimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/clientip"
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

func TestClientIP(t *testing.T) {
	const proxy = "10.0.0.1:55555"
	trusted := prefixes("10.0.0.0/8", "fd00::/8", "127.0.0.1/32")
	xff := func(lines ...string) http.Header { return http.Header{"X-Forwarded-For": lines} }
	fwd := func(lines ...string) http.Header { return http.Header{"Forwarded": lines} }
	tests := []struct {
		name   string
		c      ClientIP
		remote string
		header http.Header
		want   string
	}{
		{"nobody is believed", ClientIP{}, "192.0.2.1:80", xff("203.0.113.9"), "192.0.2.1"},
		{"not even the proxy", ClientIP{}, proxy, xff("203.0.113.9"), "10.0.0.1"},
		{"from a stranger", ClientIP{Trusted: trusted}, "192.0.2.1:80", xff("203.0.113.9"), "192.0.2.1"},
		{"no header", ClientIP{Trusted: trusted}, proxy, nil, "10.0.0.1"},
		{"empty header", ClientIP{Trusted: trusted}, proxy, xff(""), "10.0.0.1"},
		{"one hop", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9"), "203.0.113.9"},
		{"forged beginning", ClientIP{Trusted: trusted}, proxy, xff("1.1.1.1, 203.0.113.9, 10.9.9.9"), "203.0.113.9"},
		{"lines are one list", ClientIP{Trusted: trusted}, proxy, xff("1.1.1.1", "203.0.113.9", "10.9.9.9"), "203.0.113.9"},
		{"only proxies", ClientIP{Trusted: trusted}, proxy, xff("10.0.0.3,10.0.0.2"), "10.0.0.3"},
		{"garbage at the end", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9, unknown"), "10.0.0.1"},
		{"garbage behind a proxy", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9, <script>, 10.0.0.2"), "10.0.0.2"},
		{"garbage nobody looks at", ClientIP{Trusted: trusted}, proxy, xff("\xff\x00, 203.0.113.9"), "203.0.113.9"},
		{"empty entry", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9,"), "10.0.0.1"},
		{"empty last line", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9", ""), "10.0.0.1"},
		{"port", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9:4711"), "203.0.113.9"},
		{"port out of range of digits", ClientIP{Trusted: trusted}, proxy, xff("203.0.113.9:471100"), "10.0.0.1"},
		{"IPv6", ClientIP{Trusted: trusted}, proxy, xff("2001:DB8::0:1"), "2001:db8::1"},
		{"brackets", ClientIP{Trusted: trusted}, proxy, xff("[2001:db8::1]"), "2001:db8::1"},
		{"brackets and port", ClientIP{Trusted: trusted}, proxy, xff("[2001:db8::1]:443"), "2001:db8::1"},
		{"open bracket", ClientIP{Trusted: trusted}, proxy, xff("[2001:db8::1"), "10.0.0.1"},
		{"brackets around IPv4", ClientIP{Trusted: trusted}, proxy, xff("[203.0.113.9]"), "10.0.0.1"},
		{"zone", ClientIP{Trusted: trusted}, proxy, xff("fe80::1%eth0"), "fe80::1"},
		{"mapped", ClientIP{Trusted: trusted}, proxy, xff("::ffff:203.0.113.9"), "203.0.113.9"},
		{"mapped in hexadecimal", ClientIP{Trusted: trusted}, proxy, xff("::ffff:cb00:7109"), "203.0.113.9"},
		{"mapped proxy", ClientIP{Trusted: trusted}, "[::ffff:10.0.0.1]:5", xff("203.0.113.9"), "203.0.113.9"},
		{"mapped trust", ClientIP{Trusted: prefixes("::ffff:10.0.0.0/104")}, proxy, xff("203.0.113.9"), "203.0.113.9"},
		{"octal", ClientIP{Trusted: trusted}, proxy, xff("0313.0.113.9"), "10.0.0.1"},
		{"endless zone", ClientIP{Trusted: trusted}, proxy, xff("fe80::1%" + strings.Repeat("z", 100)), "10.0.0.1"},
		{"spaces and tabs", ClientIP{Trusted: trusted}, proxy, xff(" 203.0.113.9\t ,\t10.0.0.2 "), "203.0.113.9"},
		{"Connection names it", ClientIP{Trusted: trusted}, proxy, http.Header{
			"X-Forwarded-For": {"203.0.113.9"}, "Connection": {"X-Forwarded-For"}}, "203.0.113.9"},
		{"the other header is not looked at", ClientIP{Trusted: trusted}, proxy, fwd("for=203.0.113.9"), "10.0.0.1"},
		{"nor the other way round", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, xff("203.0.113.9"), "10.0.0.1"},
		{"X-Real-IP", ClientIP{Trusted: trusted, Header: "x-real-ip"}, proxy, http.Header{"X-Real-Ip": {"203.0.113.9"}}, "203.0.113.9"},
		{"remote without port", ClientIP{}, "192.0.2.1", nil, "192.0.2.1"},
		{"remote with zone", ClientIP{}, "[fe80::1%eth0]:80", nil, "fe80::1"},
		{"remote is nonsense", ClientIP{Trusted: trusted}, "nonsense", xff("203.0.113.9"), "invalid IP"},
		{"unknown socket", ClientIP{Trusted: trusted}, "@", xff("203.0.113.9"), "invalid IP"},

		{"Forwarded", ClientIP{Trusted: trusted, Header: "forwarded"}, proxy, fwd("for=203.0.113.9"), "203.0.113.9"},
		{"other pairs", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`by=10.0.0.1;For="203.0.113.9:80" ; proto=https;host="a,b;c"`), "203.0.113.9"},
		{"quoted IPv6", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="[2001:db8::1]:4711"`), "2001:db8::1"},
		{"made-up port", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="[2001:db8::1]:_gw.1"`), "2001:db8::1"},
		{"escaped", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="203.0.\113.9"`), "203.0.113.9"},
		{"several elements", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for=1.1.1.1, for=203.0.113.9`, `for="[fd00::2]", for=10.0.0.7`), "203.0.113.9"},
		{"unknown", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd("for=203.0.113.9, for=unknown"), "10.0.0.1"},
		{"hidden", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd("for=203.0.113.9, for=_SEVKISEK, for=10.0.0.2"), "10.0.0.2"},
		{"no for", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd("for=203.0.113.9, proto=https"), "10.0.0.1"},
		{"two of them", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd("for=203.0.113.9;for=203.0.113.8"), "10.0.0.1"},
		{"open quote before", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="1.1.1.1, for=203.0.113.9`), "203.0.113.9"},
		{"open quote before a quoted one", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for=1.1.1.1;x="\, for="[2001:db8::1]:1"`), "2001:db8::1"},
		{"open quote at the end", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="203.0.113.9`), "10.0.0.1"},
		{"escaped quote", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for=1.1.1.1, for=203.0.113.9;host="a\",b"`), "203.0.113.9"},
		{"text behind a quote", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="203.0.113.9"x`), "10.0.0.1"},
		{"open escape", ClientIP{Trusted: trusted, Header: "Forwarded"}, proxy, fwd(`for="203.0.113.9\`), "10.0.0.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.c.Addr(request(test.remote, test.header)).String(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestClientIPManyHops(t *testing.T) {
	c := ClientIP{Trusted: prefixes("10.0.0.0/8")}
	chain := func(n int) http.Header {
		return http.Header{"X-Forwarded-For": {"203.0.113.9" + strings.Repeat(", 10.0.0.2", n)}}
	}
	if got := c.Addr(request("10.0.0.1:1", chain(99))).String(); got != "203.0.113.9" {
		t.Errorf("behind 99 proxies: %s", got)
	}
	if got := c.Addr(request("10.0.0.1:1", chain(1000))).String(); got != "10.0.0.2" {
		t.Errorf("behind 1000 proxies: %s", got)
	}
}

func TestClientIPKey(t *testing.T) {
	tests := []struct {
		c      ClientIP
		remote string
		want   string
	}{
		{ClientIP{}, "192.0.2.1:80", "192.0.2.1"},
		{ClientIP{}, "[::ffff:192.0.2.1]:80", "192.0.2.1"},
		{ClientIP{}, "[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"},
		{ClientIP{}, "[2001:db8:1:2:ffff::]:80", "2001:db8:1:2::/64"},
		{ClientIP{}, "[fe80::1%eth0]:80", "fe80::/64"},
		{ClientIP{IPv6Prefix: 48}, "[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1::/48"},
		{ClientIP{IPv6Prefix: 128}, "[2001:db8::1]:80", "2001:db8::1/128"},
		{ClientIP{IPv6Prefix: 500}, "[2001:db8::1]:80", "2001:db8::1"},
		{ClientIP{}, "", "unknown"},
	}
	for _, test := range tests {
		if got := test.c.Key(request(test.remote, nil)); got != test.want {
			t.Errorf("%+v of %q: %q, want %q", test.c, test.remote, got, test.want)
		}
	}
}

// FuzzPlain4 holds the quick way to read a peer to the library's.
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

// A real server on a Unix socket.
func TestClientIPUnixSocket(t *testing.T) {
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
		t.Errorf("nobody trusted: %s", key)
	}
	if key := <-got; key != "203.0.113.9" {
		t.Errorf("this machine trusted: %s", key)
	}
}

// Something that has replaced RemoteAddr on a network is not a socket of this machine.
func TestClientIPNotASocket(t *testing.T) {
	r := request("@", http.Header{"X-Forwarded-For": {"203.0.113.9"}})
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{}))
	if got := (ClientIP{Trusted: prefixes("127.0.0.0/8")}).Key(r); got != "unknown" {
		t.Errorf("got %s", got)
	}
}

// FuzzClientIP holds two things. Whatever a client sends, as long as its proxies append
// what they see, the result is the client. And whatever arrives at all, X-Forwarded-For
// is read as a naive reader would.
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

// naiveClient is an oracle on package net instead of net/netip, for the proxies that
// FuzzClientIP trusts.
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

func TestTrusts(t *testing.T) {
	for _, test := range []struct {
		network, addr string
		want          bool
	}{
		{"192.0.2.0/24", "192.0.2.7", true},
		{"192.0.2.0/24", "::ffff:192.0.2.7", true},
		{"192.0.2.0/24", "192.0.3.7", false},
		{"::ffff:192.0.2.0/120", "192.0.2.7", true},
		{"::ffff:192.0.2.0/120", "::ffff:192.0.2.7", true},
		{"::ffff:192.0.2.7/128", "192.0.2.7", true},
		{"::ffff:192.0.2.7/128", "192.0.2.8", false},
		{"::ffff:0.0.0.0/96", "198.51.100.1", true},
		{"2001:db8::/32", "2001:db8::1", true},
		{"2001:db8::/32", "192.0.2.7", false},
		{"::/0", "192.0.2.7", false}, // as netip has it
	} {
		all := []netip.Prefix{netip.MustParsePrefix("203.0.113.1/32"), netip.MustParsePrefix(test.network)}
		if got := (ClientIP{Trusted: all}).Trusts(netip.MustParseAddr(test.addr)); got != test.want {
			t.Errorf("%s in %s: %v", test.addr, test.network, got)
		}
	}
	if (ClientIP{}).Trusts(netip.MustParseAddr("192.0.2.7")) || (ClientIP{Trusted: []netip.Prefix{{}}}).Trusts(netip.Addr{}) {
		t.Error("something is in no network")
	}
}
