package nginxlimits

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// pathSet is a set of paths, as patterns for rules. A pattern that ends in "/" also matches all paths below it.
type pathSet struct {
	patterns []string
	rough    string // describes how the patterns match too much or too little; "" if they are exact
	wide     bool   // the patterns also match other paths, so a rule cannot use them to exclude the set
}

// eitherCase is the note about paths for which nginx ignores case.
const eitherCase = "nginx ignores case there, but this policy only with ignore_case: true"

// hasCase reports whether a text has letters that exist in upper and lower case.
func hasCase(text string) bool { return strings.ToUpper(text) != strings.ToLower(text) }

// everyPath is the pattern of all paths.
const everyPath = "/"

// prefixPaths returns the paths of a location that is a prefix. Unless the prefix ends in a slash, the set is
// approximate: a policy matches whole segments of a path, but nginx matches any characters.
func prefixPaths(prefix string) pathSet {
	if prefix == everyPath {
		return pathSet{patterns: []string{everyPath}}
	}
	path := escapePath(prefix)
	if strings.HasSuffix(path, "/") {
		return pathSet{patterns: []string{path}}
	}
	return pathSet{patterns: []string{path + "/"}, rough: "in nginx it also matches paths that continue without a slash, such as " + prefix + "x"}
}

// exactPaths returns the path of a location with "=".
func exactPaths(path string) pathSet {
	if path == everyPath {
		return pathSet{patterns: []string{"/{$}"}}
	}
	return pathSet{patterns: []string{escapePath(strings.TrimRight(path, "/"))}}
}

// escapePath converts an unescaped path to a pattern.
func escapePath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		s = url.PathEscape(s)
		if s == "*" || s == "**" || strings.HasPrefix(s, ":") {
			s = strings.NewReplacer("*", "%2A", ":", "%3A").Replace(s)
		}
		segments[i] = s
	}
	return strings.Join(segments, "/")
}

// Placeholders in the texts of a regular expression. They represent everything other than literal characters.
const (
	anySegment  = '\uE000' // one or more characters except a slash
	anyRest     = '\uE001' // any characters, up to the end of the path
	endOfPath   = '\uE002'
	someSegment = '\uE003' // one or more characters of a class without a slash
)

// maxAlternatives bounds the number of patterns for one regular expression.
const maxAlternatives = 64

// regexPaths returns the paths that a regular expression matches, if patterns can express them. The expression must
// start with "^/", and everything in it except literals must match whole segments or the rest of the path.
func regexPaths(expr string, ignoreCase bool) (set pathSet, ok bool) {
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || len(expr) > 1000 {
		return set, false
	}
	parsed = parsed.Simplify()
	if parsed.Op != syntax.OpConcat || len(parsed.Sub) < 2 || parsed.Sub[0].Op != syntax.OpBeginText {
		return set, false
	}
	texts, ok := alternatives(&syntax.Regexp{Op: syntax.OpConcat, Sub: parsed.Sub[1:]})
	if !ok {
		return set, false
	}
	for _, text := range texts {
		pattern, rough, ok := patternOf(text)
		if !ok {
			return set, false
		}
		set.rough = cmp.Or(set.rough, rough)
		set.wide = set.wide || strings.ContainsRune(text, someSegment)
		if !slices.Contains(set.patterns, pattern) {
			set.patterns = append(set.patterns, pattern)
		}
	}
	if ignoreCase && hasCase(expr) {
		set.rough = strings.TrimPrefix(set.rough+"; "+eitherCase, "; ")
	}
	return set, len(set.patterns) > 0
}

// exactTexts returns the texts that a regular expression between "^" and "$" matches, if it matches only a few.
func exactTexts(expr string) (texts []string, ok bool) {
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || len(expr) > 1000 {
		return nil, false
	}
	parsed = parsed.Simplify()
	last := len(parsed.Sub) - 1
	if parsed.Op != syntax.OpConcat || last < 1 || parsed.Sub[0].Op != syntax.OpBeginText || parsed.Sub[last].Op != syntax.OpEndText {
		return nil, false
	}
	texts, ok = alternatives(&syntax.Regexp{Op: syntax.OpConcat, Sub: parsed.Sub[1:last]})
	hasSign := func(s string) bool {
		return s == "" || strings.ContainsAny(s, string([]rune{anySegment, anyRest, endOfPath, someSegment}))
	}
	return texts, ok && !slices.ContainsFunc(texts, hasSign)
}

// alternatives returns all texts, with placeholders, that a regular expression matches.
func alternatives(re *syntax.Regexp) (texts []string, ok bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, true
	case syntax.OpEndText:
		return []string{string(endOfPath)}, true
	case syntax.OpCapture:
		return alternatives(re.Sub[0])
	case syntax.OpQuest:
		texts, ok = alternatives(re.Sub[0])
		return append(texts, ""), ok
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			more, ok := alternatives(sub)
			if texts = append(texts, more...); !ok || len(texts) > maxAlternatives {
				return nil, false
			}
		}
		return texts, true
	case syntax.OpConcat:
		return concatenated(re.Sub)
	case syntax.OpCharClass:
		return characters(re.Rune)
	case syntax.OpPlus, syntax.OpStar:
		return repeated(re)
	}
	return nil, false
}

