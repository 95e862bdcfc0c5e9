package proxy

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// byHost passes each request to the handler of its host. Requests for other hosts go to the handler rest, which may
// be nil.
func byHost(hosts map[string]http.Handler, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := hosts[HostName(r.Host)]
		if h == nil {
			h = rest
		}
		if h == nil {
			(&problem{http.StatusMisdirectedRequest, "This gateway has no upstream for the host of the request."}).write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// HostName returns the host of a Host field in the form of [Upstream.Hosts], without the port and a final dot.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
