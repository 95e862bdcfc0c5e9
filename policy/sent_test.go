package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
)

// Administration knows a subject by any spelling, and tells it by the one that it was given.
func TestSpelling(t *testing.T) {
	t.Parallel()
	e := engine(t, `rules:
  - {name: login, key: [client_ip, "body:username"], limit: 1/day}
  - {name: hashed, key: ["body:username"], limit: 1/day, show_key: hash}
`)
	for name, long := range map[string]bool{"Lucy": false, strings.Repeat("y", sluice.MaxKeyPart+1): true} {
		e.observers = nil
		e.Observe(func(_ context.Context, o *Observation) {
			if is := o.Policy().ShownKey(o.Key(1)); o.Shown(1) != is {
				t.Errorf("the pseudonym %s is not that of what is counted, %s", o.Shown(1), is)
			}
			if sent := o.Sent(0); (sent == o.Key(0)) != long {
				t.Errorf("%.20s is counted as %s, and was sent as %s", name, o.Key(0), sent)
			}
		})
		r := get("/", "Content-Type: "+jsonType)
		r.Body = body(fmt.Sprintf(`{"username":%q}`, name))
		pass(t, e, r)
	}
	lucy := subject(t, e, "login", map[string]string{"client_ip": "192.0.2.1", "body:username": "Lucy"})
	same := must(e.SubjectOf("login/192.0.2.1/Lucy"))
	folded := must(e.SubjectOf(lucy.Key()))
	for s, want := range map[*Subject]string{lucy: "Lucy", same: "Lucy", folded: "lucu"} {
		if s.Key() != "login/192.0.2.1/lucu" || s.Values()["body:username"] != want || s.Shown() != "192.0.2.1 · "+want {
			t.Errorf("%s is told as %q, %s; want %s", s.Key(), s.Values(), s.Shown(), want)
		}
	}
	if shown := e.Policy().ShownSent("login/192.0.2.1/maru", "login/mary"); shown != "192.0.2.1 · maru" {
		t.Errorf("a spelling of another key is shown: %s", shown)
	}
}
