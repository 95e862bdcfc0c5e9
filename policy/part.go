package policy

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy/internal/fields"
	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// part is a part of a key: what a rule tells requests apart by.
type part struct {
	kind    partKind
	name    string   // of the header, cookie, …; or the text of a constant
	text    string   // as written
	aliases []string // of a header: see headerAliases
}

type partKind uint8

const (
	clientIP partKind = iota
	headerPart
	apiKey
	cookiePart
	queryPart
	jwtPart
	bodyPart
	routePart
	hostPart
	methodPart
	constPart
	attrPart
	tlsFingerprint
)

// partKinds has the names of the parts, and what follows the colon, if anything does.
//
//   - client_ip is the address of the client, for IPv6 that of its network
//   - header:NAME is the value of a header
//   - api_key is X-API-Key, or the token of "Authorization: Bearer". It is a name that
//     somebody before or behind us has to verify. With both and different ones it is
//     garbled: then name the header that counts
//   - cookie:NAME and query:NAME
//   - jwt:CLAIM is a string, number or boolean in the payload of the bearer token. Its
//     signature is NOT verified: use it only behind something that has done so
//   - body:FIELD is a field of a JSON object or a form of at most 64 KiB
//   - route is the text of the pattern of the rule that matched
//   - host and method
//   - const:TEXT is the text
//   - attr:NAME is an attribute that the door has brought
//   - tls_fingerprint is the JA4 of the client's TLS, where the door ends it. It tells programs
//     apart and no people, and whoever wants to can look like another one: good beside the
//     address, for clients without a name
//
// Values of a query and a body are names that people type, so they are compared as
// databases compare names: see [fold.AppendName].
var partKinds = [...]struct{ name, arg string }{
	clientIP:   {"client_ip", ""},
	headerPart: {"header", "NAME"},
	apiKey:     {"api_key", ""},
	cookiePart: {"cookie", "NAME"},
	queryPart:  {"query", "NAME"},
	jwtPart:    {"jwt", "CLAIM"},
	bodyPart:   {"body", "FIELD"},
	routePart:  {"route", ""},
	hostPart:   {"host", ""},
	methodPart: {"method", ""},
	constPart:  {"const", "TEXT"},
	attrPart:   {"attr", "NAME"},

	tlsFingerprint: {"tls_fingerprint", ""},
}

// String returns what parsePart has read.
func (p *part) String() string { return p.text }

func parsePart(s string) (part, error) {
	name, arg, colon := strings.Cut(s, ":")
	for kind, k := range partKinds {
		if k.name != name {
			continue
		}
		switch {
		case k.arg == "" && colon:
			return part{}, fmt.Errorf("key part %.60q: %s stands alone, without a colon", s, name)
		case k.arg != "" && arg == "":
			return part{}, fmt.Errorf("key part %.60q: write it as %s:%s", s, name, k.arg)
		}
		p := part{kind: partKind(kind), name: arg, text: s}
		return p, p.checkName()
	}
	return part{}, fmt.Errorf("unknown key part %.60q: %s", s, meantPart(s))
}

func knownParts() string {
	var all []string
	for _, k := range partKinds {
		if k.arg != "" {
			k.name += ":" + k.arg
		}
		all = append(all, k.name)
	}
	return strings.Join(all, ", ")
}

// checkName checks the name, and makes that of a header canonical.
func (p *part) checkName() error {
	wrong := ""
	switch {
	case strings.ContainsFunc(p.name, hidden):
		wrong = "contains characters that do not show"
	case strings.TrimSpace(p.name) != p.name:
		wrong = "has spaces around it"
	case p.kind == headerPart || p.kind == cookiePart:
		if strings.Trim(p.name, tokenChars) != "" {
			wrong = "contains characters that such a name cannot have"
			if strings.Contains(p.name, " - ") {
				wrong = `is several parts: begin every "- " in the same column`
			}
		}
	}
	isField := p.kind == queryPart || p.kind == bodyPart
	if wrong == "" && (isField || p.kind == cookiePart) && !strings.ContainsFunc(p.name, isAlphanumeric) {
		wrong = "has neither a letter nor a digit: servers differ in what they make of such a name"
	}
	if isField {
		fold.Prepare()
	}
	if p.kind == headerPart {
		if p.name = http.CanonicalHeaderKey(p.name); p.name == "Host" {
			wrong = `cannot be read as a header: write "host"`
		}
	}
	if p.kind == headerPart {
		p.aliases = headerAliases(p.name)
		if p.aliases == nil && strings.ContainsAny(p.name, "-_") {
			wrong = "has more hyphens than names of headers have"
		}
	}
	if wrong != "" {
		return fmt.Errorf("key part %.60q: %.60q %s", p.text, p.name, wrong)
	}
	return nil
}

func isAlphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// headerAliases returns the other names that a server takes for a header's name if it
// does not tell "_" from "-", as CGI and what descends from it. There are none for a
// name with very many of them.
func headerAliases(name string) []string {
	var at []int
	for i := range len(name) {
		if name[i] == '-' || name[i] == '_' {
			at = append(at, i)
		}
	}
	if len(at) > 6 {
		return nil
	}
	var all []string
	for bits := range 1 << len(at) {
		alias := []byte(name)
		for n, i := range at {
			alias[i] = "-_"[bits>>n&1]
		}
		if s := http.CanonicalHeaderKey(string(alias)); s != http.CanonicalHeaderKey(name) {
			all = append(all, s)
		}
	}
	return all
}

var apiKeyHeader = part{kind: headerPart, name: "X-Api-Key", aliases: headerAliases("X-Api-Key")}

// header returns the value of the header. If it is there under an alias as well, or only,
// servers differ in what they read.
func (p *part) header(h http.Header) (string, fields.Presence) {
	for _, alias := range p.aliases {
		if len(h[alias]) > 0 {
			return "", fields.Garbled
		}
	}
	return fields.Header(h[p.name])
}

// value returns the value of the part in the request of x, which lives until x is reset.
// It reports false if the part is missing, and x.garbled then says which way. A part that
// is absent or empty is simply not there. A part that is garbled is there, but servers may
// differ in what they read: it is repeated with different values, malformed, in
// bytes that are not UTF-8, in a body that is compressed, too large or of an unknown
// type. Nobody may get past a rule that way: where an absent part makes a rule be
// skipped, a garbled one must not.
func (p *part) value(x *extractor) (string, bool) {
	v, state := p.find(x)
	x.garbled = state == fields.Garbled
	return v, state == fields.Present
}

func (p *part) find(x *extractor) (string, fields.Presence) {
	switch p.kind {
	case clientIP:
		return fields.Value(x.clientIP())
	case headerPart:
		return p.header(x.r.Header)
	case apiKey:
		return x.apiKey()
	case cookiePart:
		m, state := x.cookieMembers().Cookie(p.name)
		return m.Text, state
	case queryPart:
		return x.name(x.queryMembers().Field(p.name))
	case jwtPart:
		m, state := x.claimMembers().Claim(p.name)
		return m.Text, state
	case bodyPart:
		return x.name(x.bodyMembers().Field(p.name))
	case attrPart:
		return fields.Value(x.r.Attributes[p.name])
	case tlsFingerprint:
		return fields.Value(x.r.TLSFingerprint)
	case routePart:
		return fields.Value(x.route)
	case hostPart:
		return fields.Value(x.host())
	case methodPart:
		if m := pattern.Method(x.r.Method); pattern.IsMethod(m) {
			return m, fields.Present
		}
		return "", fields.Garbled // a name that anybody can make up
	}
	return p.name, fields.Present
}

// canonical returns a value that a policy names as value returns it; not for addresses.
func (p *part) canonical(v string) string {
	switch p.kind {
	case headerPart, apiKey:
		return strings.Trim(v, " \t")
	case hostPart:
		return pattern.Host(v)
	case methodPart:
		return pattern.Method(v)
	case queryPart, bodyPart:
		if name, ok := fold.AppendName(nil, v); ok {
			return string(name)
		}
	}
	return v
}

// hidden reports whether a character cannot be told by looking at it, or has replaced
// bytes that are not UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// tokenChars are what a name of a header or cookie is made of: a token of RFC 9110.
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
