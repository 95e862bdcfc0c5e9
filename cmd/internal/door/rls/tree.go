package rls

import (
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Limits is a configuration of envoyproxy/ratelimit: a tree of descriptors by domain, and a policy
// with a rule for each limit in it.
type Limits struct {
	// Document has a rule for each limit, by the attribute "limit": what is counted and how, so
	// that overrides, administration and reports see it as they see any other.
	Document policy.Document
	// Where returns the file and line of a field of the document: see [policy.CompileAt].
	Where func(path string) (file string, line int)

	domains map[string]*node
	limits  []*limit // of each rule of the document
}

// node is a descriptor of a configuration, or a domain.
type node struct {
	children map[string]*level // by key
	limit    *limit            // nil: none
	place    place
}

// level are the descriptors of one key below a node.
type level struct {
	exact     map[string]*node // by value
	values    []string         // of these, as they are written
	wildcards []wildcard       // in the order of the file
	plain     *node            // without a value
}

type wildcard struct {
	pattern string
	shared  bool // one count for all values
	*node
}

// place is where something is written.
type place struct {
	file string
	line int
}

// limit is a rate_limit.
type limit struct {
	place
	steps     []step // the way to it
	rule      string // its name in the policy; empty if it is unlimited
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

// step is a descriptor on the way to a limit.
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

// open reports whether requests with different values come this way, and are counted apart.
func (s *step) open() bool { return s.kind == plainStep || s.kind == wildcardStep && !s.shared }

// settings are ours of a limit, in its metadata below "sluice".
type settings struct {
	algorithm string
	burst     int64
	onError   string
}

// find returns the limit of a descriptor, or nil: exactly as deep as the descriptor, and at each
// level by the value, else by the first wildcard that matches, else by the key alone.
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

// matches reports whether a text is that of a pattern, in which "*" stands for any text.
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

// unit is a period of a limit, as Envoy numbers them.
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
	period  string // as [sluice.ParseLimit] reads it
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

// unitNamed returns the unit of that name, in any case, or 0.
func unitNamed(name string) unit {
	for u := second; u <= week; u++ {
		if strings.EqualFold(units[u].name, name) {
			return u
		}
	}
	return 0
}

// unitOf returns the largest unit of which a period is a multiple, and how many of it.
func unitOf(seconds int64) (unit, int64) {
	for _, u := range []unit{year, month, week, day, hour, minute} {
		if seconds%units[u].seconds == 0 {
			return u, seconds / units[u].seconds
		}
	}
	return second, seconds
}

// The attributes by which rules see a descriptor, besides those of its entries.
const (
	// domainAttribute is the domain of the request.
	domainAttribute = "domain"
	// descriptorAttribute are the keys of the entries, in their order, as in "path/remote_address".
	descriptorAttribute = "descriptor"
	// limitAttribute is the rule of the limit that a configuration of envoyproxy/ratelimit has.
	limitAttribute = "limit"
)

// reserved are the names that no entry takes.
func reserved(name string) bool {
	return name == domainAttribute || name == descriptorAttribute || name == limitAttribute
}

// attributeName returns the name of the attribute of an entry: its key, but "key#2" for the second
// of a key, and so on. Names that are the door's, and keys that look like such a name, are numbered
// from the first on, so that no two entries of a descriptor have one name.
func attributeName(key string, before int) string {
	switch {
	case reserved(key):
		before++
	case before == 0 && strings.IndexByte(key, '#') < 0:
		return key
	}
	return key + "#" + strconv.Itoa(before+1)
}

// countKeys returns how many of the entries have a key.
func countKeys(entries []entry, key string) (n int) {
	for i := range entries {
		if entries[i].key == key {
			n++
		}
	}
	return n
}

// appendShape appends the value of descriptorAttribute: descriptors with different keys never have the same.
func appendShape(dst []byte, entries []entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '/')
		}
		dst = sluice.AppendKeyPart(dst, entries[i].key)
	}
	return dst
}
