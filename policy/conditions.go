package policy

import (
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluicehq/sluice/internal/bytesize"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/networks"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

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

// hostSyntax matches names and IPv4 addresses, in lower case.
var hostSyntax = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

func (c *compiler) hosts(texts []string) (all []string) {
	for i, s := range texts {
		host := strings.TrimSuffix(strings.ToLower(s), ".")
		if host == "*" {
			c.fail(fmt.Sprintf("hosts[%d]", i), "remove hosts: a rule without them applies to every host", "%s is not a host", spelling.Quote(s))
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

// headerCondition is a header that a request must have. An empty value matches any value.
type headerCondition struct{ name, value string }

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
			c.fail(field, "remove one of them", "the header %s occurs twice", h.name)
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

// canonicalHeader returns the canonical name of a header, or "" if the name is invalid.
func (c *compiler) canonicalHeader(field, s string) string {
	if s == "" || !c.headerName(field, s) {
		return ""
	}
	return http.CanonicalHeaderKey(s)
}

// attributeCondition is an attribute that a request must have. An empty value matches any value. The text is for
// explanations.
type attributeCondition struct{ name, value, text string }

// attributePrefix precedes the name of an attribute in an explanation. The name of a header never starts like this,
// because it has no spaces.
const attributePrefix = "the attribute "

func (a *attributeCondition) matches(attributes map[string]string) bool {
	v := attributes[a.name]
	return v != "" && (a.value == "" || a.value == v)
}

func (c *compiler) attributes(values map[string]string) (all []attributeCondition) {
	for _, name := range sortedKeys(values) {
		field, value := fmt.Sprintf("attributes[%q]", name), values[name]
		switch {
		case name == "" || strings.ContainsFunc(name, parts.Hidden) || strings.TrimSpace(name) != name:
			c.fail(field, "write it as in the program, for example plan", "%s is not the name of an attribute", spelling.Quote(name))
		case strings.HasPrefix(name, "attr:"):
			c.fail(field, "write "+spelling.Quote(strings.TrimPrefix(name, "attr:")), "the attribute %s is written without attr:", spelling.Quote(name))
		case value == "":
			c.fail(field, "write a value, or \"*\" for any", "attribute %s is empty", spelling.Quote(name))
		case value == "*":
			value = ""
		}
		all = append(all, attributeCondition{name, value, attributePrefix + spelling.Quote(name)})
	}
	return all
}

// clientSet is a set of addresses in a condition of a rule: a list of the document, or all networks that the rule
// itself names.
type clientSet struct {
	list string         // the name of the list, or ""
	own  []netip.Prefix // the networks that the rule itself names
	*networks.Set
}

// name returns the list or network of the set that contains an address.
func (c *clientSet) name(a netip.Addr) string {
	i := slices.IndexFunc(c.own, func(p netip.Prefix) bool { return p.Contains(a) })
	if i < 0 {
		return c.list
	}
	return c.own[i].String()
}

// setWith returns the first of the sets that contains the address, or nil.
func setWith(sets []*clientSet, a netip.Addr) *clientSet {
	for _, s := range sets {
		if s.Contains(a) {
			return s
		}
	}
	return nil
}

// asksForClient reports whether the rule has conditions on the address of the client.
func (r *rule) asksForClient() bool { return len(r.clients)+len(r.notClients) > 0 }

// unmetClient returns the setting that excludes the address of the client, "clients" or "not_clients", or "" if none
// does. A client without an address is in no list, and an exemption with not_clients does not exempt it.
func (r *rule) unmetClient(in *input) string {
	a := in.x.Address()
	switch {
	case len(r.clients) > 0 && setWith(r.clients, a) == nil:
		return "clients"
	case len(r.notClients) > 0 && (setWith(r.notClients, a) != nil || r.exempt && !a.IsValid()):
		return "not_clients"
	}
	return ""
}

// whyClient returns the reason why the client meets the rule's conditions on its address, or "".
func (r *rule) whyClient(in *input) string {
	a := in.x.Address()
	var all []string
	if set := setWith(r.clients, a); set != nil {
		all = append(all, fmt.Sprintf("client %v is in %s", a, set.name(a)))
	}
	if len(r.notClients) > 0 {
		all = append(all, fmt.Sprintf("client %v is not in %s", a, namesOf(r.notClients)))
	}
	return strings.Join(all, ", ")
}

// whyNotClient returns the reason why the client does not meet a condition.
func (r *rule) whyNotClient(in *input, condition string) string {
	a := in.x.Address()
	set := setWith(r.notClients, a)
	switch {
	case !a.IsValid():
		return "the client has no address"
	case condition == "clients":
		return fmt.Sprintf("client %v is not in %s", a, namesOf(r.clients))
	}
	return fmt.Sprintf("client %v is in %s", a, set.name(a))
}

// maxNamed is the maximum number of networks of a rule that an explanation lists.
const maxNamed = 5

func namesOf(sets []*clientSet) string {
	var all []string
	for _, s := range sets {
		if s.list != "" {
			all = append(all, s.list)
		}
		for _, p := range s.own[:min(len(s.own), maxNamed)] {
			all = append(all, p.String())
		}
		if more := len(s.own) - maxNamed; more > 0 {
			all = append(all, fmt.Sprintf("%d more", more))
		}
	}
	return spelling.OneOf(all)
}

// isNetwork reports whether an entry of clients is an address or a network, and not the name of a list. The name of a
// list starts with a letter.
func isNetwork(s string) bool {
	return strings.ContainsAny(s, ":/") || strings.IndexFunc(s, unicode.IsDigit) == 0
}

// readLists compiles the lists of a document, by their names.
func (c *compiler) readLists(lists map[string]List) {
	c.lists = make(map[string]*clientSet, len(lists))
	for _, name := range sortedKeys(lists) {
		field := fmt.Sprintf("lists[%q]", name)
		if c.checkName(field, "list", name) && isNetwork(name) {
			c.fail(field, "start it with a letter, so that it cannot be confused with an address", "list %s is not a name", spelling.Quote(name))
		}
		l := lists[name]
		if l.File != "" && l.Networks == nil {
			c.fail(field, "load the policy with package policyfile, or set Networks", "list %s is in the file %s, which has not been loaded", spelling.Quote(name), spelling.Quote(l.File))
		}
		c.lists[name] = &clientSet{list: name, Set: networks.New(c.networks(field, l.Networks))}
	}
}

// maxBadEntries is the maximum number of errors about the entries of one list. In a file that is not a list, every line
// would be an error.
const maxBadEntries = 20

func (c *compiler) networks(field string, texts []string) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(texts))
	for i, s := range texts {
		p, ok := c.network(fmt.Sprintf("%s[%d]", field, i), s)
		if ok {
			all = append(all, p)
		} else if i-len(all) == maxBadEntries-1 {
			break
		}
	}
	return all
}

// fileName matches a text that was probably meant as the file of a list.
var fileName = regexp.MustCompile(`^[a-zA-Z0-9_./-]*[a-zA-Z_-][a-zA-Z0-9_-]*\.(txt|list|lst|conf|csv|netset|ipset)$`)

// network reads an address or a network, and complains about an address with a prefix length that cuts off some of
// its bits.
func (c *compiler) network(field, s string) (netip.Prefix, bool) {
	p, err := networks.Parse(s)
	if err != nil {
		hint := "write it as in 10.0.0.0/8, 192.0.2.7 or \"2001:db8::/32\""
		if fileName.MatchString(s) {
			hint = fmt.Sprintf("if it is a file, write {file: %s} in place of the list", s)
		}
		c.fail(field, hint, "%s is neither an address nor a CIDR", spelling.Quote(s))
		return p, false
	}
	if wrong, hint := networks.HostBits(s); wrong != "" {
		c.fail(field, hint, "%s", wrong)
		return p, false
	}
	return p, true
}

// clients compiles the clients of a rule: names of lists, and networks.
func (c *compiler) clients(field string, entries []string) (sets []*clientSet) {
	own := &clientSet{}
	for i, s := range entries {
		at := fmt.Sprintf("%s[%d]", field, i)
		if list := c.lists[s]; list != nil {
			sets = append(sets, list)
			c.listsUsed[s] = true
		} else if !isNetwork(s) {
			c.fail(at, c.meantList(s), "unknown list %s", spelling.Quote(s))
		} else if p, ok := c.network(at, s); ok {
			own.own = append(own.own, p)
		}
	}
	if own.Set = networks.New(own.own); len(own.own) > 0 {
		sets = append(sets, own)
	}
	return sets
}

// unused returns the lists that no rule names.
func (c *compiler) unused() []string {
	return slices.DeleteFunc(sortedKeys(c.lists), func(name string) bool { return c.listsUsed[name] })
}

func (c *compiler) meantList(s string) string {
	if fileName.MatchString(s) {
		name := strings.ToLower(strings.TrimSuffix(path.Base(s), path.Ext(s)))
		return fmt.Sprintf("if it is a file, write \"lists: {%s: {file: %s}}\" at the top of the document, and use the name of the list here", listName(name), s)
	}
	if len(c.lists) == 0 {
		return fmt.Sprintf("write \"lists: {%s: [192.0.2.0/24]}\" at the top of the document, or a network here", listName(s))
	}
	return spelling.Suggest(s, sortedKeys(c.lists))
}

// listName returns s if a list can have that name, else an example of a name.
func listName(s string) string {
	if nameSyntax.MatchString(s) {
		return s
	}
	return "office"
}

// maxBodyLimit is the largest body_limit, in bytes.
const maxBodyLimit = 256 << 20

func (c *compiler) bodyLimit(text string) int64 {
	if text == "" {
		return parts.DefaultBodyLimit
	}
	n, err := bytesize.Parse(text)
	switch {
	case err != nil:
		c.fail("body_limit", err.Error(), "body_limit is %s, which is not a size", spelling.Quote(text))
	case n < 1 || n > maxBodyLimit:
		c.fail("body_limit", "use a size from 1 to "+bytesize.Text(maxBodyLimit), "body_limit is %s", bytesize.Text(n))
	}
	return n
}

// bodyCondition is a value, or the beginning of a value, that a field of the body must have.
type bodyCondition struct {
	part   parts.Part
	value  string
	prefix bool // value is a prefix; an empty one matches any value
}

func (c *compiler) bodies(values map[string]string) (all []bodyCondition) {
	for _, name := range sortedKeys(values) {
		field := "body[" + strconv.Quote(name) + "]"
		p, err := parts.Parse("body:" + name)
		if err != nil {
			c.fail(field, `write it as in "body: {model: gpt-*}"`, "%s is not the name of a field of a body", spelling.Quote(name))
			continue
		}
		text, prefix := strings.CutSuffix(values[name], "*")
		b := bodyCondition{p, p.Canonical(text), prefix}
		if b.value == "" && values[name] != "*" {
			c.fail(field, `write a value, or "*" for any`, "the field %s is empty", spelling.Quote(name))
		}
		all = append(all, b)
	}
	return all
}

// verdict is whether a request meets a condition on its body.
type verdict uint8

const (
	meets    verdict = iota
	fails            // the request does not meet the condition
	doubtful         // servers may read the field in several ways, or the body could not be read
)

func (b *bodyCondition) check(x *parts.Reader) verdict {
	value, found := b.part.Value(x)
	switch {
	case !found && x.Garbled():
		return doubtful
	case !found, b.prefix && !strings.HasPrefix(value, b.value), !b.prefix && value != b.value:
		return fails
	}
	return meets
}

// checkBody returns the first condition on the body that the request does not meet, or else the first that is
// doubtful, or nil.
func (w *work) checkBody(r *rule) (*bodyCondition, verdict) {
	var doubt *bodyCondition
	for i := range r.bodies {
		switch b := &r.bodies[i]; b.check(&w.x) {
		case fails:
			return b, fails
		case doubtful:
			if w.subjects.miss(&w.input, r) {
				return b, fails
			}
			if doubt == nil {
				doubt = b
			}
		}
	}
	if doubt != nil {
		return doubt, doubtful
	}
	return nil, meets
}

// meetsBody reports whether the body meets the conditions of a rule that exempts or blocks. If a field is doubtful, a
// block applies, and an exemption does not. If the body could not be read, a block does not apply; lacks then notes
// why the request is denied.
func (w *work) meetsBody(r *rule) bool {
	b, v := w.checkBody(r)
	if v == doubtful && r.block && w.x.BodyFault() != "" {
		w.lacks(r, b)
		return false
	}
	return v == meets || v == doubtful && r.block
}

// matchBodies drops the rules with a condition on the body that the request does not meet. It reads the body only if
// a rule has such a condition.
func (w *work) matchBodies() {
	if w.policy.readsBody {
		w.dropUnmet()
	}
}

func (w *work) dropUnmet() {
	w.matches.rules = slices.DeleteFunc(w.matches.rules, func(m matched) bool {
		b, v := w.checkBody(m.rule)
		if v == doubtful && (w.x.BodyFault() != "" || m.rule.strict && !w.x.BrokeOff) {
			w.lacks(m.rule, b)
		}
		return v == fails
	})
}

// lacks records that a rule denies the request because its condition on a field of the body is doubtful. A rule that is
// a shadow or has Enforce does not deny the request; for such a rule, lacks sets pardoned.
func (w *work) lacks(r *rule, b *bodyCondition) {
	l := w.lackOf(&b.part)
	switch {
	case !r.isLenient() && w.matches.lack.part == "":
		w.matches.lack = l
	case r.isLenient() && w.subjects.pardoned.part == "":
		w.subjects.pardoned = l
	}
}

// lackOf returns what the request lacks if p was read and has no value.
func (in *input) lackOf(p *parts.Part) lack {
	if fault := in.x.BodyFault(); fault != "" && p.ReadsBody() {
		return lack{part: fault}
	}
	return lack{p.String(), in.x.Garbled()}
}

// unreadable returns what the request lacks if it is denied because a rule cannot use its body, or "".
func (w *work) unreadable() string {
	estimates := slices.ContainsFunc(w.subjects.list, func(s subject) bool { return s.rule.estimatesStrictly() })
	if estimates {
		w.x.BodySize() // reads the body, and so may set the fault
	}
	switch fault := w.x.BodyFault(); {
	case fault == "" && estimates && w.x.BodyEncoded():
		return parts.PlainBody
	case fault != "" && (estimates || slices.ContainsFunc(w.matches.rules, func(m matched) bool { return m.rule.needsBody && !m.rule.isLenient() })):
		return fault
	}
	return ""
}

// estimatesStrictly reports whether the rule denies requests, and estimates their cost from the body.
func (r *rule) estimatesStrictly() bool {
	return r.cost.usage != nil && r.cost.usage.estimate.units == 0 && !r.isLenient() && !r.marks
}

// whyNot explains that the request does not meet the condition.
func (b *bodyCondition) whyNot() string {
	return fmt.Sprintf("the field %s of the body is missing or has another value", spelling.Quote(strings.TrimPrefix(b.part.String(), "body:")))
}
