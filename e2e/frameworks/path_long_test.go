//go:build long

package frameworks

import (
	"fmt"
	"strings"
)

// oddPath writes a path so that some servers still take it for what it was.
func (g grammar) oddPath(path string) string {
	for range 1 + g.IntN(3) {
		path = g.oddity(path)
	}
	return path
}

func (g grammar) oddity(path string) string {
	switch g.IntN(9) {
	case 0:
		return pick(g, "/", "//", "/x", "//x", "//static", "///", "///static", "/./", "/x/..", "/static/..", "/static/../", "//static/..", "/static/..;", "/static;/..",
			"/static/%2e%2e", "/static/..%2f", "/static/..%5c", "/static\\..\\", "/\\", "\\", "/%2f", "/%2f/static", "/static/x/../..", "//static@x", "//x:80", "//x@y", "/.//", "/;/", "/static/%2e%2e%2f",
			"/static/%252e%252e", "/static/.%00./..", "//[::1]", "//x?", "/static/./..", "/static//..", "/static/.../..", "/x//..", "/static/..\\", "/static/\xc0\xae\xc0\xae", "/static/%c0%ae%c0%ae", "/static/%u002e%u002e", "/http://x", "/static#/..", "/static?/..",
			"/static/%2e./", "/static/.%09./", "/static/..%00", "/index.php", "/main.php", "/static/index.php") + path
	case 1:
		return path + pick(g, "/", "//", "/.", "/x/..", "/%2e", "/..;/login", ";", ";x=1", ";/", "%00", "%00x", "%20", "%09", "?", "#", "#x", "%23", "%3f", "%3fx", "%3b", "\\", "%5c", "/%2f", "\t", "%0a", ".", "%2e", "..", "%2f", "%2f..%2flogin", "?/../static/x", "#/../../static", "%2f..", ";/../login", "/;x", "/..", "/../login", "%ff", "%c0%af", "+", ",x", "::$DATA", "%", "%2", "%zz", "\x80")
	case 2:
		return g.escapeSome(path, pick(g, "%%%02x", "%%%02X", "%%25%02x", "%%u%04x", "%%2525%02x"))
	case 3:
		i := g.IntN(len(path))
		return path[:i] + pick(g, "%00", "%09", "\t", "%20", "%0d%0a", "%ad", "%c2%ad", "%e2%80%8b", "%", ";x", "\\", "./", "../", "/", "%2f", "%5c", "?", "#", "@", ":", "+", "%25", "%u2215", "%ef%bc%8f", "\x00", "*", "|", "%7f") + path[i:]
	case 4:
		return strings.Replace(path, "/", pick(g, "//", "/./", "\\", "%2f", "%2F", "%5c", "/;/", "/;x/", "/%2e/", "/x/../", "/x/%2e%2e/", "/x/..%2f", "%252f", "/%2f", "/x//../", "/..;/", "/.;/", "/\t/", "/x%2f../", "/x%2f..%2f", "/%2e%2e;/", "/%00/../", "//../", "%c0%af", "%e0%80%af", "%u2215", "/.%2e/x/", "/x/.%2e/"), 1+g.IntN(2))
	case 5:
		return pick(g, strings.ToUpper, strings.ToTitle, func(s string) string { return strings.Replace(s, "login", "Login", 1) },
			func(s string) string { return strings.Replace(s, "i", "%c4%b1", 1) }, func(s string) string { return strings.Replace(s, "i", "ı", 1) },
			func(s string) string { return strings.Replace(s, "l", "%4c", 1) }, func(s string) string { return strings.Replace(s, "s", "%c5%bf", 1) })(path)
	case 6:
		return strings.Replace(path, "/login", pick(g, "/%6cogin", "/x/../login", "/login/../login", "/./login", "//login", "/login;x", "/;x/login", "/..%2f"+strings.Trim(path, "/"), "/%2e%2e"+path, "/.."+path, "/..;"+path, "/%6c%6f%67%69%6e", "/ｌogin", "/login%e2%80%8b"), 1)
	}
	return path
}

// escapeSome writes some characters of a path as escapes.
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

// oddTarget writes a path as one of the forms of a request target.
func (g grammar) oddTarget(path string) string {
	if !g.one(3) {
		return path
	}
	return pick(g, "http://login.test", "http://x", "HTTP://x", "https://x", "http:", "http:/", "http:///", "a:", "a://h", "a:http://h", "http:http://h", "x", "*", "h:80", "//x", "//", "///", "file://", "ws://x",
		"http://x:80", "http://x:", "http://u:p@x", "http://@x", "http://[::1]", "http://x?", "http://x#", "http://x\\", "http://%2f", "//x@y", "//x:99999", "//[", "//static:80", "http://static/static/..", "http://x//static", "http:////static", "h2c://x", "urn:", "javascript:", "?", "?x=", "#", "/?", "/x?", "@", ":", ";", "%2f", "%2e", ".", "..", "../", "\\\\x\\", "/\\x", "/\\/x", "//x/..", "//x/static/..", "//x\\", "/\t/x", "/\t/", "//static/", "//%2e", "///x:0", "//ip", "//login", "//user:p@x") + path
}
