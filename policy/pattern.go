package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// pattern is an entry of a rule's match list, in the syntax of net/http:
//
//	[METHOD ][HOST]/[PATH]
//
// PATH may contain {name} for one segment, and end with {name...} or a slash for
// everything below, or with {$}. A GET pattern matches HEAD as well.
//
// Four things differ from [net/http.ServeMux], so that nothing slips past a limit:
// every pattern that matches counts, and not only the most specific one. A slash at the
// end of a request's path says nothing: "/login" matches /login/, and "/a/", "/a/{$}"
// and "/a/{x...}" match /a. Nor does a suffix that names a format: "/login" matches
// /login.json, unless the rule is exempt. And a path is matched in all the ways that a
// server may read it: see [paths.Readings].
type pattern struct {
	text    string   // as written
	written string   // in keys, if the rule's have a route
	method  string   // "" is any
	host    string   // as from normalHost; "" is any
	segs    []string // unescaped; "" is a {name}
	multi   bool     // matches what is below as well
}

// knownMethods are those of the IANA registry that are met in practice.
var knownMethods = strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT TRACE QUERY " +
	"PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK REPORT SEARCH PURGE")

func isMethod(m string) bool { return slices.Contains(knownMethods, m) }

func parsePattern(s string) (*pattern, error) {
	p, err := readPattern(s)
	if err != nil {
		return nil, fmt.Errorf("pattern %.60q: %w", s, err)
	}
	return p, nil
}

func readPattern(s string) (*pattern, error) {
	p := &pattern{text: s}
	if strings.HasPrefix(s, "^") || strings.HasPrefix(s, "~") || strings.Contains(s, ".*") {
		return nil, errors.New(`it is not a regular expression: write "/path/{name}" for one segment, or "/path/{rest...}" for all that follow`)
	}
	rest := s
	if i := strings.IndexAny(s, " \t/"); i >= 0 && s[i] != '/' {
		p.method, rest = s[:i], strings.TrimLeft(s[i:], " \t")
		if err := checkMethod(p.method); err != nil {
			return nil, err
		}
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return nil, errors.New(`there is no "/": write it as in "GET /path" or "example.com/path"`)
	}
	var err error
	if p.host, err = patternHost(rest[:slash]); err != nil {
		return nil, err
	}
	return p, p.readPath(rest[slash+1:])
}

func checkMethod(m string) error {
	switch {
	case isMethod(m):
		return nil
	case isMethod(strings.ToUpper(m)):
		return fmt.Errorf("the method is written in capitals: %q", strings.ToUpper(m))
	}
	return fmt.Errorf("unknown method %.20q: use one of %s, each in a pattern of its own, or leave the method out to match all",
		m, strings.Join(knownMethods[:10], ", "))
}

func patternHost(h string) (string, error) {
	switch {
	case isMethod(h):
		return "", fmt.Errorf("put a space between the method %s and the path", h)
	case strings.HasPrefix(h, "*."):
		return "", fmt.Errorf(`the host %.60q has a wildcard: write it under "hosts:" instead`, h)
	case h == "http:" || h == "https:":
		return "", errors.New("leave out the scheme: a pattern begins with the host or with the path")
	case strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]"):
		if _, err := netip.ParseAddr(h[1 : len(h)-1]); err != nil {
			return "", fmt.Errorf("the host %.60q is not an IPv6 address", h)
		}
		return normalHost(h), nil
	case strings.Contains(h, ":"):
		return "", fmt.Errorf("leave out the port of the host %.60q: every port matches", h)
	}
	for _, c := range []byte(h) {
		if !plainHostByte(c) {
			return "", fmt.Errorf("the host %.60q contains %q: use letters, digits, hyphens and dots, other alphabets as xn--…", h, rune(c))
		}
	}
	return normalHost(h), nil
}

func plainHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}

