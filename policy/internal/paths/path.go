// Package paths reads the path of a request in every way in which servers are known to read it.
//
// The first reading is how a careful server reads the path. Nearly every path has only this reading. The cost of
// reading a path is bounded: a path with too many readings gets only two, one that matches every pattern and one that
// matches none.
package paths

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/percent"
)

// Reading is one reading of a path.
type Reading struct {
	Segs  []string // the unescaped segments that are not empty
	Every bool     // every pattern matches
	Never bool     // no pattern matches
}

// Buffer is reusable memory for [Readings]. Results of Readings are valid until the Buffer is used again.
type Buffer struct {
	ignoreCase bool
	texts      []string // the path, and the forms in which proxies may pass it on
	dots       bool     // whether the parts contain "." or ".."
	parts      []string
	segs       []string
	found      []Reading
	text       []byte
}

const (
	// maxReadings bounds the readings of a path, and maxSegments the segments of a reading. maxPathWork bounds the
	// work for all readings of a path, in bytes. Each segment adds segmentWork bytes. Because of these bounds, no
	// path costs much more than a plain one. Paths of honest clients are far below the bounds.
	maxReadings = 32
	maxPath     = 16 << 10 // as long as the longest path that servers accept
	maxSegments = 128
	maxPathWork = 12 << 10
	segmentWork = 8
	// maxBuffer is the most memory that is kept from one request to the next.
	maxBuffer = 1 << 17
)

// Readings returns all ways in which servers behind Sluice may read the escaped path of a request. The first is the
// reading of a careful server: split at "/", each segment unescaped once, empty segments dropped, and "." and ".."
// resolved, even if they are written as %2e. Nearly every path has only this reading.
//
// A rule that limits applies if any reading matches, so that no path evades it. A rule that exempts applies only if
// all readings match, so that no path is exempt by mistake. The further readings are those of servers with one or
// more of these habits, if the habits make a difference for the path:
//
//   - to unescape before splitting ("/auth%2flogin"), even twice ("/auth%252flogin")
//   - to read "\" as "/"
//   - to ignore ";parameters" of a segment, cut before or after unescaping
//   - to end the path at "?" or "#", escaped or not
//   - to leave "." and ".." alone, to resolve them before empty segments are dropped
//     ("/auth//../login"), or to resolve them before unescaping
//   - to read the segment after two or more slashes as a host ("//x/auth/login")
//   - to read the path after a script as a separate path ("/index.php/auth/login")
//
// An invalid escape stands for itself. An empty path and the "*" of OPTIONS are read as "/", and an absolute URL is
// read as its path. For some paths, Readings returns one reading that matches every pattern and one that matches no
// pattern. All rules that limit apply to such a path, and no rule that exempts does. These are paths that contain
// control characters, "%u" (as in "%u0061") or an escaped character in more bytes than UTF-8 needs ("/" as "%C0%AF"),
// that begin or end with a space, that are very long, or that would have too many readings. An engine refuses a
// request with such a path, if a rule with patterns may apply to it.
func Readings(path string, ignoreCase bool, b *Buffer) []Reading {
	b.reset(ignoreCase)
	if b.simple(path) {
		return b.found
	}
	path = originForm(path)
	if len(path) > maxPath {
		return b.tooMany()
	}
	h := scanPath(path)
	plain := h.plain()
	if h.wild || h.segments > maxSegments || !plain && len(path) > maxPathWork {
		return b.tooMany()
	}
	b.split(path, 0, keepParams, false)
	b.add(resolveDots)
	if plain && !b.dots && !b.authority() && b.script() < 0 {
		return b.found
	}
	return b.readings(path, h)
}

