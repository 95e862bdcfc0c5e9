// Package paths reads the path of a request in every way that servers are known to. Package policy is above
// it.
//
// The first reading is that of a careful server, and nearly every path has no other. No path costs much
// more to read than to send: one with too many readings matches every pattern and none.
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
	Segs  []string // unescaped, without empty ones
	Every bool     // stands for a path that every pattern matches
	Never bool     // stands for a path that no pattern matches
}

// Buffer is the scratch of [Readings]. What Readings returns lives until it is used again.
type Buffer struct {
	ignoreCase bool
	texts      []string // the path, and how servers in between may pass it on
	dots       bool     // the parts contain "." or ".."
	parts      []string
	segs       []string
	views      []Reading
	text       []byte
}

const (
	// maxReadings is the most readings of a path, maxSegments the most segments of one, and maxPathWork the most
	// work for all of them, in bytes, where a segment costs as much as segmentWork bytes. So no path costs much
	// more than a plain one. Paths of honest clients are far below.
	maxReadings = 32
	maxPath     = 16 << 10 // as the most that servers take
	maxSegments = 128
	maxPathWork = 12 << 10
	segmentWork = 8
	// maxBuffer is the most scratch that is kept from one request to the next.
	maxBuffer = 1 << 17
)

// Readings returns the readings of the escaped path of a request that servers behind us
// may take, the first of them that of a careful server: split at "/", each segment
// unescaped once, empty segments dropped, "." and ".." resolved, also where they are
// written %2e. For nearly every path that is all.
//
// A rule that limits applies if any of the readings matches, so that a path cannot slip
// past it, and an exempt rule only if all of them match, so that a path cannot hide in
// one. The other readings are the combinations of these habits of servers, as far as
// the path gives them a meaning:
//
//   - to unescape before splitting ("/auth%2flogin"), even twice ("/auth%252flogin")
//   - to take "\" for "/"
//   - to ignore ";parameters" of a segment, cut before or after unescaping
//   - to end the path at "?" or "#", escaped or not
//   - to leave "." and ".." alone, to resolve them while empty segments still count
//     ("/auth//../login"), or to resolve them before unescaping
//   - to take what follows two slashes for a host ("//x/auth/login"), or more of them
//   - to take what follows a script for a path of its own ("/index.php/auth/login")
//
// An invalid escape stands for itself. An empty path and the "*" of OPTIONS are read as
// "/", and of an absolute URL its path counts. A path with control characters, with escapes
// that are none in a URL ("%u0061", a "/" in too many bytes), or with so many readings that
// they would be work, is every path and none: all rules that limit apply to it, and no
// exempt one does. An engine refuses it.
func Readings(path string, ignoreCase bool, b *Buffer) []Reading {
	b.reset(ignoreCase)
	if b.simple(path) {
		return b.views
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
		return b.views
	}
	return b.readings(path, h)
}

// simple adds the view of a path in which nothing needs to be read with care, and reports
// whether it is one. Nearly all are.
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
	b.views = append(b.views, Reading{Segs: segs})
	return true
}

// pathByte tells the bytes of a path apart.
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
	other        // ends a segment, or servers differ about it
)

func (b *Buffer) tooMany() []Reading {
	return append(b.views[:0], Reading{Every: true}, Reading{Never: true})
}

func (b *Buffer) reset(ignoreCase bool) {
	if cap(b.text)+16*cap(b.segs)+16*cap(b.parts) > maxBuffer {
		*b = Buffer{}
	}
	b.ignoreCase = ignoreCase
	b.segs, b.views, b.text = b.segs[:0], b.views[:0], b.text[:0]
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

// pathHints are the habits of servers that matter for a path.
type pathHints struct {
	decode  int  // how often unescaping may make a difference before splitting: 0 to 2
	params  bool // there may be ";"
	slashes bool // there may be "\"
	end     int  // where the path may end early, if not 0
	wild    bool // servers may read it in unknown ways
	// segments is how many there may be.
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

// escape notes what the escape at i may hide.
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
		// Escaped twice: look at what it is in the end.
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

// unhexTwice returns what the two hex digits at the beginning of s stand for, which may be
// escaped themselves.
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

// overlong reports whether s begins with a character in more bytes of UTF-8 than it needs,
// escaped: some servers read "%C0%AF" as a slash.
func overlong(s string) bool {
	first, _ := percent.Byte(s, 0)
	second, ok := percent.Byte(s, 3)
	if !ok || second&0xC0 != 0x80 {
		return false
	}
	return first < 0xC2 || first == 0xE0 && second < 0xA0 || first == 0xF0 && second < 0x90
}

// What to do with ";parameters" of a segment.
const (
	keepParams     = iota
	cutParams      // after unescaping
	cutParamsFirst // before it as well
)

// What to do with "." and ".." segments.
const (
	resolveDots = iota // after dropping empty segments
	resolveRFC         // while empty segments count, as in RFC 3986
	keepDots
)

// readings adds the reading of every combination of habits that matter.
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
					if work > maxPathWork || len(b.views) > maxReadings {
						return b.tooMany()
					}
				}
			}
		}
	}
	return b.views
}

// addTexts sets b.texts to the path, the path ended early, and what both are after
// a server in between has resolved their dots.
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

// withoutParams returns the path without what is between a ";" and the next slash.
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

// authority reports whether the parts begin with two slashes and what may be a host.
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

// script returns the place of the first part that is a script with a path behind it, or -1.
func (b *Buffer) script() int {
	for i, part := range b.parts {
		if script(part) && strings.Join(b.parts[i+1:], "") != "" {
			return i
		}
	}
	return -1
}

// script reports whether a segment is the name of a program that may be given the rest of the
// path, as of CGI and PHP.
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

// addAll adds every reading of the parts, and returns how many it has looked at.
func (b *Buffer) addAll() int {
	all := b.parts
	n := b.addDots()
	if b.authority() {
		b.dropAuthority()
		n += b.addDots()
		b.parts = all
	}
	if i := b.script(); i >= 0 {
		b.parts = all[i+1:] // as the program sees it
		n += b.addDots()
		b.parts = slices.Concat(all[:i], all[i+1:]) // as it is without the program's name
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

// add adds what the parts are with that habit, unless that is there already.
func (b *Buffer) add(dots int) {
	start := len(b.segs)
	b.segs = appendResolved(b.segs, b.parts, dots)
	segs := b.segs[start:len(b.segs):len(b.segs)]
	if b.ignoreCase {
		for i, s := range segs {
			segs[i] = b.fold(s)
		}
	}
	for _, v := range b.views {
		if slices.Equal(v.Segs, segs) {
			b.segs = b.segs[:start]
			return
		}
	}
	b.views = append(b.views, Reading{Segs: segs})
}

// appendResolved appends the parts that remain.
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

// since returns what was appended to the text from start on.
func (b *Buffer) since(start int) string {
	return unsafe.String(unsafe.SliceData(b.text[start:]), len(b.text)-start)
}