// readPath reads the path of a pattern, behind its first slash.
func (p *pattern) readPath(path string) error {
	if i := strings.IndexFunc(path, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }); i >= 0 {
		return errors.New("the path contains white space: write a space as %20, and several patterns as a list")
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return fmt.Errorf("the path contains %q: a pattern sees no query; write a literal one as %%%02X", path[i], path[i])
	}
	names := make(map[string]bool)
	for rest, more := path, path != ""; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		if seg == "" && !more {
			p.multi = true // a slash at the end
			return nil
		}
		if err := p.addSegment(seg, more, names); err != nil {
			return err
		}
	}
	if path == "" {
		p.multi = true // "/"
	}
	return nil
}

// addSegment reads a segment behind which there may be more.
func (p *pattern) addSegment(seg string, more bool, names map[string]bool) error {
	if strings.ContainsAny(seg, "{}") {
		return p.addWildcard(seg, more, names)
	}
	text, err := url.PathUnescape(seg)
	switch {
	case err != nil:
		return fmt.Errorf(`bad escape in %.60q: write %% and two hex digits, and a percent sign as "%%25"`, seg)
	case text == "":
		return errors.New(`the path has a doubled "/": leave one out`)
	case text == "." || text == "..":
		return fmt.Errorf("the path contains %q: write it without", seg)
	case seg == "*" || seg == "**":
		return fmt.Errorf(`%q is not a wildcard here: write "{name}" for one segment, or "{rest...}" at the end for all that follow; a literal one is "%%2A"`, seg)
	case seg[0] == '<' && strings.HasSuffix(seg, ">"):
		return fmt.Errorf(`%.60q is not a wildcard here: write %q; literal signs are "%%3C" and "%%3E"`, seg, "{"+seg[1:len(seg)-1]+"}")
	case seg[0] == ':':
		return fmt.Errorf(`%.60q is not a wildcard here: write %q; a literal colon is "%%3A"`, seg, "{"+seg[1:]+"}")
	}
	p.segs = append(p.segs, text)
	return nil
}

func (p *pattern) addWildcard(seg string, more bool, names map[string]bool) error {
	name, open := strings.CutPrefix(seg, "{")
	name, closed := strings.CutSuffix(name, "}")
	if !open || !closed || strings.ContainsAny(name, "{}") {
		return fmt.Errorf(`a wildcard is a whole segment, as in "/{name}/", and not part of one as in %.60q; literal braces are "%%7B" and "%%7D"`, seg)
	}
	name, multi := strings.CutSuffix(name, "...")
	end := name == "$" && !multi
	switch {
	case (multi || end) && more:
		return fmt.Errorf("%.60q is not at the end of the path", seg)
	case end:
		return nil
	case !wildcardName(name):
		return fmt.Errorf("the wildcard %.60q has no proper name: use letters, digits and underscores", seg)
	case names[name]:
		return fmt.Errorf("the wildcard name %.60q occurs twice: rename one", name)
	}
	names[name] = true
	if p.multi = multi; !multi {
		p.segs = append(p.segs, "")
	}
	return nil
}

func wildcardName(s string) bool {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != ""
}

// maxHost is the length of the longest name of a host, and a little more.
const maxHost = 256

// normalHost returns a host as hosts are compared: in lower case, without port, brackets
// and the dot at the end. Of one that is longer than names can be it is the end, where
// "*.example.com" is found.
func normalHost(h string) string {
	if len(h) > maxHost {
		h = h[len(h)-maxHost:]
	}
	first, last := strings.IndexByte(h, ':'), strings.LastIndexByte(h, ':')
	switch {
	case strings.HasPrefix(h, "["):
		h, _, _ = strings.Cut(h[1:], "]")
		return normalIPv6(h)
	case first != last:
		return normalIPv6(h)
	case first >= 0:
		h = h[:first]
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}

func normalIPv6(h string) string {
	if a, err := netip.ParseAddr(h); err == nil {
		return a.String()
	}
	return strings.ToLower(h)
}