// simple adds the only reading of a simple path, and returns false for any other path. Nearly all paths are simple:
// they have no special characters, no segment that begins with a dot, and no script before the last segment.
func (b *Buffer) simple(path string) bool {
	if path == "" || path[0] != '/' || len(path) > 1 && path[1] == '/' {
		return false
	}
	segs := b.segs
	for rest, more := path[1:], true; more; {
		n, seen := 0, uint8(plain)
		for ; n < len(rest) && pathByte[rest[n]] != other; n++ {
			seen |= pathByte[rest[n]]
		}
		seg := rest[:n]
		if more = n < len(rest); more {
			if rest[n] != '/' {
				return false
			}
			rest = rest[n+1:]
		}
		switch {
		case seg == "":
			continue
		case seen == dot && (seg[0] == '.' || more && rest != "" && script(seg)):
			return false
		case b.ignoreCase:
			seg = b.fold(seg)
		}
		if len(segs) == maxSegments {
			return false
		}
		segs = append(segs, seg)
	}
	b.segs = segs
	b.found = append(b.found, Reading{Segs: segs})
	return true
}

// pathByte has the class of each byte of a path.
var pathByte = func() (t [256]uint8) {
	for c := range ' ' {
		t[c] = other
	}
	for _, c := range []byte("/%;\\?#\x7F") {
		t[c] = other
	}
	t['.'] = dot
	return t
}()

const (
	plain = iota // stands for itself
	dot          // may make a segment special
	other        // ends a segment, or is not read in the same way by all servers
)

func (b *Buffer) tooMany() []Reading {
	return append(b.found[:0], Reading{Every: true}, Reading{Never: true})
}

func (b *Buffer) reset(ignoreCase bool) {
	if cap(b.text)+16*cap(b.segs)+16*cap(b.parts) > maxBuffer {
		*b = Buffer{}
	}
	b.ignoreCase = ignoreCase
	b.segs, b.found, b.text = b.segs[:0], b.found[:0], b.text[:0]
}

// originForm returns the path of a request target.
func originForm(path string) string {
	if path == "*" {
		return "/"
	}
	if strings.HasPrefix(path, "/") {
		return path
	}
	if scheme, rest, found := strings.Cut(path, "://"); found && !strings.ContainsAny(scheme, "/%") {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
		return "/"
	}
	return "/" + path
}

// pathHints describes which habits of servers matter for a path.
type pathHints struct {
	decode  int  // how many times servers may unescape the path before they split it: 0 to 2
	params  bool // whether the path may contain ";"
	slashes bool // whether the path may contain "\"
	end     int  // the index at which the path may end early; 0 if it cannot
	wild    bool // whether servers may read the path in unknown ways
	// segments is the maximum number of segments that a reading may have.
	segments int
}

// plain reports whether the path has only one way to split and unescape it.
func (h *pathHints) plain() bool { return h.decode == 0 && !h.params && !h.slashes && h.end == 0 }

func scanPath(path string) (h pathHints) {
	for i := range len(path) {
		switch path[i] {
		case '%':
			h.escape(path, i)
		case ';':
			h.params = true
		case '/':
			h.segments++
		case '\\':
			h.slashes = true
			h.segments++
		case '?', '#':
			h.endAt(i)
		default:
			h.wild = h.wild || path[i] < ' ' || path[i] == 0x7F
		}
	}
	h.wild = h.wild || spaced(path)
	return h
}

// spaced reports whether a path begins or ends with a space, which some servers drop.
func spaced(path string) bool {
	path = strings.Trim(path, "/")
	return strings.HasPrefix(path, "%20") || strings.HasSuffix(path, "%20") || strings.TrimSpace(path) != path
}

func (h *pathHints) endAt(i int) {
	if h.end == 0 {
		h.end = i
	}
}

// escape sets the hints for the special characters that the escape at i may stand for.
func (h *pathHints) escape(path string, i int) {
	c, ok := percent.Byte(path, i)
	if !ok {
		h.wild = h.wild || len(path)-i > 1 && fold.Lower(path[i+1]) == 'u'
		return
	}
	switch c {
	case 0xC0, 0xC1, 0xE0, 0xF0:
		h.wild = h.wild || overlong(path[i:])
	case '/':
		h.decode = max(h.decode, 1)
		h.segments++
	case '\\':
		h.decode, h.slashes = max(h.decode, 1), true
		h.segments++
	case ';':
		h.params = true
	case '?', '#':
		h.endAt(i)
	case '%':
		// The character is escaped twice.
		if c, ok := unhexTwice(path[i+3:]); ok {
			h.decode = 2
			h.slashes = h.slashes || c == '\\'
			h.params = h.params || c == ';'
			h.segments++
			h.wild = h.wild || c < ' ' || c == 0x7F
		}
	default:
		h.wild = h.wild || c < ' ' || c == 0x7F
	}
}

