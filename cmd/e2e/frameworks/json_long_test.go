//go:build long

package frameworks

import (
	"fmt"
	"net/url"
	"strings"
)

// json returns a text that some servers read as an object with the name.
func (g grammar) json(name string) string {
	members := []string{g.member(g.jsonName(), g.jsonValue(name))}
	for range g.IntN(3) {
		members = append(members, pick(g,
			func() string { return g.member(g.jsonName(), fmt.Sprintf("%q", pick(g, decoyA, decoyB))) },
			func() string { return g.member(`"user_name"`, fmt.Sprintf("%q", pick(g, decoyA, decoyB, name))) },
			func() string { return g.member(g.jsonName(), g.jsonValue(name)) },
			func() string {
				return pick(g, `"a":1`, `"a":NaN`, `"a":Infinity`, `"a":-Infinity`, `"a":01`, `"a":.5`, `"a":1.`, `"a":+1`, `"a":0x10`, `"a":1e999`, `"a":undefined`, `"a":'b'`, `a:1`, "\"a\":\"\t\"", "\"a\":\"\n\"", `"a":"\x41"`, `"a":"\ud800"`, "\"a\":\"\xff\"", `"a":"\u0000"`, `"a":`+strings.Repeat("[", 600)+strings.Repeat("]", 600),
					`"a":{"user_name":"`+name+`"}`, `"a":"\"`, `"":"`+name+`"`, `"a":"\'"`, `"a":tRue`, `"a":TRUE`, `"a":nan`, `"a":1_000`, `"a":"\
"`, `"a":-`, `"a":-NaN`, `"a":123456789012345678901234567890`, `"json_class":"X"`, `"a":"`+"\x00"+`"`, `"a":null`)
			})())
	}
	text := strings.Join(shuffled(g, members), g.usually(",", ", ", ",,", ";", "\n", ",/**/", ",//\n", ",#\n", ",\x00", ",\u00a0", ",\x0b", ",\x0c"))
	text = g.usually("{", "{,", "{ ", "[{", "{/**/", "{//x\n", "{\x0b", "{\u00a0", "{\ufeff") + text + g.usually("}", ",}", "}]", "", "}}", "} ", "\x00}")
	text = g.usually("", "\ufeff", " ", "\x00", "/**/", "//\n", "\x0b", "\x0c", "\u00a0", "\u2028", ")]}',\n", "while(1);", "[]", "null", "\x1e", "1", "{}", "\ufeff\ufeff", "\u3000", "\x85", "a=", "#\n", "\xff\xfe", "\r\n") + text
	return text + g.usually("", "\x00", " ", "\n", "x", "{}", "/**/", "//", ",", "]", "&user_name="+url.QueryEscape(name), "{\"user_name\":\""+decoyB+"\"}", ";", "\ufeff", "\u00a0", "\x1a", "\x0b", "=", "=x")
}

func (g grammar) member(name, value string) string {
	return name + g.usually(":", " : ", ":\n", "=", "=>", ":/**/", ":\x0b") + value
}

// jsonName returns a quoted name that some servers take for user_name.
func (g grammar) jsonName() string {
	if g.one(2) {
		return `"user_name"`
	}
	return pick(g, `"user\u005fname"`, `"\u0075ser_name"`, `"User_Name"`, `"USER_NAME"`, `"user_name\u0000"`, `"\u0000user_name"`, `"user_name "`, `" user_name"`, `"\ufeffuser_name"`, `"user_name\ufeff"`, "\"user_name\x00\"", `"user.name"`, `"user name"`, `"user-name"`, `"userName"`, `"u\u017fer_name"`, `"user_name\ud800"`, `"\ud800user_name"`, "\"user_name\xff\"", `'user_name'`, `user_name`, `"__proto__"`, `"constructor"`, `"user_name[]"`, `"[user_name]"`, `"user\/name"`,
		`"us\er_name"`, `"\x75ser_name"`, `"user_name\n"`, "\"user_name\n\"", "\"user_name\t\"", `""`, `"$user_name"`, `"@user_name"`, `"user\u005Fname"`, `"user\U005fname"`, `"user_name\u200b"`, `"user_name\u00ad"`, `"\u212auser_name"`, `"a.user_name"`, `"user_name\\"`, `"user_name\""`, `"user_name":"`+decoyA+`","user_name"`)
}

