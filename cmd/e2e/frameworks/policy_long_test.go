//go:build long

package frameworks

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
)

// policyText has a login for each kind of key, at "/KIND/login". It allows one login a day for each value of the key.
const policyText = `version: 1
ignore_case: %t
ambiguous: %s
rules:
  - {name: static, match: /static/, exempt: true}
  - {name: ip, match: /ip/login, key: [client_ip], limit: 1/day}
  - {name: body, match: /body/login, key: ["body:user_name"], limit: 1/day}
  - {name: skip, match: /skip/login, key: ["body:user_name"], missing: skip, limit: 1/day}
  - {name: query, match: /query/login, key: ["query:user_name"], limit: 1/day}
  - {name: cookie, match: /cookie/login, key: ["cookie:user_name"], missing: skip, limit: 1/day}
  - {name: header, match: /header/login, key: ["header:X-User-Name"], missing: skip, limit: 1/day}
  - {name: host, match: /host/login, hosts: [login.test], key: [client_ip], limit: 1/day}
`

// modes are the values of "ambiguous", the setting for requests that can be read in several ways.
var modes = []string{"refuse", "charge"}

// reads maps each kind of login to the part of a request that is its key.
var reads = map[string]string{
	"ip": "", "body": "body", "skip": "body", "query": "query", "cookie": "cookie", "header": "header", "host": "host",
}

// accounts are the names with no logins left.
var accounts = []string{"alice", "4711", "jürgen", "straße", "σωκράτης", "o'neill@example.org"}

// unclear returns a request with an ambiguous key, in each part that a key can come from. It uses up the limit that all
// ambiguous requests share.
func unclear(kind string) string {
	return sized(compose("POST /"+kind+"/login?user_name=1&user_name=2", "Cookie: user_name=1; user_name=2", "X-User-Name: 1", "X-User-Name: 2",
		"Content-Type: "+formType) + "user_name=1&user_name=2")
}

// A bypass is a way past a limit: the idioms by which a login handler was reached and has read a used up name.
type bypass struct{ kind, path, value, name string }

// idioms returns a text that is equal for ways that need the same fix.
func (b bypass) idioms() string { return b.kind + b.path + b.value }

func (b bypass) String() string {
	return fmt.Sprintf("/%s/login by %q with %q by %q", b.kind, b.path, b.name, b.value)
}

// bypasses returns the ways past a limit that a line shows: pairs of idioms by which a
// program may choose the handler and read the name.
func bypasses(l line, ignoreCase bool) (all []bypass) {
	for pathIdiom, path := range l.Took {
		if path == nil {
			continue
		}
		kind, ok := loginKind(pathIdiom, *path, ignoreCase)
		if !ok {
			continue
		}
		if reads[kind] == "" {
			all = append(all, bypass{kind: kind, path: pathIdiom})
		}
		for idiom, value := range l.Took {
			if part, _, _ := strings.Cut(idiom, " "); part == reads[kind] && value != nil && usedUp(kind, *value) {
				all = append(all, bypass{kind, pathIdiom, idiom, *value})
			}
		}
	}
	slices.SortFunc(all, func(a, b bypass) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// loginKind returns the kind of login that a path belongs to.
func loginKind(idiom, path string, ignoreCase bool) (string, bool) {
	if ignoreCase {
		path = strings.ToLower(path)
	}
	kind, login := strings.CutSuffix(strings.TrimPrefix(path, "/"), "/login")
	_, known := reads[kind]
	return kind, login && known && strings.HasPrefix(idiom, "path ") && strings.HasPrefix(path, "/")
}

// usedUp reports whether a limit of one login for a value is used up.
func usedUp(kind, value string) bool {
	switch kind {
	case "cookie", "header":
		return slices.Contains(accounts, value)
	case "host":
		host, _, _ := strings.Cut(value, ":")
		return strings.EqualFold(strings.TrimSuffix(host, "."), "login.test")
	}
	return slices.ContainsFunc(accounts, func(name string) bool { return sameAccount(name, value) })
}

// sameAccount compares as databases do that ignore case and accents: by the first level of Unicode's collation.
func sameAccount(a, b string) bool {
	b = strings.TrimSpace(b)
	if a == b {
		return true
	}
	return len(b) < 200 && collate.New(language.Und, collate.Loose).CompareString(a, b) == 0
}
