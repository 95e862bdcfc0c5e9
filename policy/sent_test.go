package policy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// The tier of a request is known whichever rule decides, and nothing is read for it.
func TestTierOfRequest(t *testing.T) {
	type told struct {
		tier, customer string
		known          bool
	}
	for name, c := range map[string]struct {
		tiers string
		want  told
	}{
		"subject":      {"tiers: {subject: api_key, default: free}", told{"pro", "k%2F1", true}},
		"not a listed": {"tiers: {subject: client_ip, default: free}", told{"free", "192.0.2.1", true}},
		"from":         {`tiers: {from: "header:X-Plan"}`, told{"gold", "", true}},
		"from, or not": {`tiers: {from: "header:X-None", default: free}`, told{"", "", true}},
		"a body":       {`tiers: {from: "body:plan", default: free}`, told{}},
		"none":         {"", told{}},
	} {
		text := c.tiers + "\nrules:\n  - {name: a, key: [client_ip], limit: 1/day}\n"
		if name == "subject" {
			text += "subjects: [{subject: k/1, tier: pro}]\n"
		}
		e := NewEngine(memory.New(), parse(t, text))
		var got told
		e.Observe(func(_ context.Context, o *Observation) {
			tier, customer, known := o.Tier()
			got = told{strings.Clone(tier), strings.Clone(customer), known}
		})
		q := Request{Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Api-Key": {"k/1"}, "X-Plan": {"gold"}}, Body: func(int64) ([]byte, error) {
			t.Errorf("%s: the body was read", name)
			return nil, nil
		}}
		for range 2 {
			if e.Decide(t.Context(), &q); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
		if s, err := e.Subject("a", map[string]string{"client_ip": "192.0.2.1"}); err != nil {
			t.Error(err)
		} else if e.Decide(t.Context(), &Request{Subject: s}); got != (told{}) {
			t.Errorf("%s: a subject that is asked about is said to be %+v", name, got)
		}
	}
}

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
	same, err := e.SubjectOf("login/192.0.2.1/Lucy")
	if err != nil {
		t.Fatal(err)
	}
	folded, err := e.SubjectOf(lucy.Key())
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*Subject]string{lucy: "Lucy", same: "Lucy", folded: "lucu"} {
		if s.Key() != "login/192.0.2.1/lucu" || s.Values()["body:username"] != want || s.Shown() != "192.0.2.1 · "+want {
			t.Errorf("%s is told as %q, %s; want %s", s.Key(), s.Values(), s.Shown(), want)
		}
	}
	if shown := e.Policy().ShownSent("login/192.0.2.1/maru", "login/mary"); shown != "192.0.2.1 · maru" {
		t.Errorf("a spelling of another key is shown: %s", shown)
	}
}
