package openapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// pattern returns the pattern of a policy for a path template. If the pattern also matches other paths, wider is
// the reason.
func pattern(method, template string) (text, wider string) {
	template, query, cut := strings.Cut(template, "?")
	if before, _, found := strings.Cut(template, "#"); found {
		template, cut, query = before, true, "#"
	}
	if cut {
		wider = fmt.Sprintf("a pattern ignores the query, so %.60q counts like other requests to the path", query)
	}
	var names, segments []string
	parts := strings.FieldsFunc(template, func(r rune) bool { return r == '/' })
	for i, s := range parts {
		if !strings.ContainsAny(s, "{}") {
			segments = append(segments, literal(s))
			continue
		}
		name, rest := wildcard(s)
		if name == "" {
			wider = fmt.Sprintf("a wildcard in a pattern is a whole segment, but %.60q contains more, so other paths also match", s)
		}
		name = unique(name, names)
		names = append(names, name)
		if rest && i == len(parts)-1 {
			name += "..."
		}
		segments = append(segments, "{"+name+"}")
	}
	if text = "/" + strings.Join(segments, "/"); len(segments) == 0 {
		text = "/{$}"
	}
	return strings.TrimSpace(method + " " + text), wider
}

// wildcard returns the name of a parameter that is a whole segment, or "" for other segments. It reports whether the
// parameter matches the rest of the path, as in {name+}, {name*}, {name...}, {+name}, {name:path} or {name:.*}.
func wildcard(segment string) (name string, rest bool) {
	inner := segment[1:max(1, len(segment)-1)]
	if !strings.HasPrefix(segment, "{") || !strings.HasSuffix(segment, "}") || strings.ContainsAny(inner, "{}") {
		return "", false
	}
	name, format, _ := strings.Cut(inner, ":")
	rest = format == "path" || strings.HasPrefix(format, ".")
	for _, sign := range []string{"+", "*", "..."} {
		if trimmed := strings.TrimSuffix(strings.TrimPrefix(name, sign), sign); trimmed != name {
			name, rest = trimmed, true
		}
	}
	name = strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, name)
	if name == "" || unicode.IsDigit(rune(name[0])) {
		name = "p" + name
	}
	return name, rest
}

// unique returns the name, followed by a number if names already contains the name.
func unique(name string, names []string) string {
	if name == "" {
		name = "part"
	}
	all := name
	for i := 2; slices.Contains(names, all); i++ {
		all = name + "_" + strconv.Itoa(i)
	}
	return all
}

// literal converts a segment of a template to a segment of a pattern.
func literal(segment string) string {
	var b strings.Builder
	for i := range len(segment) {
		switch c := segment[i]; {
		case c == '%' && i+2 < len(segment) && isHex(segment[i+1]) && isHex(segment[i+2]):
			b.WriteByte(c)
		case c == '%' || c == '*' || c <= ' ' || c == 0x7f || c >= 0x80, i == 0 && (c == ':' || c == '<'):
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// path returns an escaped path of the operation below a base path. Parameters without a known value have a
// placeholder.
func (o *Operation) path(base string) string {
	template, _, _ := strings.Cut(base+o.Path, "?")
	template, _, _ = strings.Cut(template, "#")
	var b strings.Builder
	for rest := template; rest != ""; {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			break
		}
		name, behind, _ := strings.Cut(after, "}")
		name, _, _ = strings.Cut(strings.Trim(name, "+*."), ":")
		value := o.sample[name]
		if value == "" {
			value = "value"
		}
		b.WriteString(url.PathEscape(value))
		rest = behind
	}
	segments := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '/' })
	for i, s := range segments {
		segments[i] = literal(s)
	}
	return "/" + strings.Join(segments, "/")
}
