package parts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy/internal/fields"
	"github.com/sluicehq/sluice/policy/internal/fold"
)

// Part is a part of a key: a property by which a rule distinguishes requests.
type Part struct {
	kind    *kind
	name    string   // the name of the header, cookie and so on, or the text of a constant
	text    string   // the part as written in the rule
	id      string   // see ID
	aliases []string // other names that servers accept for a header: see headerAliases
	// If IgnoreCase is set, paths that differ only in case are equal.
	IgnoreCase bool
}

// Parse reads a part of a key. Most of its errors contain a suggestion.
func Parse(s string) (Part, error) {
	name, arg, colon := strings.Cut(s, ":")
	i := slices.IndexFunc(partKinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return Part{}, fmt.Errorf("unknown key part %.60q: %s", s, meantPart(s))
	}
	k := &partKinds[i]
	switch {
	case k.arg == "" && colon:
		return Part{}, fmt.Errorf("key part %.60q: %s takes no name: write it without a colon", s, name)
	case k.arg != "" && arg == "":
		return Part{}, fmt.Errorf("key part %.60q: write it as %s:%s", s, name, k.arg)
	}
	p := Part{kind: k, name: arg, text: s}
	if wrong := p.checkName(); wrong != "" {
		return p, fmt.Errorf("key part %.60q: %.60q %s", s, p.name, wrong)
	}
	p.id = name + ":" + p.name
	return p, nil
}

// String returns the part as the rule writes it.
func (p *Part) String() string { return p.text }

// ID returns the same text for all spellings of a part, such as header:x-a and header:X-A.
func (p *Part) ID() string { return p.id }

// Header returns the name of the header field of the part, or "".
func (p *Part) Header() string {
	if p.kind.name != headerKind {
		return ""
	}
	return p.name
}

// Constant returns the value of a part that is the same for all requests, and reports whether this is such a part.
func (p *Part) Constant() (value string, ok bool) { return p.name, p.kind.source == fromRule }

// IsRoute reports whether the value is the pattern that matches the request.
func (p *Part) IsRoute() bool { return p.kind.source == fromPattern }

// IsAddress reports whether the value is the address of the client.
func (p *Part) IsAddress() bool { return p.kind.source == fromPeer }

// ReadsBody reports whether the body has to be read to find the value.
func (p *Part) ReadsBody() bool { return p.kind.source == fromBody }

// NeedsTLS reports whether requests have the part only if the listener terminates TLS.
func (p *Part) NeedsTLS() bool { return p.kind.source == fromTLS }

// Folds reports whether values are folded before they are compared, because they are names that people type.
func (p *Part) Folds() bool { return p.kind.source == fromQuery || p.kind.source == fromBody }

// IsFree reports whether clients can choose any value.
func (p *Part) IsFree() bool { return p.kind.chosen >= free }

// IsChosen reports whether clients choose the value, freely or among the hosts that are served.
func (p *Part) IsChosen() bool { return p.kind.chosen >= served }

// IsClaim reports whether the value is a claim of a token, which a server has to verify.
func (p *Part) IsClaim() bool { return p.kind.chosen == claimed }

// IsSecret reports whether knowledge of a value may be enough to act as another client.
func (p *Part) IsSecret() bool { return p.kind.shown == asSecret || p.Header() == "Authorization" }

// IsVerbatim reports whether values are written in keys unchanged.
func (p *Part) IsVerbatim() bool { return p.kind.verbatim }

// isNamed reports whether the value is a name that a client or the program chooses.
func (p *Part) isNamed() bool { return p.kind.shown >= asName }

// Canonical converts a value in a document to the form that Value returns. It is not for addresses.
func (p *Part) Canonical(v string) string {
	if v = p.kind.canonical(v); p.IgnoreCase && p.kind.name == pathKind {
		return string(fold.AppendCase(nil, v))
	}
	return v
}

