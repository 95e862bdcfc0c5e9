// Package pattern has the patterns of rules, such as "GET /users/{id}", and an index that finds the patterns that
// match a request.
package pattern

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/sluicehq/sluice"
)

// Pattern is an entry of a rule's match list, in the syntax of net/http:
//
//	[METHOD ][HOST]/[PATH]
//
// PATH may contain {name}, which matches one segment. It may end with {name...} or a slash, which match everything
// below, or with {$}. A GET pattern matches HEAD as well.
//
// Four things differ from [net/http.ServeMux], so that no request evades a limit. First, all matching patterns
// apply, and not only the most specific one. Second, a slash at the end of a request's path makes no difference:
// "/login" matches /login/, and "/a/", "/a/{$}" and "/a/{x...}" match /a. Third, a suffix that names a format makes
// no difference: "/login" matches /login.json, unless the rule has exempt. Fourth, a path is matched in all ways in
// which a server may read it: see [paths.Readings].
type Pattern struct {
	Text   string   // as written
	Key    string   // Text as the value of a key part
	Method string   // empty for any method
	Host   string   // as [Host] returns it; empty for any host
	segs   []string // unescaped; "" is a {name}
	multi  bool     // whether the pattern also matches all paths below
}

// knownMethods has the methods of the IANA registry that are used in practice, and PURGE, which caches use.
var knownMethods = strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT TRACE QUERY " +
	"PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK REPORT SEARCH PURGE")

// IsMethod reports whether patterns can name the method m. It returns false if m is not in capitals.
func IsMethod(m string) bool { return slices.Contains(knownMethods, m) }

// Parse reads a pattern. Most of its errors contain a suggestion.
func Parse(s string) (*Pattern, error) {
	p, err := read(s)
	if err != nil {
		return nil, fmt.Errorf("pattern %.60q: %w", s, err)
	}
	p.Key = string(sluice.AppendKeyPart(nil, s))
	return p, nil
}

func read(s string) (*Pattern, error) {
	p := &Pattern{Text: s}
	if strings.HasPrefix(s, "^") || strings.HasPrefix(s, "~") || strings.Contains(s, ".*") {
		return nil, errors.New(`it is not a regular expression: write "/path/{name}" for one segment, or "/path/{rest...}" for all that follow`)
	}
	rest := s
	if i := strings.IndexAny(s, " \t/"); i >= 0 && s[i] != '/' {
		p.Method, rest = s[:i], strings.TrimLeft(s[i:], " \t")
		if err := checkMethod(p.Method); err != nil {
			return nil, err
		}
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return nil, errors.New(`missing "/": write a pattern such as "GET /path" or "example.com/path"`)
	}
	var err error
	if p.Host, err = patternHost(rest[:slash]); err != nil {
		return nil, err
	}
	return p, p.readPath(rest[slash+1:])
}

func checkMethod(m string) error {
	switch {
	case IsMethod(m):
		return nil
	case IsMethod(strings.ToUpper(m)):
		return fmt.Errorf("write the method in capitals: %q", strings.ToUpper(m))
	}
	return fmt.Errorf("unknown method %.20q: use one of %s, or a WebDAV method such as PROPFIND, each in a pattern of its own, or leave the method out to match all",
		m, strings.Join(knownMethods[:10], ", "))
}

func patternHost(h string) (string, error) {
	switch {
	case IsMethod(h):
		return "", fmt.Errorf("put a space between the method %s and the path", h)
	case strings.HasPrefix(h, "*."):
		return "", fmt.Errorf(`the host %.60q has a wildcard: write it under "hosts:" instead`, h)
	case h == "http:" || h == "https:":
		return "", errors.New("remove the scheme: a pattern starts with the host or the path")
	case strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]"):
		if _, err := netip.ParseAddr(h[1 : len(h)-1]); err != nil {
			return "", fmt.Errorf("the host %.60q is not an IPv6 address", h)
		}
		return Host(h), nil
	case strings.Contains(h, ":"):
		return "", fmt.Errorf("remove the port of the host %.60q: every port matches", h)
	}
	for _, c := range []byte(h) {
		if !plainHostByte(c) {
			return "", fmt.Errorf("the host %.60q contains %q: use letters, digits, hyphens, underscores and dots, other alphabets as xn--…", h, rune(c))
		}
	}
	return Host(h), nil
}

func plainHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}

// readPath reads the path of a pattern, after its first slash.
func (p *Pattern) readPath(path string) error {
	if i := strings.IndexFunc(path, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }); i >= 0 {
		return errors.New("the path contains white space: write a space as %20, and several patterns as a list")
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return fmt.Errorf("the path contains %q: a pattern does not match the query; write the character itself as %%%02X", path[i], path[i])
	}
	names := make(map[string]bool)
	for rest, more := path, path != ""; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		if seg == "" && !more {
			p.multi = true // the pattern ends with a slash
			return nil
		}
		if err := p.addSegment(seg, more, names); err != nil {
			return err
		}
	}
	if path == "" {
		p.multi = true // the pattern is "/"
	}
	return nil
}

// addSegment reads a segment. It is the last segment of the pattern unless more is true.
func (p *Pattern) addSegment(seg string, more bool, names map[string]bool) error {
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
		return fmt.Errorf("the path contains %q: write the path without it", seg)
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

func (p *Pattern) addWildcard(seg string, more bool, names map[string]bool) error {
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

// EveryPath reports whether the pattern matches every path of every host.
func (p *Pattern) EveryPath() bool { return p.Host == "" && p.multi && len(p.segs) == 0 }

// Meets reports whether some request can match both patterns, with a path that all servers read the same way.
func (p *Pattern) Meets(q *Pattern, ignoreCase bool) bool {
	if !methodsMeet(p.Method, q.Method) || p.Host != "" && q.Host != "" && p.Host != q.Host {
		return false
	}
	for i := range min(len(p.segs), len(q.segs)) {
		a, b := p.segs[i], q.segs[i]
		if a != "" && b != "" && a != b && !(ignoreCase && strings.EqualFold(a, b)) {
			return false
		}
	}
	return len(p.segs) == len(q.segs) || p.multi && len(p.segs) < len(q.segs) || q.multi && len(q.segs) < len(p.segs)
}

func methodsMeet(a, b string) bool {
	return a == b || a == "" || b == "" || a == "GET" && b == "HEAD" || a == "HEAD" && b == "GET"
}