// jsonValue writes the name as a value.
func (g grammar) jsonValue(name string) string {
	name = pick(g, name, g.effective(name))
	switch g.IntN(14) {
	case 0:
		return fmt.Sprintf("[%q]", name)
	case 1:
		return fmt.Sprintf(`{"user_name":%q}`, name)
	case 2:
		return "'" + name + "'"
	case 3:
		return `"` + escapeUTF16(name) + `"`
	case 4:
		return pick(g, "4711", "4711.0", "4711e0", "47.11e2", "04711", "+4711", "4711.", "0x1267", "4.711E+3", "4711n", "\"4711\"", "4711.00000000000000000001", "[4711]", "-4711", "4_711", "47110e-1", "\"4711.0\"", "\"04711\"", "\"+4711\"", "\" 4711\"")
	case 5:
		return fmt.Sprintf("%q", name+pick(g, "\x00", "\x00x", " ", "\n", "\t", "\u200b"))
	case 6:
		return `"` + name + pick(g, `\ud800`, `\u0000`, "\xff", "\x00", "\t", "\n", `\`+"\n", `\x00`, `\q`, `\/`, `\u`, `\uD83D`, "\xed\xa0\x80", "\xc0\x80", `\u{0}`, `\v`, `\0`, `\u200b`, `\ufeff`) + `"`
	case 7:
		return `{"toString":"` + name + `"}`
	}
	return `"` + strings.ReplaceAll(name, `"`, `\"`) + `"`
}

func escapeUTF16(s string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

// polyglot returns a body that can be read both as JSON and as a form, with different names.
func (g grammar) polyglot(name string) string {
	v := url.QueryEscape(name)
	inJSON := pick(g, "&user_name="+v+"&", "&user_name="+v+"&b=", "&user_name="+v, "&user_name="+v+";", "=&user_name="+v+"&", "%26user_name="+v+"&", ";user_name="+v+";b=", "&user_name[]="+v+"&b=", "\\n&user_name="+v+"&", "&[user_name]="+v+"&", "\r\n--b\r\nContent-Disposition: form-data; name=\\\"user_name\\\"\r\n\r\n"+name+"\r\n--b--\r\n")
	return pick(g,
		`{"user_name":"`+decoyA+`","a":"`+inJSON+`"}`,
		`{"a":"`+inJSON+`","user_name":"`+decoyA+`"}`,
		`{"`+inJSON+`":1,"user_name":"`+decoyA+`"}`,
		`{"user_name":"`+decoyA+`"}&user_name=`+v,
		`{"user_name":"`+decoyA+`"}`+"\n&user_name="+v+"&",
		`user_name=`+decoyA+`&a={"user_name":"`+name+`"}`,
		`{"user_name":"`+name+`","a":"&user_name=`+decoyA+`&"}`,
		`{"user_name":"`+name+`","a":"=&user_name=`+decoyA+`"}`,
		`[{"user_name":"`+name+`"},"&user_name=`+decoyA+`&"]`,
		`["&user_name=`+v+`&"]`,
		`"&user_name=`+v+`&"`,
		` {"user_name":"`+decoyA+`","a":"`+inJSON+`"}`,
		"\ufeff{\"user_name\":\""+decoyA+`","a":"`+inJSON+`"}`,
		`{"user_name":"`+decoyA+`","a":"`+inJSON+`"`,
		`a={"user_name":"`+decoyA+`","b":"`+inJSON+`"}`,
		`{}&user_name=`+v,
		`{&user_name=`+v+`&}`,
		`{"a":1,&user_name=`+v+`&"b":1}`,
		`{"user_name":"`+decoyA+`"}{"user_name":"`+name+`"}`,
	)
}
