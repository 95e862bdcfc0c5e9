package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// Cluster reports two rules as apart if both apply to some request. The test compares this with decisions about many
// requests.
func TestRulesThatMeet(t *testing.T) {
	t.Parallel()
	var requests []*Request
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, host := range []string{"example.com", "api.example.com", "a.api.example.com", "other.test"} {
			for _, path := range []string{"/", "/a", "/A", "/a/b", "/a/c", "/b", "/b/c", "/a/b/c"} {
				requests = append(requests, &Request{Method: method, Host: host, Path: path})
			}
		}
	}
	conditions := []string{
		"", "match: /", "match: /a", "match: /A", "match: /a/", "match: '/a/{x}'", "match: '/{x}/c'", "match: '/{x}/{y}'", "match: '/a/{x...}'",
		"match: GET /a", "match: HEAD /a", "match: POST /a", "match: [POST /a, /b/c]", "match: example.com/a", "match: api.example.com/",
		"hosts: [example.com]", "hosts: ['*.example.com']", "hosts: ['*.api.example.com']", "hosts: [api.example.com, other.test]", "hosts: [other.test], match: /a/b",
	}
	meet := 0
	for _, ignoreCase := range []bool{false, true} {
		for i, a := range conditions {
			for _, b := range conditions[:i+1] {
				p := parse(t, fmt.Sprintf("ignore_case: %v\nrules:\n  - {name: a, limit: 9999/day, %s}\n  - {name: b, limit: 9999/day, %s}\n", ignoreCase, a, b))
				e := NewEngine(memory.New(), p)
				want := slices.ContainsFunc(requests, func(r *Request) bool { return len(e.Decide(t.Context(), r).Results) == 2 })
				if want {
					meet++
				}
				// Cluster does not compare a pattern's host with a rule's hosts, and assumes that they can both match.
				if _, apart := p.Cluster(); len(apart) > 0 != want && !strings.Contains(a+b, "hosts") {
					t.Errorf("ignore_case %v, {%s} and {%s}: %v, and both apply to a request: %v", ignoreCase, a, b, apart, want)
				} else if want && len(apart) == 0 {
					t.Errorf("{%s} and {%s} are not apart, and both apply to a request", a, b)
				}
			}
		}
	}
	if meet < 100 {
		t.Errorf("only %d pairs meet", meet)
	}
}

func TestHostsThatMeet(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "hosts of rules that meet") {
		a, b, _ := strings.Cut(row.In, ", ")
		p := parse(t, fmt.Sprintf("rules:\n  - {name: a, limit: 1/day, hosts: ['%s']}\n  - {name: b, limit: 1/day, hosts: [x.test, '%s']}\n", a, b))
		if _, apart := p.Cluster(); fmt.Sprint(len(apart) > 0) != row.Want {
			t.Errorf("%s: %v", row.In, apart)
		}
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "hash tags") {
		a, b, _ := strings.Cut(row.In, " & ")
		e := engine(t, fmt.Sprintf("rules:\n  - {name: a, limit: 9/day, %s}\n  - {name: b, limit: 9/day, %s}\n", a, b))
		together, apart := e.Policy().Cluster()
		want := row.Want == "true"
		if len(together) > 0 != want || len(apart) > 0 == want {
			t.Errorf("%s: together %v, apart %v", row.In, together, apart)
		}
		// The keys confirm this.
		trace := e.Explain(t.Context(), get("/a", "X-A: 1", "A: 2", "Cookie: a=3", "X-Api-Key: 4"))
		first, _, found := strings.Cut(trace.Rules[0].Key, "}")
		second, _, _ := strings.Cut(trace.Rules[1].Key, "}")
		if (found && first == second) != want {
			t.Errorf("%s: the keys are %s and %s", row.In, trace.Rules[0].Key, trace.Rules[1].Key)
		}
	}
}

func TestDefaultOnError(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "words of paths that close a rule while the store is unavailable") {
		p := must(pattern.Parse(row.In))
		if got := defaultOnError(nil, []*pattern.Pattern{p}, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: %v, want %v", row.In, got, row.Want)
		}
		if got := defaultOnError(nil, []*pattern.Pattern{p}, true); got != sluice.Allow {
			t.Errorf("%q in shadow: %v", row.In, got)
		}
	}
	if got := defaultOnError([]string{"login.example.com"}, nil, false); got != sluice.Deny {
		t.Errorf("a host: %v", got)
	}
}
