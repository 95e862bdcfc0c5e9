package policy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluicehq/sluice"
)

// An outage is told as it is decided, and why: the word that closes a rule, too.
func TestOutages(t *testing.T) {
	t.Parallel()
	p := parse(t, `
rules:
  - {name: closed, match: [GET /api, POST /v1/Sign-In], limit: 1/day}
  - {name: host, match: /anything, hosts: [pay.example.com], limit: 1/day}
  - {name: renamed, match: /billing, limit: 1/day}
  - {name: open, match: /login, limit: 1/day, on_error: allow}
  - {name: share, match: /api, limit: 1/day, on_error: local}
  - {name: watched, match: /login, limit: 1/day, shadow: true, on_error: deny}
  - {name: health, match: /health, exempt: true}`)
	want := []Outage{
		{"closed", sluice.Deny, `by default, since "POST /v1/Sign-In" names "signin"`},
		{"host", sluice.Deny, `by default, since "pay.example.com" names "pay"`},
		{"renamed", sluice.Allow, "by default"},
		{"open", sluice.Allow, "it says so"},
		{"share", sluice.Local, "it says so"},
		{"watched", sluice.Allow, "a shadow never refuses"},
		{"health", sluice.Allow, "it exempts"},
	}
	if got := p.Outages(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDefaultOnError(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "words of paths that close a rule while the store is away") {
		p := patternOf(t, row.In)
		if got := defaultOnError(nil, []*pattern{p}, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: %v, want %v", row.In, got, row.Want)
		}
		if got := defaultOnError(nil, []*pattern{p}, true); got != sluice.Allow {
			t.Errorf("%q in shadow: %v", row.In, got)
		}
	}
	if got := defaultOnError([]string{"login.example.com"}, nil, false); got != sluice.Deny {
		t.Errorf("a host: %v", got)
	}
}
