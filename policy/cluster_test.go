package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// Two rules are apart if a request that both hold for exists: the engine finds it among
// those here, or there is none.
func TestRulesThatMeet(t *testing.T) {
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
				// A pattern's host is not held against a rule's hosts: they are taken to meet.
				if _, apart := p.Cluster(); len(apart) > 0 != want && !strings.Contains(a+b, "hosts") {
					t.Errorf("ignore_case %v, {%s} and {%s}: %v, and it is %v that a request has both", ignoreCase, a, b, apart, want)
				} else if want && len(apart) == 0 {
					t.Errorf("{%s} and {%s} are not apart, and a request has both", a, b)
				}
			}
		}
	}
	if meet < 100 {
		t.Errorf("only %d pairs meet", meet)
	}
}

func TestHostsThatMeet(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "example.org", false},
		{"*.example.com", "example.com", false},
		{"*.example.com", "api.example.com", true},
		{"*.example.com", "*.api.example.com", true},
		{"*.example.com", "badexample.com", false},
	} {
		p := parse(t, fmt.Sprintf("rules:\n  - {name: a, limit: 1/day, hosts: ['%s']}\n  - {name: b, limit: 1/day, hosts: [x.test, '%s']}\n", test.a, test.b))
		if _, apart := p.Cluster(); len(apart) > 0 != test.want {
			t.Errorf("%s and %s: %v", test.a, test.b, apart)
		}
	}
}

func TestTags(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"key: [client_ip], together: [client_ip]", "key: [api_key, client_ip], together: [client_ip]", true},
		{"key: [client_ip], together: [client_ip]", "key: [client_ip]", false},
		{"key: [client_ip]", "key: [client_ip]", false},
		{"key: ['header:x-a'], together: ['header:x-a']", "key: ['header:X-A'], together: ['header:X-A']", true},
		{"key: ['header:a'], together: ['header:a']", "key: ['cookie:a'], together: ['cookie:a']", false},
		{"key: [host, method], together: [host, method]", "key: [host, method], together: [method, host]", false},
		{"key: [host, method], together: [host, method]", "key: [host, method], together: [host]", false},
		{"key: [route], together: [route], match: /", "key: [route], together: [route], match: /", true},
		{"key: [route], together: [route], match: /", "key: [route], together: [route], match: /a", false},
	} {
		e := engine(t, fmt.Sprintf("rules:\n  - {name: a, limit: 9/day, %s}\n  - {name: b, limit: 9/day, %s}\n", test.a, test.b))
		together, apart := e.policy.Load().Cluster()
		if len(together) > 0 != test.want || len(apart) > 0 == test.want {
			t.Errorf("{%s} and {%s}: together %v, apart %v", test.a, test.b, together, apart)
		}
		// The keys bear it out.
		trace := e.Explain(t.Context(), get("/a", "X-A: 1", "A: 2", "Cookie: a=3", "X-Api-Key: 4"))
		first, _, found := strings.Cut(trace.Rules[0].Key, "}")
		second, _, _ := strings.Cut(trace.Rules[1].Key, "}")
		if (found && first == second) != test.want {
			t.Errorf("{%s} and {%s}: the keys are %s and %s", test.a, test.b, trace.Rules[0].Key, trace.Rules[1].Key)
		}
	}
}
