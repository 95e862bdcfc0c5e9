package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// What a document may choose from, in the order of the values; the empty text is the first.
var (
	missingNames   = []string{share: "share", skip: "skip", refuse: "refuse"}
	onErrorNames   = []string{sluice.Allow.String(), sluice.Deny.String(), sluice.Local.String()}
	algorithmNames = func() (names []string) {
		for _, a := range sluice.Algorithms() {
			names = append(names, a.String())
		}
		return names
	}()
)

// choice returns the index in names of the value of a field, or 0 if it is left out.
func (c *compiler) choice(field, value string, names []string) int {
	i := slices.Index(names, value)
	if i < 0 && value != "" {
		c.fail(field, spelling.Suggest(value, names), "unknown %s %s", field, spelling.Quote(value))
	}
	return max(i, 0)
}

func (c *compiler) ambiguous(value string) ambiguous {
	if value == "" {
		return byKey
	}
	return refuseAmbiguous + ambiguous(c.choice("ambiguous", value, []string{"refuse", "charge"}))
}

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkName complains about a name that would not read well in a key or a header.
func (c *compiler) checkName(field, what, s string) bool {
	if nameSyntax.MatchString(s) {
		return true
	}
	hint := "use up to 64 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or digit"
	if lower := strings.ToLower(s); lower != s && nameSyntax.MatchString(lower) {
		hint = fmt.Sprintf("write %q", lower)
	}
	c.fail(field, hint, "%s %s is not a name", what, spelling.Quote(s))
	return false
}

const defaultIPv6Prefix = 64

func (c *compiler) ipv6Prefix(bits int) int {
	if bits == 0 {
		return defaultIPv6Prefix
	}
	c.between("ipv6_prefix", int64(bits), 128)
	return bits
}

// between complains about a number that is not from 1 to most.
func (c *compiler) between(field string, n, most int64) {
	if n < 1 || n > most {
		c.fail(field, fmt.Sprintf("use a number from 1 to %d", most), "%s is %d", field, n)
	}
}

func (c *compiler) prefixes(texts []string) (all []netip.Prefix) {
	for i, s := range texts {
		if p, ok := c.network(fmt.Sprintf("trusted_proxies[%d]", i), s); ok {
			all = append(all, p)
		}
	}
	return all
}

// parsePrefix reads an address or a CIDR. What IPv6 says of IPv4 is folded to IPv4.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, errors.New("neither an address nor a CIDR")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// unlimited are words that people write to mean no limit.
var unlimited = strings.Fields("unlimited none off no never inf infinite infinity .inf false disabled -1")

// limit reads the text of a limit, which is the same in many overrides.
func (c *compiler) limit(field, text string) sluice.Limit {
	l, known := c.texts[text]
	if known {
		return l
	}
	l, err := sluice.ParseLimit(text)
	if err != nil {
		c.noLimit(field, text, err)
		return sluice.Limit{}
	}
	c.texts[text] = l
	return l
}

// noLimit complains about a text that is not a limit.
func (c *compiler) noLimit(field, text string, err error) {
	several := severalLimits(text)
	switch {
	case slices.Contains(unlimited, strings.ToLower(text)):
		c.fail(field, "write how many may pass, as in \"10000/minute\"", "%s is not a limit", spelling.Quote(text))
	case several != "":
		c.fail(field, fmt.Sprintf("write \"limits: [%s]\"", several), "%s is more than one limit", spelling.Quote(text))
	default:
		c.fail(field, "", "%v", err)
	}
}

func (c *compiler) patterns(texts []string) (all []*pattern.Pattern) {
	for i, s := range texts {
		p, err := pattern.Parse(s)
		if err != nil {
			c.fail(fmt.Sprintf("match[%d]", i), "", "%v", err)
			continue
		}
		all = append(all, p)
	}
	return all
}

// hostSyntax takes names and IPv4 addresses, in lower case.
var hostSyntax = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

func (c *compiler) hosts(texts []string) (all []string) {
	for i, s := range texts {
		host := strings.TrimSuffix(strings.ToLower(s), ".")
		if host == "*" {
			c.fail(fmt.Sprintf("hosts[%d]", i), "leave hosts out: a rule without them is for every host", "%s is not a host", spelling.Quote(s))
			continue
		}
		if !hostSyntax.MatchString(strings.TrimPrefix(host, "*.")) {
			c.fail(fmt.Sprintf("hosts[%d]", i), "write it as in example.com or \"*.example.com\", without scheme and port", "%s is not a host", spelling.Quote(s))
			continue
		}
		all = append(all, host)
	}
	return all
}

func (c *compiler) headers(values map[string]string) (all []headerCondition) {
	for _, name := range sortedKeys(values) {
		field := fmt.Sprintf("headers[%q]", name)
		if !c.headerName(field, name) {
			continue
		}
		h := headerCondition{name: http.CanonicalHeaderKey(name), value: strings.TrimSpace(values[name])}
		switch {
		case values[name] == "*":
			h.value = ""
		case h.value == "":
			c.fail(field, "write a value, or \"*\" for any", "header %s is empty", spelling.Quote(name))
		}
		if slices.ContainsFunc(all, func(o headerCondition) bool { return o.name == h.name }) {
			c.fail(field, "remove one of them", "the header %s is written twice", h.name)
		}
		all = append(all, h)
	}
	return all
}

func (c *compiler) headerName(field, s string) bool {
	switch {
	case !token(s):
		c.fail(field, "write it as in X-Plan", "%s is not the name of a header", spelling.Quote(s))
	case strings.EqualFold(s, "Host"):
		c.fail(field, "write \"hosts: [example.com]\"", "Host cannot be read as a header")
	default:
		return true
	}
	return false
}

// canonicalHeader returns the name of a header as requests have it, or "" where there is none.
func (c *compiler) canonicalHeader(field, s string) string {
	if s == "" || !c.headerName(field, s) {
		return ""
	}
	return http.CanonicalHeaderKey(s)
}

func (c *compiler) part(field, text string) *part {
	p, err := parsePart(text)
	if err != nil {
		c.fail(field, "", "%v", err)
		return nil
	}
	return &p
}

func (c *compiler) parts(of string, texts []string, all []part) []part {
	for i, text := range texts {
		field := fmt.Sprintf("%s[%d]", of, i)
		p := c.part(field, text)
		if p == nil {
			continue
		}
		if slices.ContainsFunc(all, func(o part) bool { return o.kind == p.kind && o.name == p.name }) {
			c.fail(field, "remove one of them", "key has the part %s twice", spelling.Quote(text))
		}
		all = append(all, *p)
	}
	if len(all) > maxKeyParts {
		c.fail(of, "leave out what tells nobody apart", "key has %d parts, and %d are the most", len(all), maxKeyParts)
	}
	return all
}
