package main

import (
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/console"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/telemetry"
)

// dashboardOf is the dashboard that acts by an API, as whoever the API takes for its caller. Try is a
// command that sends a first request.
func dashboardOf(over control.Config, api *adminapi.API, try string) http.Handler {
	info, _ := debug.ReadBuildInfo()
	c := console.Config{
		View:   func() *telemetry.View { return &telemetry.View{At: time.Now()} },
		Engine: over.Engine, Identify: api.Access.Identify, SignIn: api.Access.Holder, Do: api.Do,
		Done: api.Done, Guess: api.Access.Guess, Version: version(info), Try: try, Logger: over.Logger,
	}
	if over.Telemetry != nil {
		c.View, c.Find = over.Telemetry.View, over.Telemetry.Find
	}
	return console.Handler(c)
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
