package nginxlimits

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// geoBranches returns the values of a geo directive, by the networks of clients.
func geoBranches(d *conf.Directive) ([]branch, error) {
	if len(d.Args) == 2 && d.Args[0] != "$remote_addr" && d.Args[0] != "$binary_remote_addr" {
		return nil, fmt.Errorf("it depends on %s instead of the address of the client", d.Args[0])
	}
	values := map[netip.Prefix]string{}
	other := ""
	for _, e := range d.Block {
		switch {
		case e.Name == "ranges", e.Name == "delete", e.Name == "proxy", e.Name == "proxy_recursive":
			return nil, fmt.Errorf("%q at %s: a list has addresses and networks", e.Name, e.Where())
		case len(e.Args) != 1:
			return nil, fmt.Errorf("the entry at %s has no value", e.Where())
		case e.Name == "default":
			other = e.Args[0]
			continue
		}
		network, err := parseNetwork(e.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Where(), err)
		}
		if network.Bits() == 0 && network.Addr().Is4() {
			other = e.Args[0]
			continue
		}
		values[network] = e.Args[0]
	}
	return byNetwork(values, other, func(text string) []piece { return []piece{{text: text}} })
}

func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is neither an address nor a network", text)
	}
	return p.Masked(), nil
}

// byNetwork returns a branch for each value, and one for clients in other networks. pieces splits a value, because
// values of a map may contain variables, unlike those of a geo.
func byNetwork(values map[netip.Prefix]string, other string, pieces func(string) []piece) ([]branch, error) {
	networks := slices.SortedFunc(maps.Keys(values), netip.Prefix.Compare)
	for i, p := range networks { // a network comes before the networks that it contains
		for _, q := range networks[i+1:] {
			if !p.Overlaps(q) {
				break
			}
			if values[p] != values[q] {
				return nil, fmt.Errorf("%v is in %v, but has another value: list the rest of the larger network as smaller ones", q, p)
			}
		}
	}
	var out []branch
	rest := branch{value: pieces(other)}
	for _, p := range networks {
		if values[p] == other {
			continue
		}
		rest.notClients = append(rest.notClients, shortPrefix(p))
		b, err := branchOf(&out, pieces(values[p]))
		if err != nil {
			return nil, err
		}
		b.clients = append(b.clients, shortPrefix(p))
	}
	return append(out, rest), nil
}

// branchOf returns the branch with a value. It appends a missing one.
func branchOf(all *[]branch, value []piece) (*branch, error) {
	i := slices.IndexFunc(*all, func(b branch) bool { return slices.Equal(b.value, value) })
	if i < 0 {
		if i = len(*all); i == maxBranches {
			return nil, errors.New("it has too many values")
		}
		*all = append(*all, branch{value: value})
	}
	return &(*all)[i], nil
}

// shortPrefix returns a network as text, or the address if the network has only one.
func shortPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// entry is an entry of a map.
type entry struct {
	pattern string
	regex   *regexp.Regexp // nil for a text
	value   string
	at      *conf.Directive
}

// matches reports whether the entry matches a value.
func (e *entry) matches(v string) bool {
	if e.regex != nil {
		return e.regex.MatchString(v)
	}
	return strings.EqualFold(e.pattern, v)
}

// texts returns the texts that the entry matches: its own text, or those of a regular expression between "^" and
// "$".
func (e *entry) texts() (all []string, ok bool) {
	if e.regex == nil {
		return []string{e.pattern}, e.pattern != ""
	}
	return exactTexts(e.regex.String())
}

