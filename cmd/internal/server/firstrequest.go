package server

import (
	"net"
	"net/netip"
)

// firstRequest returns a command that sends a request to the gateway or, without a gateway, to the JSON API, or ""
// if neither is served. The console shows the command while it has no counts. The function address returns the
// address of the listener that a flag has opened, or nil.
func firstRequest(address func(flag string) net.Addr, s *settings) string {
	if a := address("--proxy"); a != nil {
		return "curl -i " + localURL(a, s.gateway.tls.Any()) + "/"
	}
	if a := address("--check"); a != nil {
		return "curl --json '{\"request\": {\"path\": \"/\"}}' " + localURL(a, s.integrations.tls.Any()) + "/v1/check"
	}
	return ""
}

// localURL returns the URL for an address of a listener on this machine.
func localURL(a net.Addr, secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(a.String())
	if ip, parsed := netip.ParseAddr(host); err != nil || parsed == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + net.JoinHostPort(host, port)
}
