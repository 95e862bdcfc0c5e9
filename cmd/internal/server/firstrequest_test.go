package server

import (
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// The command that the empty console shows reaches the gateway, or an integration that is served.
func TestFirstRequest(t *testing.T) {
	secure := new(settings)
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	secure.gateway.addFlags(flags)
	secure.integrations.addFlags(flags)
	cert := filepath.Join(t.TempDir(), "cert.pem")
	if err := flags.Parse([]string{"--tls-cert", cert, "--door-tls-cert", cert}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		settings  *settings
		listeners map[string]string
		want      string
	}{
		{new(settings), map[string]string{"--check": "192.0.2.1:8081", "--proxy": "127.0.0.1:8099"}, "curl -i http://127.0.0.1:8099/"},
		{new(settings), map[string]string{"--proxy": "[::]:8099"}, "curl -i http://localhost:8099/"},
		{secure, map[string]string{"--proxy": "[::]:8099"}, "curl -i https://localhost:8099/"},
		{new(settings), map[string]string{"--grpc": "[::1]:8082", "--check": "192.0.2.1:8081"}, `curl --json '{"request": {"path": "/"}}' http://192.0.2.1:8081/v1/check`},
		{secure, map[string]string{"--check": "192.0.2.1:8081"}, `curl --json '{"request": {"path": "/"}}' https://192.0.2.1:8081/v1/check`},
		{new(settings), map[string]string{"--grpc": "[::1]:8082"}, ""},
	} {
		address := func(flag string) net.Addr {
			if addr, ok := test.listeners[flag]; ok {
				return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
			}
			return nil
		}
		if got := firstRequest(address, test.settings); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
