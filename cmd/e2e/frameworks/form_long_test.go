//go:build long

package frameworks

import (
	"fmt"
	"net/url"
	"strings"
)

// pairs returns a query or a form that contains the name and other names, under odd names of the field.
func (g grammar) pairs(name string) string {
	n := 1 + g.IntN(3)
	list := []string{g.pair(g.fieldName(), g.spelled(name))}
	for range n {
		list = append(list, pick(g,
			func() string { return g.pair(g.fieldName(), pick(g, decoyA, decoyB)) },
			func() string { return g.pair("user_name", pick(g, decoyA, decoyB, "", name)) },
			func() string { return g.pair(g.fieldName(), g.spelled(name)) },
			func() string {
				return pick(g, "password=x", "", "=", "a", "=x", "&", "user_name", "a=%", "%", "_method=PUT", "utf8=✓", "_charset_=utf-16", "_charset_=ibm037", "a[b]=c", "a[", "]=[")
			},
			func() string { return g.glued(name) },
		)())
	}
	text := strings.Join(shuffled(g, list), g.usually("&", ";", "&&", "; ", "& ", "&amp;", "%26", "\r\n", "\n", ",", "&\x00", "|"))
	return g.usually("", "&", "?", "\ufeff", "\r\n", " ", "\x00", "%ef%bb%bf", "=", ";") + text + g.usually("", "&", "\r\n", "\x00", "#", "=", "\x1a", " ")
}

// glued hides one pair in another.
func (g grammar) glued(name string) string {
	v := url.QueryEscape(name)
	return "a=" + pick(g, "%26", ";", "%00&", "%0d%0a&", "\x00", "%u0026", "\"&", "'&", ",", "\r\n\r\n", "#&", "%2526", "\xff&", "＆") + "user_name=" + pick(g, v, name) + pick(g, "", "&a=", ";", "%26", "#")
}

func (g grammar) pair(name, value string) string {
	return name + g.usually("=", "%3d", "==", " = ", "=\t", "\x00=", "%3D=", ":") + value
}

// fieldName returns a name that some server takes for user_name, usually user_name itself.
func (g grammar) fieldName() string {
	if !g.one(g.calm) && g.one(2) {
		return "user_name"
	}
	if g.one(5) {
		i := g.IntN(len("user_name") + 1)
		return "user_name"[:i] + pick(g, words["within a name"]...) + "user_name"[i:]
	}
	return pick(g, words["names that some reader takes for user_name"]...)
}

// spelled writes a name as a value: unchanged, or in a way that some servers read as the name.
func (g grammar) spelled(name string) string {
	if !g.one(g.calm) {
		return pick(g, url.QueryEscape(name), url.QueryEscape(name), url.PathEscape(name), name)
	}
	name = g.effective(name)
	switch g.IntN(6) {
	case 0:
		return url.QueryEscape(name) + pick(g, words["behind a value"]...)
	case 1:
		return pick(g, words["before a value"]...) + url.QueryEscape(name)
	case 2:
		return g.escapeAll(name)
	case 3:
		return g.escapeSome(name, pick(g, "%%%02x", "%%%02X", "%%25%02x", "%%u%04x", "&#%d;", "\\u%04x", "\\x%02x"))
	case 4: // with a byte that some servers drop or replace
		i := g.IntN(len(name) + 1)
		return url.QueryEscape(name[:i]) + pick(g, words["within a value"]...) + url.QueryEscape(name[i:])
	}
	return url.QueryEscape(name)
}

func (g grammar) escapeAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// effective returns another spelling of the name that a database treats as the same.
func (g grammar) effective(name string) string {
	switch g.IntN(8) {
	case 0:
		return strings.ToUpper(name)
	case 1, 2:
		letters := []rune(name)
		i := 1 + g.IntN(len(letters))
		return string(letters[:i]) + pick(g, words["marks"]...) + string(letters[i:])
	case 3:
		return g.alike(name)
	case 4:
		return pick(g, " ", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u2003", "\x85", "\u2028", "\u180e", "") + name + pick(g, " ", "\t", "\u00a0", "\u3000", "\u200b", "\x00", "")
	}
	return name
}

// alike replaces a letter by one that looks or sorts like it.
func (g grammar) alike(name string) string {
	letters := []rune(name)
	for range 8 {
		i := g.IntN(len(letters))
		if others := words["like "+string(letters[i])]; others != nil {
			return string(letters[:i]) + pick(g, others...) + string(letters[i+1:])
		}
	}
	return name
}

// cookies returns Cookie fields that contain the name.
func (g grammar) cookies(name string) []string {
	field := g.usually("user_name", "User_Name", " user_name", "user_name ", "\"user_name\"", "user%5fname", "$user_name", "user_name\t", "user.name", "user name", "user[name", "user_name[]", "[user_name]", "user_name[0]", "\x00user_name", ",user_name", "user_name\x00", "=user_name")
	value := pick(g, name, name, `"`+name+`"`, url.QueryEscape(name), g.escapeAll(name), "j:"+fmt.Sprintf("%q", name), " "+name, name+" ", `"`+name, `"\141`+name[1:]+`"`, `"`+strings.ReplaceAll(name, "", "\\")+`"`, name+",x", name+"\x00", "s:"+name+".x", name+"%00", "\t"+name, "="+name)
	odd := field + g.usually("=", " = ", "=\"\"=", "==", "= ", "=\t") + value
	decoy := pick(g, "user_name="+decoyA, "a=b", "user_name=", "$Version=1", "$Path=/", "User_Name="+decoyA, "a=\"x; user_name="+decoyA+"\"", "a=\"x", "=", "user_name", "a=b,user_name="+name, "a=\"", "a=\\\"", "Path=/", "expires=Thu, 01-Jan-2100", "a={\"b\":1; user_name="+name)
	list := shuffled(g, []string{odd, decoy})
	if g.one(4) {
		return []string{pick(g, "Cookie: ", "cookie: ", "COOKIE: ", "Cookie2: ") + list[0], "Cookie: " + list[1]}
	}
	return []string{"Cookie: " + strings.Join(list, pick(g, "; ", ";", ";;", ", ", ",", " ", " ;", ";\t", "&", "\t"))}
}

// names returns header fields with the name, for the login that reads a header field.
func (g grammar) names(name string) []string {
	odd := pick(g, "X-User-Name: ", "X-User-Name:", "x-user-name: ", "X_User_Name: ", "X-User_Name: ", "X-User-Name:\t", "X-User-Name : ", "X.User.Name: ", "X-User-Name\t: ", "\u212a-User-Name: ", "HTTP-X-User-Name: ", "X!User!Name: ", "X~User~Name: ", "X User Name: ", "X-Uſer-Name: ") +
		pick(g, name, name, " "+name+" ", "\""+name+"\"", name+", "+decoyA, decoyA+", "+name, name+"\x00", name+"\r\n ", "\r\n "+name, name+"\x0b", "\x0b"+name, name+"\x0c", "\u00a0"+name, name+"\xa0", url.QueryEscape(name), "=?utf-8?q?"+name+"?=", "utf-8''"+name)
	decoy := pick(g, "X-User-Name: "+decoyA, "X_User_Name: "+decoyA, "X-User-Name:", "Connection: X-User-Name", "Connection: close, x-user-name", "X-A: b", "Connection: X_User_Name", "Trailer: X-User-Name", "Connection: \"X-User-Name\"", "Connection: x-user-name;q=1", "Proxy-Connection: X-User-Name")
	return shuffled(g, []string{odd, decoy})
}
