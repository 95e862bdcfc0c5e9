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

// Names are counted folded, and shown as they were sent.
func TestSent(t *testing.T) {
	e := NewEngine(memory.New(), parse(t, `rules:
  - {name: login, match: [POST /login], key: [client_ip, "body:username"], limit: 1/day}
  - {name: search, match: [POST /login], key: ["query:q"], limit: 1/day}
  - {name: hashed, match: [POST /login], key: ["body:username"], limit: 1/day, show_key: hash}
`))
	long := strings.Repeat("y", sluice.MaxKeyPart+1)
	var key, sent, shown map[string]string
	e.Observe(func(_ context.Context, o *Observation) {
		key, sent, shown = map[string]string{}, map[string]string{}, map[string]string{}
		for i, r := range o.Decision.Results {
			key[r.Rule], sent[r.Rule], shown[r.Rule] = strings.Clone(o.Key(i)), strings.Clone(o.Sent(i)), o.Shown(i)
		}
	})
	for _, c := range []struct{ name, query, sent, shown, found string }{
		{"lucy", "lily", "login/192.0.2.1/lucy", "192.0.2.1 · lucy", "search/lily"},
		{"Lucy", "Bobby", "login/192.0.2.1/Lucy", "192.0.2.1 · Lucy", "search/Bobby"},
		{"joe", "", "login/192.0.2.1/joe", "192.0.2.1 · joe", "search/!"},
		{"a/by\u202e", "x", "login/192.0.2.1/a%2Fby%E2%80%AE", `192.0.2.1 · a/by\u202e`, "search/x"},
		{long, "z", "", "", "search/z"},
	} {
		e.Decide(t.Context(), &Request{
			Method: "POST", Path: "/login", RawQuery: "q=" + c.query, Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"Content-Type": {"application/json"}},
			Body: func(int64) ([]byte, error) { return fmt.Appendf(nil, `{"username":%q}`, c.name), nil },
		})
		if c.sent == "" {
			c.sent, c.shown = key["login"], shown["login"]
		}
		if len(sent) != 3 || sent["login"] != c.sent || shown["login"] != c.shown || sent["search"] != c.found {
			t.Errorf("%q with ?q=%s was sent as %q, shown as %q", c.name, c.query, sent, shown)
		}
		if is := e.Policy().ShownKey(key["hashed"]); shown["hashed"] != is {
			t.Errorf("the pseudonym %s is not that of what is counted, %s", shown["hashed"], is)
		}
	}
	// Administration knows the subject by any spelling, and tells it by the one that it was given.
	lucy, err := e.Subject("login", map[string]string{"client_ip": "192.0.2.1", "body:username": "Lucy"})
	if err != nil {
		t.Fatal(err)
	}
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
