package main

import (
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"

	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/console"
	"github.com/sluicehq/sluice/cmd/internal/control"
)

// dashboardOf is the console over the same control as an API, for the same callers. Try is a command that sends a
// first request.
func dashboardOf(over control.Config, api *adminapi.API, try string) http.Handler {
	info, _ := debug.ReadBuildInfo()
	return console.Handler(console.Config{
		Control: api.Control, Access: api.Access, Engine: over.Engine, Telemetry: over.Telemetry,
		Done: api.Done, Version: version(info), Try: try, Logger: over.Logger,
	})
}

// firstRequest is a command that sends a request to the gateway, or else asks at the JSON API; "" if
// neither is served.
func (s *serveSettings) firstRequest(ls *listeners) string {
	at := func(flag string, secure bool) string {
		for _, l := range ls.all {
			if l.name != flag {
				continue
			}
			scheme := "http"
			if secure {
				scheme = "https"
			}
			return scheme + "://" + reachedAt(l.socket.Addr())
		}
		return ""
	}
	if gateway := at("--proxy", s.tls.cert != ""); gateway != "" {
		return "curl -i " + gateway + "/"
	}
	if check := at("--check", s.doors.tls.cert != ""); check != "" {
		return "curl --json '{\"request\": {\"path\": \"/\"}}' " + check + "/v1/check"
	}
	return ""
}

// reachedAt is an address by which this machine reaches one that is listened at.
func reachedAt(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if ip, parsed := netip.ParseAddr(host); err != nil || parsed == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
