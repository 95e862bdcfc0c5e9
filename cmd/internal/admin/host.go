package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Hosts rejects requests unless their Host is an address, localhost, or one of the given names. A web page can make its
// own host name resolve to this machine (DNS rebinding) and then read the answers. The requests of such a page have the
// page's host name as their Host. Requests without a Host are accepted, because they do not come from a browser.
func Hosts(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostname(r.Host); host != "" && !local(host) && !slices.ContainsFunc(names, func(n string) bool { return hostname(n) == host }) {
			answer(w, http.StatusMisdirectedRequest, fmt.Sprintf("The admin address does not answer for the host %q: see --admin-hosts.\n", host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostname returns a host without port and final dot, in lower case.
func hostname(s string) string {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(s, "[]"), "."))
}

// local reports whether the host is an address or localhost, which need no name server.
func local(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