// unhexTwice returns the byte that the two hex digits at the beginning of s stand for. The digits may be escaped
// themselves.
func unhexTwice(s string) (byte, bool) {
	var digits [2]byte
	for i := range digits {
		if s == "" {
			return 0, false
		}
		n := 1
		digits[i] = s[0]
		if c, ok := percent.Byte(s, 0); ok {
			digits[i], n = c, 3
		}
		s = s[n:]
	}
	return percent.Pair(digits[0], digits[1])
}

// overlong reports whether s starts with an escaped character that is encoded in more bytes than UTF-8 needs. Some
// servers read "%C0%AF" as a slash.
func overlong(s string) bool {
	first, _ := percent.Byte(s, 0)
	second, ok := percent.Byte(s, 3)
	if !ok || second&0xC0 != 0x80 {
		return false
	}
	return first < 0xC2 || first == 0xE0 && second < 0xA0 || first == 0xF0 && second < 0x90
}

// These are the ways to treat ";parameters" of a segment.
const (
	keepParams     = iota
	cutParams      // cut after unescaping
	cutParamsFirst // cut before and after unescaping
)

// These are the ways to treat the segments "." and "..".
const (
	resolveDots = iota // resolve them after empty segments are dropped
	resolveRFC         // resolve them before empty segments are dropped, as in RFC 3986
	keepDots
)

// readings returns the readings for all combinations of servers' habits that make a difference.
func (b *Buffer) readings(path string, h pathHints) []Reading {
	params, slashes := 1, 1
	if h.params {
		params = 3
	}
	if h.slashes {
		slashes = 2
	}
	b.addTexts(path, h)
	work := 0
	for _, text := range b.texts {
		for decode := range 1 + h.decode {
			for p := range params {
				for s := range slashes {
					b.split(text, decode, p, s == 1)
					work += (len(text) + segmentWork*len(b.parts)) * b.addAll()
					if work > maxPathWork || len(b.found) > maxReadings {
						return b.tooMany()
					}
				}
			}
		}
	}
	return b.found
}

// addTexts sets b.texts to the path, to the path up to its early end, and to both after a proxy has resolved dots.
func (b *Buffer) addTexts(path string, h pathHints) {
	b.texts = append(b.texts[:0], path)
	if h.end > 0 {
		b.texts = append(b.texts, path[:h.end])
	}
	if h.decode > 0 && (b.dots || h.end > 0) {
		for _, text := range b.texts {
			for _, dots := range [...]int{resolveDots, resolveRFC} {
				if c := cleaned(text, dots); !slices.Contains(b.texts, c) {
					b.texts = append(b.texts, c)
				}
			}
		}
	}
}

// cleaned returns an escaped path with its dots resolved.
func cleaned(path string, dots int) string {
	parts := strings.Split(path, "/")[1:]
	for i, part := range parts {
		if strings.IndexByte(part, '%') < 0 {
			continue
		}
		if part = escapedDots.Replace(part); part == "." || part == ".." {
			parts[i] = part
		}
	}
	return "/" + strings.Join(appendResolved(nil, parts, dots), "/")
}

var escapedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// split sets b.parts to the segments of a path, which may be empty or dots.
func (b *Buffer) split(path string, decode, params int, backslashes bool) {
	if params == cutParamsFirst {
		path = b.withoutParams(path, backslashes)
	}
	for range decode {
		path = b.unescape(path)
	}
	b.parts, b.dots = b.parts[:0], false
	for more := true; more; {
		part := path
		i := indexSlash(path, backslashes)
		if more = i >= 0; more {
			part, path = path[:i], path[i+1:]
		}
		if decode == 0 {
			part = b.unescape(part)
		}
		if params != keepParams {
			part, _, _ = strings.Cut(part, ";")
		}
		b.dots = b.dots || part == "." || part == ".."
		b.parts = append(b.parts, part)
	}
}

