//go:build long

package frameworks

import (
	"fmt"
	"strings"
)

// oddPath rewrites a path so that some servers still read it as the same path.
func (g grammar) oddPath(path string) string {
	for range 1 + g.IntN(3) {
		path = g.oddity(path)
	}
	return path
}

func (g grammar) oddity(path string) string {
	switch g.IntN(9) {
	case 0:
		return pick(g, words["before a path"]...) + path
	case 1:
		return path + pick(g, words["behind a path"]...)
	case 2:
		return g.escapeSome(path, pick(g, "%%%02x", "%%%02X", "%%25%02x", "%%u%04x", "%%2525%02x"))
	case 3:
		i := g.IntN(len(path))
		return path[:i] + pick(g, words["within a path"]...) + path[i:]
	case 4:
		return strings.Replace(path, "/", pick(g, words["instead of a slash"]...), 1+g.IntN(2))
	case 5:
		return pick(g, strings.ToUpper, strings.ToTitle, func(s string) string { return strings.Replace(s, "login", "Login", 1) },
			func(s string) string { return strings.Replace(s, "i", "%c4%b1", 1) }, func(s string) string { return strings.Replace(s, "i", "ı", 1) },
			func(s string) string { return strings.Replace(s, "l", "%4c", 1) }, func(s string) string { return strings.Replace(s, "s", "%c5%bf", 1) })(path)
	case 6:
		return strings.Replace(path, "/login", pick(g, "/%6cogin", "/x/../login", "/login/../login", "/./login", "//login", "/login;x", "/;x/login", "/..%2f"+strings.Trim(path, "/"), "/%2e%2e"+path, "/.."+path, "/..;"+path, "/%6c%6f%67%69%6e", "/ｌogin", "/login%e2%80%8b"), 1)
	}
	return path
}

// escapeSome escapes some characters of a text.
func (g grammar) escapeSome(s, format string) string {
	var b strings.Builder
	often := 1 + g.IntN(8)
	for i := range len(s) {
		if g.one(often) && (s[i] != '/' || g.one(6)) {
			fmt.Fprintf(&b, format, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// oddTarget returns a request target with the path, in one of many forms.
func (g grammar) oddTarget(path string) string {
	if !g.one(3) {
		return path
	}
	return pick(g, "http://login.test", "http://x", "HTTP://x", "https://x", "http:", "http:/", "http:///", "a:", "a://h", "a:http://h", "http:http://h", "x", "*", "h:80", "//x", "//", "///", "file://", "ws://x",
		"http://x:80", "http://x:", "http://u:p@x", "http://@x", "http://[::1]", "http://x?", "http://x#", "http://x\\", "http://%2f", "//x@y", "//x:99999", "//[", "//static:80", "http://static/static/..", "http://x//static", "http:////static", "h2c://x", "urn:", "javascript:", "?", "?x=", "#", "/?", "/x?", "@", ":", ";", "%2f", "%2e", ".", "..", "../", "\\\\x\\", "/\\x", "/\\/x", "//x/..", "//x/static/..", "//x\\", "/\t/x", "/\t/", "//static/", "//%2e", "///x:0", "//ip", "//login", "//user:p@x") + path
}
