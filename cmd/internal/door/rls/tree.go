package rls

import (
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Limits is a configuration of envoyproxy/ratelimit. It has a tree of descriptors for each domain, and a policy
// with a rule for each limit.
type Limits struct {
	// Document has a rule for each limit. The rule matches by the attribute "limit". Overrides, administration and
	// reports work as for other rules.
	Document policy.Document
	// Where returns the file and the line of a field of Document: see [policy.CompileAt].
	Where func(path string) (file string, line int)

	domains map[string]*node
	limits  []*limit // the limit of each rule of the document
}

// node is a descriptor of a configuration, or a domain.
type node struct {
	children map[string]*level // by key
	limit    *limit            // nil if the node has no limit
	place    place
}

// level has the descriptors with one key below a node.
type level struct {
	exact     map[string]*node // by value
	values    []string         // the values, as written
	wildcards []wildcard       // in the order of the file
	plain     *node            // the descriptor without a value
}

type wildcard struct {
	pattern string
	shared  bool // all values share one count
	*node
}

// place is a position in a file.
type place struct {
	file string
	line int
}

// limit is a rate_limit of the configuration.
type limit struct {
	place
	steps     []step // the path to the limit: the domain, then the descriptors
	rule      string // the name of the limit's rule in the policy; empty if the limit is unlimited
	requests  uint32
	unit      unit
	unlimited bool
	name      string
	replaces  []string
	shadow    bool
	quota     bool
	metadata  any
	own       settings
}

// step is the domain or a descriptor on the path to a limit.
type step struct {
	key, value string
	kind       stepKind
	shared     bool
}

type stepKind uint8

const (
	plainStep stepKind = iota
	exactStep
	wildcardStep
)

// open reports whether the step matches different values, which are counted separately.
func (s *step) open() bool { return s.kind == plainStep || s.kind == wildcardStep && !s.shared }

// settings are Sluice's settings of a limit, in its metadata under "sluice".
type settings struct {
	algorithm string
	burst     int64
	onError   string
}

// find returns the limit for a descriptor with the given entries, or nil. The path to the limit has one step for
// each entry. At each level, find prefers the descriptor with the exact value, then the first wildcard that
// matches, then the descriptor without a value.
func (l *Limits) find(domain string, entries []entry) *limit {
	n := l.domains[domain]
	for i := range entries {
		if n == nil {
			return nil
		}
		n = n.child(&entries[i])
	}
	if n == nil {
		return nil
	}
	return n.limit
}

func (n *node) child(e *entry) *node {
	of := n.children[e.key]
	if of == nil {
		return nil
	}
	if e.value != "" {
		if c := of.exact[e.value]; c != nil {
			return c
		}
	}
	for i := range of.wildcards {
		if matches(of.wildcards[i].pattern, e.value) {
			return of.wildcards[i].node
		}
	}
	return of.plain
}

// matches reports whether a text matches a pattern, in which "*" matches any text.
func matches(pattern, text string) bool {
	head, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == text
	}
	if !strings.HasPrefix(text, head) {
		return false
	}
	text = text[len(head):]
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text, rest = text[at+len(part):], next
	}
}

// unit is the period of a limit, as Envoy's enum value.
type unit int32

const (
	second unit = 1 + iota
	minute
	hour
	day
	month
	year
	week
)

var units = [...]struct {
	name    string
	period  string // in the syntax of [sluice.ParseLimit]
	seconds int64
}{
	second: {"second", "second", 1},
	minute: {"minute", "minute", 60},
	hour:   {"hour", "hour", 3600},
	day:    {"day", "day", 24 * 3600},
	month:  {"month", "30d", 30 * 24 * 3600},
	year:   {"year", "365d", 365 * 24 * 3600},
	week:   {"week", "7d", 7 * 24 * 3600},
}

// unitNamed returns the unit with the given name, ignoring case, or 0.
func unitNamed(name string) unit {
	for u := second; u <= week; u++ {
		if strings.EqualFold(units[u].name, name) {
			return u
		}
	}
	return 0
}

// unitOf returns the largest unit that divides a period, and the quotient.
func unitOf(seconds int64) (unit, int64) {
	for _, u := range []unit{year, month, week, day, hour, minute} {
		if seconds%units[u].seconds == 0 {
			return u, seconds / units[u].seconds
		}
	}
	return second, seconds
}

// The attributes of a descriptor in addition to those of its entries.
const (
	// domainAttribute is the domain of the request.
	domainAttribute = "domain"
	// descriptorAttribute has the keys of the entries in order, as in "path/remote_address".
	descriptorAttribute = "descriptor"
	// limitAttribute is the name of the rule, if the policy comes from a configuration of envoyproxy/ratelimit.
	limitAttribute = "limit"
)

// reserved reports whether the attribute of an entry must not have the name.
func reserved(name string) bool {
	return name == domainAttribute || name == descriptorAttribute || name == limitAttribute
}

// attributeName returns the name of an entry's attribute. before is the number of earlier entries with the same
// key. The first entry's name is the key, the second's is "key#2", and so on. If the key is reserved or looks like
// a numbered name, the first entry's name is numbered, too. So all attributes of a descriptor have different names.
func attributeName(key string, before int) string {
	switch {
	case reserved(key):
		before++
	case before == 0 && strings.IndexByte(key, '#') < 0:
		return key
	}
	return key + "#" + strconv.Itoa(before+1)
}

// countKeys returns the number of entries with the given key.
func countKeys(entries []entry, key string) (n int) {
	for i := range entries {
		if entries[i].key == key {
			n++
		}
	}
	return n
}

// appendShape appends the value of descriptorAttribute. Descriptors with different keys have different values.
func appendShape(dst []byte, entries []entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '/')
		}
		dst = sluice.AppendKeyPart(dst, entries[i].key)
	}
	return dst
}