func indexSlash(path string, backslashes bool) int {
	if backslashes {
		return strings.IndexAny(path, `/\`)
	}
	return strings.IndexByte(path, '/')
}

// withoutParams returns the path without the text from each ";" up to the next slash.
func (b *Buffer) withoutParams(path string, backslashes bool) string {
	start := len(b.text)
	for {
		before, after, found := strings.Cut(path, ";")
		b.text = append(b.text, before...)
		if !found {
			return b.since(start)
		}
		path = ""
		if i := indexSlash(after, backslashes); i >= 0 {
			path = after[i:]
		}
	}
}

// authority reports whether the path starts with two slashes and a possible host.
func (b *Buffer) authority() bool { return len(b.parts) > 2 && b.parts[0] == "" && b.parts[1] == "" }

// dropAuthority drops the host that follows the slashes at the beginning of the parts.
func (b *Buffer) dropAuthority() {
	for len(b.parts) > 0 && b.parts[0] == "" {
		b.parts = b.parts[1:]
	}
	if len(b.parts) > 0 {
		b.parts = b.parts[1:]
	}
}

// script returns the index of the first part that is a script and has a path after it, or -1.
func (b *Buffer) script() int {
	for i, part := range b.parts {
		if script(part) && strings.Join(b.parts[i+1:], "") != "" {
			return i
		}
	}
	return -1
}

// script reports whether a segment is the name of a program that may get the rest of the path, as with CGI and PHP.
func script(segment string) bool {
	dot := strings.LastIndexByte(segment, '.')
	if dot < 0 {
		return false
	}
	switch strings.ToLower(segment[dot+1:]) {
	case "php", "php3", "php4", "php5", "php7", "php8", "phtml", "cgi", "fcgi", "pl", "py", "asp", "aspx", "ashx":
		return true
	}
	return false
}

// addAll adds every reading of the parts. It returns the number of readings that it has made, including duplicates.
func (b *Buffer) addAll() int {
	all := b.parts
	n := b.addDots()
	if b.authority() {
		b.dropAuthority()
		n += b.addDots()
		b.parts = all
	}
	if i := b.script(); i >= 0 {
		b.parts = all[i+1:] // the path for the program
		n += b.addDots()
		b.parts = slices.Concat(all[:i], all[i+1:]) // the path without the program's name
		n += b.addDots()
		b.parts = all
	}
	return n
}

func (b *Buffer) addDots() int {
	b.add(resolveDots)
	if !b.dots {
		return 1
	}
	b.add(resolveRFC)
	b.add(keepDots)
	return 3
}

// add adds the reading of the parts with the given treatment of dots, unless there is already an equal reading.
func (b *Buffer) add(dots int) {
	start := len(b.segs)
	b.segs = appendResolved(b.segs, b.parts, dots)
	segs := b.segs[start:len(b.segs):len(b.segs)]
	if b.ignoreCase {
		for i, s := range segs {
			segs[i] = b.fold(s)
		}
	}
	for _, v := range b.found {
		if slices.Equal(v.Segs, segs) {
			b.segs = b.segs[:start]
			return
		}
	}
	b.found = append(b.found, Reading{Segs: segs})
}

// appendResolved appends the parts after the given treatment of dots and empty segments.
func appendResolved(dst, parts []string, dots int) []string {
	start := len(dst)
	for _, part := range parts {
		switch {
		case part == "" && dots != resolveRFC:
		case part == "." && dots != keepDots:
		case part == ".." && dots != keepDots:
			dst = dst[:max(start, len(dst)-1)]
		default:
			dst = append(dst, part)
		}
	}
	if dots != resolveRFC {
		return dst
	}
	return dst[:start+len(slices.DeleteFunc(dst[start:], func(s string) bool { return s == "" }))]
}

// unescape returns s with its escapes resolved, once.
func (b *Buffer) unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	start := len(b.text)
	b.text = percent.AppendDecoded(slices.Grow(b.text, len(s)), s)
	return b.since(start)
}

func (b *Buffer) fold(s string) string {
	if fold.Folded(s) {
		return s
	}
	start := len(b.text)
	b.text = fold.AppendCase(b.text, s)
	return b.since(start)
}

// since returns b.text from the index start.
func (b *Buffer) since(start int) string {
	return unsafe.String(unsafe.SliceData(b.text[start:]), len(b.text)-start)
}