// mapEntries returns the entries in the order in which nginx tries them. other is the default value.
func mapEntries(d *conf.Directive) (all []entry, other string, err error) {
	var regexes []entry
	for _, e := range d.Block {
		switch {
		case len(e.Args) == 0 && (e.Name == "volatile" || e.Name == "hostnames"):
			if e.Name == "hostnames" {
				return nil, "", fmt.Errorf("%q at %s: names with wildcards are not supported", e.Name, e.Where())
			}
			continue
		case len(e.Args) != 1:
			return nil, "", fmt.Errorf("the entry at %s has no value", e.Where())
		case e.Name == "default":
			other = e.Args[0]
		case strings.HasPrefix(e.Name, "~"):
			expr, folded := strings.CutPrefix(e.Name[1:], "*")
			if folded {
				expr = "(?i)" + expr
			}
			re, err := regexp.Compile(expr)
			if err != nil {
				return nil, "", fmt.Errorf("the regular expression at %s: %w", e.Where(), err)
			}
			regexes = append(regexes, entry{e.Name, re, e.Args[0], e})
		default:
			all = append(all, entry{strings.TrimPrefix(e.Name, `\`), nil, e.Args[0], e})
		}
	}
	return append(all, regexes...), other, nil
}

// mapBranches returns the values of a map.
func (v *variables) mapBranches(d *conf.Directive, depth int) ([]branch, error) {
	if len(d.Args) != 2 {
		return nil, errors.New("it has no source variable")
	}
	entries, other, err := mapEntries(d)
	if err != nil {
		return nil, err
	}
	sources, err := v.branches(piecesOf(d.Args[0]), depth)
	if err != nil {
		return nil, err
	}
	var out []branch
	for _, s := range sources {
		text, literal := s.literal()
		if !literal {
			if len(sources) > 1 || len(s.value) > 1 || !s.always() {
				return nil, fmt.Errorf("its source %s is more than one variable", d.Args[0])
			}
			split, err := splitBy(s.value[0].variable, entries, other)
			if err != nil {
				return nil, err
			}
			return v.resolved(split, depth)
		}
		value := other
		if i := slices.IndexFunc(entries, func(e entry) bool { return e.matches(text) }); i >= 0 {
			value = entries[i].value
		}
		out = addBranch(out, branch{s.condition, piecesOf(value)})
	}
	return v.resolved(out, depth)
}

// resolved replaces variables in the values of branches.
func (v *variables) resolved(all []branch, depth int) ([]branch, error) {
	for i := range all {
		inner, err := v.branches(all[i].value, depth)
		if err != nil {
			return nil, err
		}
		if len(inner) != 1 || !inner[0].always() {
			return nil, errors.New("its values contain variables that depend on the request")
		}
		all[i].value = inner[0].value
	}
	return all, nil
}

// addBranch adds a branch, or merges its clients into a branch with the same value.
func addBranch(all []branch, b branch) []branch {
	for i := range all {
		o := &all[i]
		switch {
		case !slices.Equal(o.value, b.value):
		case len(o.clients) > 0 && len(b.clients) > 0:
			o.clients = append(o.clients, b.clients...)
			return all
		case len(o.clients) > 0 && len(b.notClients) > 0:
			clients := o.clients
			o.clients, o.notClients = nil, slices.DeleteFunc(b.notClients, func(c string) bool { return slices.Contains(clients, c) })
			return all
		}
	}
	return append(all, b)
}

// splitBy returns the branches of a map by a variable of nginx.
func splitBy(variable string, entries []entry, other string) ([]branch, error) {
	switch header, isHeader := strings.CutPrefix(variable, "http_"); {
	case variable == "remote_addr":
		return splitByAddress(entries, other)
	case variable == "request_method":
		return splitByMethod(entries, other)
	case variable == "uri" || variable == "document_uri" || variable == "request_uri":
		return splitByPath(variable, entries, other)
	case variable == "host" || variable == "http_host":
		return splitByText(entries, other, func(c *condition, text string) { c.hosts = append(c.hosts, strings.ToLower(text)) },
			func(*condition, string) error { return errors.New("a rule cannot exclude hosts") })
	case isHeader:
		return splitByHeader(headerName(header), entries, other)
	}
	return nil, fmt.Errorf("a rule has no condition on $%s", variable)
}

func splitByMethod(entries []entry, other string) ([]branch, error) {
	for i := range entries {
		if entries[i].regex == nil {
			entries[i].pattern = strings.ToUpper(entries[i].pattern)
		}
	}
	all, err := splitByText(entries, other, func(c *condition, text string) { c.methods = append(c.methods, text) },
		func(c *condition, text string) error { c.notMethods = append(c.notMethods, text); return nil })
	for i := range all {
		if c := &all[i].condition; slices.Contains(c.methods, http.MethodGet) && !slices.Contains(c.methods, http.MethodHead) {
			c.notes = append(c.notes, "also counts HEAD, because GET in a pattern matches both")
		}
	}
	return all, err
}

func splitByAddress(entries []entry, other string) ([]branch, error) {
	values := map[netip.Prefix]string{}
	for _, e := range entries {
		a, err := netip.ParseAddr(e.pattern)
		if err != nil {
			return nil, fmt.Errorf("%q at %s is not an address", e.pattern, e.at.Where())
		}
		values[netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())] = e.value
	}
	return byNetwork(values, other, piecesOf)
}

// splitByText returns a branch for each value of a map with texts as entries, and one for the default. The function
// match makes a condition match a text, and exclude makes a condition exclude a text.
func splitByText(entries []entry, other string, match func(*condition, string), exclude func(*condition, string) error) ([]branch, error) {
	var out []branch
	rest := branch{value: piecesOf(other)}
	for _, e := range entries {
		texts, ok := e.texts()
		if !ok {
			return nil, fmt.Errorf("%q at %s: a rule has no such condition", e.pattern, e.at.Where())
		}
		if e.value == other {
			continue
		}
		for _, text := range texts {
			if err := exclude(&rest.condition, text); err != nil && other != "" {
				return nil, err
			}
		}
		b, err := branchOf(&out, piecesOf(e.value))
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			match(&b.condition, text)
		}
	}
	return append(out, rest), nil
}

// splitByPath returns branches by path. Entries may be texts or regular expressions.
func splitByPath(variable string, entries []entry, other string) ([]branch, error) {
	var out []branch
	rest := branch{value: piecesOf(other)}
	for _, e := range entries {
		if e.value == other {
			continue
		}
		if len(out) == maxBranches {
			return nil, errors.New("it has too many values")
		}
		set, err := e.paths()
		if err != nil {
			return nil, err
		}
		b := branch{condition{paths: set}, piecesOf(e.value)}
		if set.rough != "" {
			b.notes = append(b.notes, fmt.Sprintf("%s (%s): %s", e.pattern, e.at.Where(), set.rough))
		}
		out = append(out, b)
		switch {
		case set.wide:
			rest.notes = append(rest.notes, fmt.Sprintf("also counts %s (%s): a policy has no such pattern", e.pattern, e.at.Where()))
			continue
		case variable == "request_uri":
			rest.notes = append(rest.notes, fmt.Sprintf("does not count %s (%s) with any query, because patterns ignore the query; in nginx the query is a part of $request_uri", e.pattern, e.at.Where()))
		}
		rest.notPaths.patterns = append(rest.notPaths.patterns, set.patterns...)
	}
	return append(out, rest), nil
}

// paths returns the paths that the entry matches.
func (e *entry) paths() (set pathSet, err error) {
	if expr, isRegex := strings.CutPrefix(e.pattern, "~"); isRegex {
		expr, folded := strings.CutPrefix(expr, "*")
		set, known := regexPaths(expr, folded)
		if !known {
			err = fmt.Errorf("%q at %s: a policy has no such pattern", e.pattern, e.at.Where())
		}
		return set, err
	}
	if !strings.HasPrefix(e.pattern, "/") {
		return set, fmt.Errorf("%q at %s is not a path", e.pattern, e.at.Where())
	}
	if set = exactPaths(e.pattern); hasCase(e.pattern) {
		set.rough = eitherCase
	}
	return set, nil
}

// splitByHeader returns branches by the value of a header. A rule can match one value of a header or any value, but
// not a missing header.
func splitByHeader(name string, entries []entry, other string) ([]branch, error) {
	var out []branch
	rest := branch{value: piecesOf(other)}
	for _, e := range entries {
		switch {
		case e.value == other:
		case e.regex != nil:
			return nil, fmt.Errorf("%q at %s: a rule compares the whole value of a header", e.pattern, e.at.Where())
		case e.pattern == "" && e.value == "":
			rest.headers = map[string]string{name: "*"}
		case e.pattern == "" && other != "":
			c := condition{notes: []string{fmt.Sprintf("also counts requests with %s, which nginx counts by another key: a rule cannot match only requests without this header", name)}}
			out, rest.headers = append(out, branch{c, piecesOf(e.value)}), map[string]string{name: "*"}
		case e.pattern == "":
			return nil, fmt.Errorf("a rule cannot match requests without %s", name)
		case other != "":
			return nil, fmt.Errorf("a rule cannot exclude a value of %s", name)
		default:
			c := condition{headers: map[string]string{name: e.pattern}}
			if hasCase(e.pattern) {
				c.notes = []string{fmt.Sprintf("%s: nginx ignores the case of %q; here, other spellings are not counted", name, e.pattern)}
			}
			out = append(out, branch{c, piecesOf(e.value)})
		}
	}
	return append(out, rest), nil
}