// concatenated returns each text of the first expression followed by each text of the second, and so on.
func concatenated(all []*syntax.Regexp) (texts []string, ok bool) {
	texts = []string{""}
	for _, sub := range all {
		more, ok := alternatives(sub)
		if !ok || len(texts)*len(more) > maxAlternatives {
			return nil, false
		}
		var longer []string
		for _, text := range texts {
			for _, next := range more {
				longer = append(longer, text+next)
			}
		}
		texts = longer
	}
	return texts, true
}

// characters returns the characters of a small character class. Each pair in ranges is the first and the last
// character of a range.
func characters(ranges []rune) (texts []string, ok bool) {
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if texts = append(texts, string(r)); len(texts) > 8 {
				return nil, false
			}
		}
	}
	return texts, true
}

// repeated returns the placeholder for a repetition of characters of a class, or of arbitrary characters.
func repeated(re *syntax.Regexp) (texts []string, ok bool) {
	switch sub := re.Sub[0]; {
	case sub.Op == syntax.OpAnyCharNotNL || sub.Op == syntax.OpAnyChar:
		return []string{string(anyRest)}, true
	case sub.Op != syntax.OpCharClass || re.Op == syntax.OpStar:
		return nil, false
	case hasSlash(sub.Rune):
		return nil, false
	case slices.Equal(sub.Rune, []rune{0, '/' - 1, '/' + 1, unicode.MaxRune}):
		return []string{string(anySegment)}, true
	}
	return []string{string(someSegment)}, true
}

func hasSlash(ranges []rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= '/' && '/' <= ranges[i+1] {
			return true
		}
	}
	return false
}

// patternOf returns the pattern for a text with placeholders. rough describes how the pattern differs from the
// regular expression.
func patternOf(text string) (pattern, rough string, ok bool) {
	text, open, ok := cutEnd(text)
	segments := strings.Split(text, "/")
	if !ok || segments[0] != "" || len(segments) < 2 {
		return "", "", false
	}
	for i, s := range segments {
		switch {
		case s == string(anySegment), s == string(someSegment):
			segments[i] = fmt.Sprintf("{s%d}", i)
			if s == string(someSegment) {
				rough = "here any text matches between two slashes, in place of the regular expression's characters"
			}
		case strings.ContainsAny(s, string([]rune{anySegment, someSegment})):
			return "", "", false
		default:
			segments[i] = escapePath(s)
		}
	}
	pattern = strings.Join(segments, "/")
	switch {
	case open && !strings.HasSuffix(pattern, "/"):
		return pattern + "/", cmp.Or(rough, "in nginx it also matches paths that continue without a slash, such as "+text+"x"), true
	case open:
		return pattern, rough, true
	case pattern == everyPath:
		return "/{$}", rough, true
	}
	return strings.TrimSuffix(pattern, "/"), rough, true
}

// cutEnd removes the placeholders at the end of a text. The result open reports whether paths may continue after the
// text. ok is false if such a placeholder is elsewhere in the text.
func cutEnd(text string) (before string, open, ok bool) {
	before, after, ends := strings.Cut(text, string(endOfPath))
	if strings.Trim(after, string(endOfPath)) != "" {
		return "", false, false
	}
	before, after, rest := strings.Cut(before, string(anyRest))
	return before, rest || !ends, after == ""
}

// covers reports whether the pattern q matches every path that the pattern p matches. The patterns have no method
// and no host.
func covers(q, p string) bool {
	qs, ps := segmentsOf(q), segmentsOf(p)
	for qs != "" && ps != "" {
		var a, b string
		a, qs, _ = strings.Cut(qs, "/")
		b, ps, _ = strings.Cut(ps, "/")
		if a != b && !isWildcard(a) {
			return false
		}
	}
	return qs == "" && (takesBelow(q) || ps == "" && !takesBelow(p))
}

// meet reports whether some path matches both patterns.
func meet(p, q string) bool {
	ps, qs := segmentsOf(p), segmentsOf(q)
	for ps != "" && qs != "" {
		var a, b string
		a, ps, _ = strings.Cut(ps, "/")
		b, qs, _ = strings.Cut(qs, "/")
		if a != b && !isWildcard(a) && !isWildcard(b) {
			return false
		}
	}
	return (ps == "" || takesBelow(q)) && (qs == "" || takesBelow(p))
}

// common returns a pattern for the paths that match both patterns. The patterns must meet.
func common(p, q string) string {
	switch {
	case covers(p, q):
		return q
	case covers(q, p):
		return p
	}
	long, short := strings.Split(segmentsOf(p), "/"), strings.Split(segmentsOf(q), "/")
	if len(long) < len(short) {
		long, short = short, long
	}
	for i, s := range short {
		if isWildcard(long[i]) {
			long[i] = s
		}
	}
	path := "/" + strings.Join(long, "/")
	if takesBelow(p) && takesBelow(q) {
		path += "/"
	}
	return path
}

// takesBelow reports whether a pattern also matches the paths below it.
func takesBelow(pattern string) bool { return strings.HasSuffix(pattern, "/") }

func isWildcard(segment string) bool { return strings.HasPrefix(segment, "{") }

// segmentsOf returns the segments of a pattern without the first and last slash, or "" for the root.
func segmentsOf(pattern string) string { return strings.Trim(strings.TrimSuffix(pattern, "{$}"), "/") }
