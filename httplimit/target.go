package httplimit

import (
	"net/http"
	"net/netip"
	"strings"
)

// misaimed says what is wrong with the target of a request, or "". Rules look at the path
// and the host, so there must be no doubt about what these are. A server takes more than
// origin-form (/path), absolute-form (http://host/path) and the "*" of OPTIONS: of
// "a:http://host/path" it makes a URL without a path, and a proxy passes that on.
func misaimed(r *http.Request) string {
	u := r.URL
	switch {
	case r.Method == http.MethodConnect:
		return "This is not a forward proxy, and CONNECT is not taken."
	case r.RequestURI == "*" && r.Method != http.MethodOptions:
		return `The target "*" is for OPTIONS only.`
	case !plainHost(r.Host):
		return "The Host must be a name or an address, and perhaps a port."
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		return "The request target must not have a fragment." // at which some servers end it
	case u.Scheme == "" && u.Host == "" && u.Opaque == "" && u.User == nil:
		return ""
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "The request target must be a path, or an http URL with a host."
	case u.User != nil:
		return "The request target must not have a user."
	case r.ProtoMajor > 1:
		return "The request target must be a path." // where :authority is another host
	}
	return ""
}

// plainHost reports whether all servers read the same host: a name or an address, with a
// port or without, or none at all. Of "a:80:80" some take the host "a", and some none, and
// of the dots behind "a.." some take off one and some all.
func plainHost(s string) bool {
	if literal, found := strings.CutPrefix(s, "["); found {
		inner, rest, closed := strings.Cut(literal, "]")
		if a, err := netip.ParseAddr(inner); err != nil || !a.Is6() || a.Zone() != "" || !closed {
			return false
		}
		return rest == "" || rest[0] == ':' && digits(rest[1:])
	}
	before := byte('.')
	for i := range len(s) {
		c := s[i]
		if !inName[c] {
			return c == ':' && digits(s[i+1:])
		}
		if c == '.' && before == '.' {
			return false
		}
		before = c
	}
	return true
}

// inName are the characters of names and of IPv4 addresses.
var inName = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~") {
		t[c] = true
	}
	return t
}()

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }
