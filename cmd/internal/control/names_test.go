package control_test

import (
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// If the key values of an override match only one subject, the override has the text of that subject's key. Its key is
// shown as the rule's show_key sets.
func TestOverrideName(t *testing.T) {
	c := control.New(over(t, `
version: 1
rules:
  - {name: address, key: [client_ip], limit: 9/day}
  - {name: path, key: ["header:X-Path"], limit: 9/day}
  - {name: short, key: [api_key, client_ip], show_key: short, limit: 9/day}
  - {name: hash, key: [api_key, client_ip], show_key: hash, limit: 9/day}
`))
	both := map[string]string{"api_key": "sk_live_4f8a2c6e9b", "client_ip": "*"}
	for _, one := range []struct {
		rule  string
		key   map[string]string
		text  string
		shown string
	}{
		{"address", map[string]string{"client_ip": "192.0.2.7"}, "address/192.0.2.7", "192.0.2.7"},
		{"address", map[string]string{"client_ip": "192.0.2.0/24"}, "", "client_ip 192.0.2.0/24"},
		{"address", map[string]string{"client_ip": "2001:db8::/64"}, "address/2001:db8::", "2001:db8::"},
		{"address", map[string]string{"client_ip": "2001:db8::/48"}, "", "client_ip 2001:db8::/48"},
		{"address", map[string]string{"client_ip": "*"}, "", "client_ip *"},
		{"path", map[string]string{"header:X-Path": "a/b"}, "path/a%2Fb", "a/b"},
		{"short", both, "", "api_key sk_l…9b, client_ip *"},
		{"hash", both, "", "api_key …, client_ip *"},
	} {
		name, err := c.OverrideName(control.Caller{Name: "ann", Role: source.Viewer}, one.rule, one.key)
		if err != nil || name.Text != one.text || name.Shown != one.shown {
			t.Errorf("%s %v: %+v, %v", one.rule, one.key, name, err)
		}
	}
}
