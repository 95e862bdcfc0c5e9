//go:build long

package frameworks

import (
	"fmt"
	"net/url"
	"strings"
)

// pairs returns a query or a form with the name and others, under odd names of the field.
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

// fieldNames are names that some reader takes for user_name.
var fieldNames = []string{
	"[user_name]", "user_name]", "user_name[", "[user_name", "user_name[]", "user_name[0]", "user_name[a]", "user_name[][]", "user_name[[]]", "user_name[]x", "user_name[a]b",
	"user.name", "user name", "user[name", "user+name", "user%20name", "user%2ename", "user_name%00x", "user%00_name", "%00user_name", "user_name%00", "user_name\x00",
	" user_name", "+user_name", "%20user_name", "user_name ", "user_name+", "user_name%20", "\tuser_name", "%09user_name", "user_name%09", "%0auser_name", "user_name%0a", "%0d%0auser_name", "user_name%0d",
	"\ufeffuser_name", "%ef%bb%bfuser_name", "user_name%ef%bb%bf", "model.user_name", "!user_name", "_user_name", "user_name_", "user_name.", ".user_name", "user_name.x", "user_name.y",
	"USER_NAME", "User_Name", "uſer_name", "user_na\u212ae", "ｕser_name", "user%5fname", "user%5Fname", "user%5Bname%5D", "%75ser_name", "user_name%5b%5d", "user_name%5b0%5d", "user%u005fname", "%u0075ser_name",
	"user_name*", "*user_name", "user_name:", "user-name", "userName", "$user_name", "@user_name", "\"user_name\"", "'user_name'", "(user_name)", "{user_name}", "<user_name>",
	"user_name%", "user_name%5", "user%C5_name", "user_name%ff", "user_name%c2%a0", "%c2%a0user_name", "user_name%c2%ad", "user_name%e2%80%8b", "user%ad_name", "\x0buser_name", "user_name\x0b", "\x1fuser_name", "user_name\x7f", "\u3000user_name", "user_name%85",
	"__proto__[user_name]", "constructor[user_name]", "prototype.user_name", "user_name[__proto__]", "user_name[toString]", "user_name[length]", "[][user_name]", "[0][user_name]", "[user][name]", "user[_name", "user][name", "user_[name", "a&user_name", "?user_name", "&user_name", "#user_name", ";user_name", "amp;user_name",
	"user_name[]=x&user_name", "user%5bname", "user%2bname", "user%00name", "user\x00name", "user\tname", "user\u00a0name", "user‿name", "user＿name", "user%ef%bc%bfname", "us%65r_name", "user_n%61me", "user_nam%e9", "user_namé",
}

// fieldName returns a name that somebody takes for user_name, mostly the name itself.
func (g grammar) fieldName() string {
	if !g.one(g.calm) && g.one(2) {
		return "user_name"
	}
	if g.one(5) {
		i := g.IntN(len("user_name") + 1)
		return "user_name"[:i] + pick(g, "%00", "%20", "+", "[", "]", "[]", ".", "%0a", "%09", "\x00", "%ff", "%", "%u200b", "%e2%80%8b", "%cc%81", "%c2%ad", "\xad", "%1f", "%7f", "\x01", "%ef%bb%bf", "%e0%80%80", "%c0%80", "_", "%5f", "%5b", "%5d") + "user_name"[i:]
	}
	return pick(g, fieldNames...)
}

