package main

import (
	"net"
	"net/netip"
	"testing"
)

// What the empty console tells to send reaches the gateway, or the door that there is.
func TestFirstRequest(t *testing.T) {
	at := func(addr string) net.Listener {
		return socketAt{addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))}
	}
	gateway, wide := &listener{name: "--proxy", socket: at("127.0.0.1:8099")}, &listener{name: "--proxy", socket: at("[::]:8099")}
	check, grpc := &listener{name: "--check", socket: at("192.0.2.1:8081")}, &listener{name: "--grpc", socket: at("[::1]:8082")}
	secure := new(serveSettings)
	secure.tls.cert, secure.doors.tls.cert = "a", "b"
	for _, test := range []struct {
		settings *serveSettings
		all      []*listener
		want     string
	}{
		{new(serveSettings), []*listener{check, gateway}, "curl -i http://127.0.0.1:8099/"},
		{new(serveSettings), []*listener{wide}, "curl -i http://localhost:8099/"},
		{secure, []*listener{wide}, "curl -i https://localhost:8099/"},
		{new(serveSettings), []*listener{grpc, check}, `curl --json '{"request": {"path": "/"}}' http://192.0.2.1:8081/v1/check`},
		{secure, []*listener{check}, `curl --json '{"request": {"path": "/"}}' https://192.0.2.1:8081/v1/check`},
		{new(serveSettings), []*listener{grpc}, ""},
	} {
		if got := test.settings.firstRequest(&listeners{all: test.all}); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// socketAt has an address that no test can listen at.
type socketAt struct {
	net.Listener
	addr net.Addr
}

func (s socketAt) Addr() net.Addr { return s.addr }
