package server

import (
	"net"
	"net/netip"
)

// firstRequest returns a command that sends a request to the gateway or, without a gateway, to the JSON API. A
// console without any counts shows the command. It is "" if neither is served. The function address returns the
// address of a listener by its flag, or nil.
func firstRequest(address func(flag string) net.Addr, s *settings) string {
	if a := address("--proxy"); a != nil {
		return "curl -i " + localURL(a, s.gateway.tls.Any()) + "/"
	}
	if a := address("--check"); a != nil {
		return "curl --json '{\"request\": {\"path\": \"/\"}}' " + localURL(a, s.integrations.tls.Any()) + "/v1/check"
	}
	return ""
}

// localURL returns the URL by which this machine reaches the address of a listener.
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