// spelled writes a name as a value: as it is, or so that some readers take it for the name.
func (g grammar) spelled(name string) string {
	if !g.one(g.calm) {
		return pick(g, url.QueryEscape(name), url.QueryEscape(name), url.PathEscape(name), name)
	}
	name = g.dressed(name)
	switch g.IntN(6) {
	case 0:
		return url.QueryEscape(name) + pick(g, "%00", "%00x", "%20", "+", "\x00", "%0d%0a", "%ff", "%", "%c0%80", ";x", "#", "#x", "\r\n", ";", "\t", "%ad", "%e0", ";charset=x", "%u0000", "&user_name", ",", "%26")
	case 1:
		return pick(g, "+", "%20", "%09", "%00", "%ef%bb%bf", "%ff", "\x00", "%0a", "\ufeff", "=", "%c2%a0", "%e2%80%8b", "\"", "%85") + url.QueryEscape(name)
	case 2:
		return g.escapeAll(name)
	case 3:
		return g.escapeSome(name, pick(g, "%%%02x", "%%%02X", "%%25%02x", "%%u%04x", "&#%d;", "\\u%04x", "\\x%02x"))
	case 4: // a byte that is dropped, or replaced
		i := g.IntN(len(name) + 1)
		return url.QueryEscape(name[:i]) + pick(g, "%ff", "%c2", "\xff", "%", "%zz", "%ef%bf%bd", "%c0%80", "%ed%a0%80", "%f4%90%80%80", "%00", "%e2%80%8b", "%c2%ad", "%u", "%u0", "+", "%1f", "\x00") + url.QueryEscape(name[i:])
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

// dressed returns the name as somebody may write it whom a database takes for the same.
func (g grammar) dressed(name string) string {
	switch g.IntN(8) {
	case 0:
		return strings.ToUpper(name)
	case 1, 2:
		letters := []rune(name)
		i := 1 + g.IntN(len(letters))
		return string(letters[:i]) + pick(g, marks...) + string(letters[i:])
	case 3:
		return g.alike(name)
	case 4:
		return pick(g, " ", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u2003", "\x85", "\u2028", "\u180e", "") + name + pick(g, " ", "\t", "\u00a0", "\u3000", "\u200b", "\x00", "")
	}
	return name
}

// marks are characters that collations do not look at on their first level.
var marks = []string{
	"\u0301", "\u0308", "\u0345", "\u20d0", "\u20e3", "\ufe0f", "\ufe00", "\u1ab0", "\u1dc4", "\ufe20", "\U000e0100", "\u0591", "\u064b", "\u3099", "\u0488", "\u00ad", "\u200b", "\u200d", "\u2060", "\ufeff", "\u034f", "\u061c", "\u180b", "\u115f", "\u17b4", "\U000e0020", "\u0335", "\u0338", "\u00b7\u0301", "\u3164", "\uffa0", "\u1160", "\u0001", "\u007f", "\u0e31", "\u094d",
	"\u0900", "\u20dd", "\U0001d165", "\U0001d173", "\u2064", "\u202e", "\u2066", "\u0670", "\u08d3", "\u0c00", "\u0f35", "\u135d", "\u302a", "\ua66f", "\U00010a01", "\U0001e8d0", "\u0640", "\u0e4d",
}

var alikes = map[rune][]string{
	'a':  {"ａ", "á", "Å", "ⓐ", "𝐚", "ª", "ᵃ", "ₐ", "Ⱥ", "ⱥ", "ᴀ", "🄰"},
	'e':  {"ｅ", "é", "ⅇ", "ℯ", "ɇ", "ₑ", "ᴱ", "ẹ", "Ｅ"},
	'i':  {"ı", "İ", "ｉ", "ⅰ", "í", "ɨ", "ℹ", "ⁱ", "ï"},
	'l':  {"ł", "ℓ", "ｌ", "ⅼ", "ŀ", "ƚ", "Ｌ", "ḷ", "ɫ"},
	'c':  {"ç", "ｃ", "ⅽ", "ℂ", "ȼ", "ć"},
	'n':  {"ñ", "ŉ", "ⁿ", "ｎ", "ŋ", "ň"},
	'o':  {"ø", "ö", "º", "ℴ", "ｏ", "ỏ", "ɵ"},
	'r':  {"ř", "ｒ", "ℛ", "ɍ"},
	's':  {"ſ", "ş", "ｓ", "ﬆ", "ș"},
	't':  {"ţ", "ŧ", "ｔ", "ⓣ", "ț"},
	'g':  {"ğ", "ɡ", "ｇ", "ǥ"},
	'j':  {"ǰ", "ｊ", "ɉ", "ⅉ"},
	'ü':  {"u", "u\u0308", "Ü", "ｕ", "ù", "ʉ"},
	'ß':  {"ss", "ẞ", "SS", "ſs"},
	'4':  {"４", "④", "⁴", "₄", "𝟒", "٤", "४"},
	'7':  {"７", "⑦", "𝟕", "٧"},
	'1':  {"１", "①", "¹", "𝟏", "١"},
	'σ':  {"ς", "Σ", "ϲ", "𝛔"},
	'ω':  {"ώ", "Ω", "\u2126", "ὠ"},
	'@':  {"＠", "﹫"},
	'\'': {"’", "＇"},
}

// alike replaces a letter by one that looks or sorts like it.
func (g grammar) alike(name string) string {
	letters := []rune(name)
	for range 8 {
		i := g.IntN(len(letters))
		if others := alikes[letters[i]]; others != nil {
			return string(letters[:i]) + pick(g, others...) + string(letters[i+1:])
		}
	}
	return name
}

// cookies returns Cookie fields.
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

// names returns fields with the name of the header's login.
func (g grammar) names(name string) []string {
	odd := pick(g, "X-User-Name: ", "X-User-Name:", "x-user-name: ", "X_User_Name: ", "X-User_Name: ", "X-User-Name:\t", "X-User-Name : ", "X.User.Name: ", "X-User-Name\t: ", "\u212a-User-Name: ", "HTTP-X-User-Name: ", "X!User!Name: ", "X~User~Name: ", "X User Name: ", "X-Uſer-Name: ") +
		pick(g, name, name, " "+name+" ", "\""+name+"\"", name+", "+decoyA, decoyA+", "+name, name+"\x00", name+"\r\n ", "\r\n "+name, name+"\x0b", "\x0b"+name, name+"\x0c", "\u00a0"+name, name+"\xa0", url.QueryEscape(name), "=?utf-8?q?"+name+"?=", "utf-8''"+name)
	decoy := pick(g, "X-User-Name: "+decoyA, "X_User_Name: "+decoyA, "X-User-Name:", "Connection: X-User-Name", "Connection: close, x-user-name", "X-A: b", "Connection: X_User_Name", "Trailer: X-User-Name", "Connection: \"X-User-Name\"", "Connection: x-user-name;q=1", "Proxy-Connection: X-User-Name")
	return shuffled(g, []string{odd, decoy})
}
