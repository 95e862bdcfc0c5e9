package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// In a policy of many rules, exactly those rules apply to a request that would apply as the only rule of a policy.
func TestIndexAgainstSingleRules(t *testing.T) {
	t.Parallel()
	var docs []string
	for _, host := range []string{"", ", hosts: [a.test]", `, hosts: ["*.test", b.org]`, ", hosts: [c.a.test]"} {
		for _, match := range []string{"", ", match: /x", `, match: ["GET /x/{id}", /y/]`, `, match: [POST /x, "a.test/x/"]`} {
			for _, header := range []string{"", ", headers: {A: one}", `, headers: {B: "*"}`, ", headers: {A: two, B: one}"} {
				docs = append(docs, fmt.Sprintf("{name: r%d%s%s%s, limit: 1000000/day}", len(docs), host, match, header))
			}
		}
	}
	all := engine(t, "rules: ["+strings.Join(docs, ",\n")+"]")
	var single []*Engine
	for _, d := range docs {
		single = append(single, engine(t, "rules: ["+d+"]"))
	}
	applied := 0
	for _, host := range []string{"", "a.test", "A.test:81", "c.a.test", "b.org", "test"} {
		for _, path := range []string{"/", "/x", "/x/1", "/y/z", "/y%2fz", "/x/../y", "/x/1/2"} {
			for _, method := range []string{"GET", "POST"} {
				for _, headers := range []string{"", "A: one", "B: one", "A: two|B: one", "A: one|A: two|B: 2"} {
					r := request(method, path, "192.0.2.1", strings.Split(headers, "|")...)
					r.Host = host
					var got, want []string
					for _, res := range all.Decide(t.Context(), r).Results {
						got = append(got, res.Rule)
					}
					for _, e := range single {
						for _, res := range e.Decide(t.Context(), r).Results {
							want = append(want, res.Rule)
						}
					}
					if applied += len(got); !slices.Equal(got, want) {
						t.Fatalf("%s %s%s %s:\n got %v\nwant %v", method, host, path, headers, got, want)
					}
				}
			}
		}
	}
	if applied < 1000 {
		t.Errorf("only %d rules applied in all", applied)
	}
}