// Value returns the value of the part in the request of x. It is valid until x is reset. Value reports false if the
// part is absent or garbled; x.Garbled() tells which. An empty part counts as absent. A garbled part is
// present, but servers may read it differently, because it is repeated with different values, malformed, not UTF-8,
// or in a body that is compressed, too large or of an unknown type. A request that lacks the part may skip the
// rule. A request with a garbled part must not, because clients could evade the rule.
func (p *Part) Value(x *Reader) (string, bool) {
	if x.request.Recorded != nil {
		return p.recordedValue(x)
	}
	return p.find(x)
}

// find implements Value for requests without recorded readings.
func (p *Part) find(x *Reader) (string, bool) {
	v, state := p.kind.find(p, x)
	x.state = state
	return v, state == fields.Present
}

// List has the parts of a key, in their order.
type List []Part

// Has reports whether the list has a part with the given text.
func (l List) Has(text string) bool { return l.Index(text) >= 0 }

// Index returns the index of the part with the given text, or -1.
func (l List) Index(text string) int {
	return slices.IndexFunc(l, func(p Part) bool { return p.text == text })
}

// Any reports whether at least one part has a property, such as [Part.Folds].
func (l List) Any(is func(*Part) bool) bool {
	return slices.ContainsFunc(l, func(p Part) bool { return is(&p) })
}

// Contains reports whether the list has the part p, perhaps in another spelling.
func (l List) Contains(p *Part) bool {
	return slices.ContainsFunc(l, func(o Part) bool { return o.ID() == p.ID() })
}

// Names returns the texts of the parts.
func (l List) Names() []string {
	names := make([]string, len(l))
	for i := range l {
		names[i] = l[i].text
	}
	return names
}

// Unknown returns the names in values that are not parts of the list.
func (l List) Unknown(values map[string]string) (names []string) {
	for name := range values {
		if !l.Has(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// known returns a list of all kinds of parts, in the form of the documentation.
func known() string {
	var all []string
	for _, k := range partKinds {
		if k.arg != "" {
			k.name += ":" + k.arg
		}
		all = append(all, k.name)
	}
	return strings.Join(all, ", ")
}

// checkName makes the name canonical, or returns an error message about it.
func (p *Part) checkName() (wrong string) {
	switch {
	case strings.ContainsFunc(p.name, Hidden):
		return "contains invisible characters"
	case strings.TrimSpace(p.name) != p.name:
		return "has leading or trailing spaces"
	case p.kind.check == nil:
		return ""
	}
	return p.kind.check(p)
}

func anyText(*Part) string { return "" }

func checkToken(p *Part) (wrong string) {
	switch {
	case strings.Trim(p.name, tokenChars) == "":
		return ""
	case strings.Contains(p.name, " - "):
		return `is several parts: align every "- "`
	}
	return "contains invalid characters"
}

func checkCookie(p *Part) (wrong string) {
	if wrong := checkToken(p); wrong != "" {
		return wrong
	}
	return checkLetters(p)
}

// checkField checks the name of a field. It also loads the table that folding needs.
func checkField(p *Part) (wrong string) {
	fold.Prepare()
	return checkLetters(p)
}

func checkLetters(p *Part) (wrong string) {
	if strings.ContainsFunc(p.name, isAlphanumeric) {
		return ""
	}
	return "has neither a letter nor a digit: servers treat such names differently"
}

func checkHeader(p *Part) (wrong string) {
	if wrong := checkToken(p); wrong != "" {
		return wrong
	}
	p.name = http.CanonicalHeaderKey(p.name)
	p.aliases = headerAliases(p.name)
	switch {
	case p.name == "Host":
		return `cannot be read as a header: write "host"`
	case p.aliases == nil && strings.ContainsAny(p.name, "-_"):
		return "has more than six hyphens and underscores"
	}
	return ""
}

func isAlphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// headerAliases returns the other spellings of a header's name for servers that treat "_" and "-" as equal, like
// CGI and its descendants. It returns nil for a name with more than six "-" and "_".
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

// Hidden reports whether a character is invisible, or is the replacement for bytes that are not UTF-8.
func Hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// tokenChars has the characters that names of headers and cookies may have: those of a token of RFC 9110.
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
