package parts

import (
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// Each kind of key part has all properties that belong together, and is documented.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	documented, err := os.ReadFile("../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	route, err := pattern.Parse("GET /a/{b}")
	if err != nil {
		t.Fatal(err)
	}
	full := &Request{
		Method: "POST", Host: "example.com", Path: "/a/b", RawQuery: "a=v", Peer: netip.MustParseAddr("2001:db8::1:1"), IPv6Prefix: 64,
		Header: http.Header{"A": {"v"}, "Cookie": {"a=v"}, "Authorization": {"Bearer " + token(`{"a":"v"}`)}, "Content-Type": {"application/json"}},
		Body:   body(`{"a":"v"}`), Attributes: map[string]string{"a": "v/w"}, TLSFingerprint: "t13d",
	}
	optional := map[string]bool{"arg": true, "check": true, "verbatim": true}
	for i := range partKinds {
		k := reflect.ValueOf(partKinds[i])
		for f := range k.Type().Fields() {
			if k.FieldByIndex(f.Index).IsZero() && !optional[f.Name] {
				t.Errorf("%s has no %s", partKinds[i].name, f.Name)
			}
		}
		text := partKinds[i].name
		if (partKinds[i].arg == "") != (partKinds[i].check == nil) {
			t.Errorf("%s is not checked", text)
		}
		if partKinds[i].arg != "" {
			text += ":"
		}
		if !strings.Contains(string(documented), "`"+text) {
			t.Errorf("docs/policy.md has no %s", text)
		}
		if partKinds[i].arg != "" {
			text += "a"
		}
		list := List{partOf(t, text)}
		p := &list[0]
		var x Reader
		*x.Reset() = *full
		x.Route = route.Key
		value, found := p.Value(&x)
		if !found || p.Canonical(value) != value {
			t.Errorf("%s is %q, %v, and canonical %q", text, value, found, p.Canonical(value))
		}
		var keys Keys
		if keys.Begin("rule"); p.IsVerbatim() {
			keys.AddWritten(value)
		} else {
			keys.Add(value)
		}
		_, subject := CutKey(keys.Key(nil))
		written, ok := list.Split(subject)
		if !ok {
			t.Fatalf("%s has no key %q", text, subject)
		}
		want := value
		if p.IsRoute() {
			want = route.Text
		}
		if got, state := p.Unwrite(written[0], []*pattern.Pattern{route}); got != want || state != Plain {
			t.Errorf("%s is %q, and written %q, which is %q", text, value, written, got)
		}
	}
}
