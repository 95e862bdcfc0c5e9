package policy

import (
	"bytes"
	"encoding/base64"
	"mime/multipart"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParsePart(t *testing.T) {
	for _, s := range []string{
		"client_ip", "header:X-API-Key", "header:x-api-key", "api_key", "cookie:session", "query:q", "query:größe", "query:user[name]",
		"jwt:sub", "jwt:https://example.com/plan", "body:username", "body:first name", "route", "host", "method", "const:all", "const:a:b",
	} {
		p, err := parsePart(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		} else if p.String() != s {
			t.Errorf("%q prints as %q", s, p.String())
		}
	}
	if p, _ := parsePart("header:x-api-key"); p.name != "X-Api-Key" {
		t.Errorf("the name of the header is %q", p.name)
	}
}

func TestParsePartErrors(t *testing.T) {
	all := "use one of client_ip, header:NAME, api_key, cookie:NAME, query:NAME, jwt:CLAIM, body:FIELD, route, host, method, const:TEXT"
	for _, tt := range []struct{ in, want string }{
		{"", all}, {"zzz:a", all}, {strings.Repeat("x", 1<<20), all},
		{"ip", `did you mean "client_ip"?`}, {"Client-IP", `did you mean "client_ip"?`}, {" client_ip", `did you mean "client_ip"?`},
		{"headers:X", `did you mean "header:X"?`}, {"header X", `did you mean "header:X"?`}, {"jwt.sub", `did you mean "jwt:sub"?`},
		{"x-api-key", `did you mean "api_key"?`}, {"x-user", `did you mean "header:x-user"?`}, {"hedder", `did you mean "header:NAME"?`},
		{"client_ip:", "stands alone"}, {"method:GET", "stands alone"},
		{"header", "write it as header:NAME"}, {"header:", "write it as header:NAME"}, {"const:", "write it as const:TEXT"},
		{"query:_", "neither a letter nor a digit"}, {"body:[]", "neither a letter nor a digit"}, {"cookie:--", "neither a letter nor a digit"},
		{"header:X API", "cannot have"}, {"header: X", "spaces around"}, {"header:ö", "cannot have"}, {"header:host", `write "host"`},
		{"cookie:a=b", "cannot have"}, {"cookie:a;b", "cannot have"},
		{"query:a\n", "do not show"}, {"body:\xff", "do not show"}, {"jwt:\u200b", "do not show"}, {"const:a\x00", "do not show"},
		{"body:a ", "spaces around"}, {"header:a-b-c-d_e-f-g-h", "more hyphens"},
	} {
		_, err := parsePart(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 300 {
			t.Errorf("%.60q: %v; want %s", tt.in, err, tt.want)
		}
	}
}

var prefix64 = &Policy{ipv6Prefix: 64}

const broken = "(garbled)" // stands for a garbled part in the tables

// valueOf returns a part of a request, "" if it is absent and broken if it is garbled.
func valueOf(t testing.TB, text string, r *Request) string {
	t.Helper()
	p, err := parsePart(text)
	if err != nil {
		t.Fatal(err)
	}
	var x extractor
	x.reset(r, prefix64)
	x.route = "GET /r"
	v, ok := p.value(&x)
	switch {
	case x.garbled && (ok || v != ""):
		t.Fatalf("%s is %q, and garbled", text, v)
	case x.garbled:
		return broken
	case ok != (v != ""):
		t.Fatalf("%s is %q, %v", text, v, ok)
	}
	return v
}

// body gives a request a body as doors do.
func body(s string) func(int64) ([]byte, error) {
	return func(limit int64) ([]byte, error) {
		if int64(len(s)) > limit {
			return nil, nil
		}
		return append([]byte{}, s...), nil
	}
}

func TestClientIP(t *testing.T) {
	var x extractor // used again, as in life
	for _, tt := range []struct {
		addr   string
		prefix int
		want   string
	}{
		{"192.0.2.7", 64, "192.0.2.7"},
		{"::ffff:192.0.2.7", 64, "192.0.2.7"},
		{"2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"},
		{"2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::"},
		{"2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"},
		{"fe80::1%eth0", 128, "fe80::1"},
		{"fe80::1%eth0", 64, "fe80::"},
		{"", 64, ""},
	} {
		var a netip.Addr
		if tt.addr != "" {
			a = netip.MustParseAddr(tt.addr)
		}
		p, _ := parsePart("client_ip")
		x.reset(&Request{Peer: a}, &Policy{ipv6Prefix: tt.prefix})
		if v, ok := p.value(&x); v != tt.want || ok != (tt.want != "") || x.garbled {
			t.Errorf("%s/%d is %q, %v", tt.addr, tt.prefix, v, ok)
		}
	}
}

func TestHeaderParts(t *testing.T) {
	for _, tt := range []struct {
		part   string
		header http.Header
		want   string
	}{
		{"header:X-API-Key", http.Header{"X-Api-Key": {" abc\t"}}, "abc"},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"abc", "abc"}}, "abc"},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"abc", "abd"}}, broken},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"", "abd"}}, broken},
		{"header:X-API-Key", http.Header{"X-Api-Key": {" "}}, ""},
		{"header:X-API-Key", http.Header{"X-Api-Key": {}}, ""},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"\xff"}}, "\xff"},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"abc\xa0"}}, broken},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"=?utf-8?q?abc?="}}, broken},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"\x85abc"}}, broken},
		{"api_key", http.Header{"X-Api-Key": {"abc\xa0\xa0"}}, broken},
		{"header:X-API-Key", nil, ""},

		// CGI does not tell "_" from "-".
		{"header:X-API-Key", http.Header{"X_api_key": {"abc"}}, broken},
		{"header:X-API-Key", http.Header{"X_api-Key": {"abc"}}, broken},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"abc"}, "X-Api_key": {"abc"}}, broken},
		{"header:X-API-Key", http.Header{"X-Api-Key": {"abc"}, "X_api_keys": {"abc"}}, "abc"},
		{"header:X_Tenant", http.Header{"X_tenant": {"abc"}}, "abc"},
		{"header:X_Tenant", http.Header{"X-Tenant": {"abc"}}, broken},
		{"header:Tenant", http.Header{"Tenant": {"abc"}}, "abc"},
		{"api_key", http.Header{"X_api_key": {"abc"}}, broken},
		{"api_key", http.Header{"X_api-Key": {"abc"}, "Authorization": {"Bearer abc"}}, broken},

		{"api_key", http.Header{"X-Api-Key": {"abc"}}, "abc"},
		{"api_key", http.Header{"Authorization": {"Bearer abc"}}, "abc"},
		{"api_key", http.Header{"Authorization": {"bearer   abc "}}, "abc"},
		{"api_key", http.Header{"Authorization": {"Basic YTpi"}}, ""},
		{"api_key", http.Header{"Authorization": {"Bearer"}}, ""},
		{"api_key", http.Header{"Authorization": {"Bearer a, Bearer b"}}, broken},
		{"api_key", http.Header{"Authorization": {"Basic a, Bearer b"}}, broken},
		{"api_key", http.Header{"Authorization": {"Bearer\tabc"}}, broken},
		{"api_key", http.Header{"Authorization": {"Bearer\u00a0abc"}}, broken},
		{"api_key", http.Header{"Authorization": {"\xa0Bearer abc"}}, broken},
		{"api_key", http.Header{"Authorization": {"Digest username=\"abc\""}}, ""},
		{"api_key", http.Header{"Authorization": {"Bearer abc\u00a0"}}, broken},
		{"api_key", http.Header{"Authorization": {"Bearer: abc"}}, broken},
		{"api_key", http.Header{"Authorization": {"Negotiate"}}, ""},
		{"api_key", http.Header{"Authorization": {"Basic\tYTpi"}}, broken},
		{"api_key", http.Header{"Authorization": {"Bearer a", "Bearer b"}}, broken},
		{"api_key", http.Header{"X-Api-Key": {"abc"}, "Authorization": {"Basic YTpi"}}, "abc"},
		{"api_key", http.Header{"X-Api-Key": {"abc"}, "Authorization": {"Bearer abc"}}, "abc"},
		{"api_key", http.Header{"X-Api-Key": {"made up"}, "Authorization": {"Bearer abc"}}, broken},
		{"api_key", http.Header{"X-Api-Key": {"a", "b"}, "Authorization": {"Bearer a"}}, broken},
		{"api_key", nil, ""},

		{"cookie:sid", http.Header{"Cookie": {"a=b; sid=abc; c=d"}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {`a=b;sid="abc"`}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {"sid=%61bc"}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {`sid="\141bc"`}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"a=b", "sid=abc"}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {"sid=a=b"}}, "a=b"},
		{"cookie:sid", http.Header{"Cookie": {"sid=abc; sid=abc"}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {"sid=abc; SID=x"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"sid=abc; sid=x"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"sid=abc", "sid=x"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"sid=; a=b; sid; ;="}}, ""},
		{"cookie:sid", http.Header{"Cookie": {"sidx=1; xsid=2"}}, ""},
		{"cookie:sid", http.Header{"Cookie": {"a=b, sid=abc"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"a=b,c=d,sid=abc"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"sid=abc,d"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {`sid="abc, d"`}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"a=b,c; sid=abc"}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {`sid=abc a="`}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"$Version=1\tsid=\tabc"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {`a="b sid=abc"`}}, broken},
		{"cookie:sid", http.Header{"Cookie": {`sid="abc`}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"s%69d=abc"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"sid=a; s%69d=abc"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"sid sid=abc"}}, broken},
		{"cookie:user_sid", http.Header{"Cookie": {"user[sid=abc"}}, broken},
		{"cookie:user_sid", http.Header{"Cookie": {"user[sid]=abc; user=x"}}, ""},
		{"cookie:sid", http.Header{"Cookie": {"a=b;,sid=abc"}}, broken},
		{"cookie:sid", http.Header{"Cookie": {"a%=b; sid=abc; c%20d=e"}}, "abc"},
		{"cookie:sid", http.Header{"Cookie": {"\tsid = abc ;a= b "}}, "abc"},
		{"cookie:sid", nil, ""},
	} {
		if got := valueOf(t, tt.part, &Request{Header: tt.header}); got != tt.want {
			t.Errorf("%s of %q is %q, want %q", tt.part, tt.header, got, tt.want)
		}
	}
}

// A header's aliases are all that CGI makes the same variable of, and not itself.
func TestHeaderAliases(t *testing.T) {
	variable := strings.NewReplacer("-", "_")
	for name, want := range map[string]int{"Tenant": 0, "X-Plan": 1, "X-Api-Key": 3, "X_tenant-Id": 3, "A-B-C-D-E-F": 31} {
		aliases := map[string]bool{}
		for _, alias := range headerAliases(name) {
			aliases[alias] = true
			if alias == name || alias != http.CanonicalHeaderKey(alias) ||
				!strings.EqualFold(variable.Replace(alias), variable.Replace(name)) {
				t.Errorf("%s has the alias %s", name, alias)
			}
		}
		if len(aliases) != want {
			t.Errorf("%s has %d aliases, want %d: %v", name, len(aliases), want, aliases)
		}
	}
}

func TestPlainParts(t *testing.T) {
	r := &Request{Method: "post", Host: "API.Example.com.:8443"}
	for part, want := range map[string]string{"host": "api.example.com", "method": "POST", "route": "GET /r", "const:x y": "x y"} {
		if got := valueOf(t, part, r); got != want {
			t.Errorf("%s is %q, want %q", part, got, want)
		}
	}
	if got := valueOf(t, "host", &Request{}); got != "" {
		t.Errorf("no host is %q", got)
	}
	if got := valueOf(t, "method", &Request{}); got != "GET" {
		t.Errorf("no method is %q", got)
	}
	if got := valueOf(t, "method", &Request{Method: "X1"}); got != broken {
		t.Errorf("a method that is made up is %q", got)
	}
}

func TestQuery(t *testing.T) {
	for _, tt := range []struct{ name, query, want string }{
		{"q", "a=b&q=x+z&c", "x z"},
		{"q", "q=%C3%89t%C3%A9", "ete"},
		{"q", "", ""},
		{"q", "q", ""},
		{"q", "q=", ""},
		{"q", "&&=&q=1&", "1"},
		{"q", "q=1#", broken},
		{"q", "q=1&q=1", "1"},
		{"q", "q=1&q=2", broken},
		{"q", "q=1&Q=2", broken},
		{"q", "Q=1", "1"},
		{"q", "q=1&%71=2", broken},
		{"q", "q[]=1", broken},
		{"q", "q[x]=1", broken},
		{"q[x]", "q[x]=1", "1"},
		{"q", "q=%zz", broken},
		{"q", "q=100%", broken},
		{"q", "q=1&r=100%", "1"},
		{"q", "q=%ff", broken},
		{"q", "q=1&q%ff=2", broken},
		{"q", "q=a%00b", broken},
		{"q", "q=1;q=2", broken},
		{"q", "r=1;q=2", "2"},
		{"q", "q=2&r=1;s", "2"},
		{"q", "+q=1", broken},
		{"q", "q+=1", broken},
		{"q", "q%0a=1", broken},
		{"q", "%0aq=1", broken},
		{"q", "%ef%bb%bfq=1", broken},
		{"q", "%c2%a0q[]=1", broken},
		{"q", "q%00x=1", broken},
		{"a.b", "a_b=1", broken},
		{"a_b", "a.b=1&a_b=2", broken},
	} {
		if got := valueOf(t, "query:"+tt.name, &Request{RawQuery: tt.query}); got != tt.want {
			t.Errorf("%s of %q is %q, want %q", tt.name, tt.query, got, tt.want)
		}
	}
}

func TestBody(t *testing.T) {
	const form, js = "application/x-www-form-urlencoded", "application/json"
	for _, tt := range []struct{ kind, body, want string }{
		{js, `{"username":"alice"}`, "alice"},
		{js + "; charset=UTF-8", ` { "a":{"user":"x"}, "username" : "alice", "b":[1,{"username":2}] } `, "alice"},
		{"application/vnd.api+json", `{"username":"alice"}`, "alice"},
		{js, "\uFEFF" + `{"username":"alice"}`, "alice"},
		{js, `{"user\u006eame":"\u0061lice"}`, "alice"},
		{js, `{"username":" ALICE\t"}`, "alice"},
		{js, `{"username":"ＡＬiｃｅ"}`, "alice"},
		{js, `{"username":"Àlice"}`, "alice"},
		{js, `{"username":"A\u0300lice"}`, "alice"},
		{js, `{"username":"Кирилл"}`, "кирилл"},
		{js, `{"username":"a b"}`, "a b"},
		{js, `{"Username":"alice"}`, "alice"},
		{js, `{"uſername":"alice"}`, broken},
		{js, `{"username":123456789012345}`, "123456789012345"},
		{js, `{"username":1234567890123456}`, broken},
		{js, `{"username":-7}`, "-7"},
		{js, `{"username":true}`, "true"},
		{js, `{"username":"\u6797\ud83d\ude00"}`, "林"},
		{js, `{"username":"ali\u200bce"}`, "alice"},

		{js, `{}`, ""},
		{js, `{"user":"alice"}`, ""},
		{js, `{"username":null}`, ""},
		{js, `{"username":""}`, ""},
		{js, `{"username":"  "}`, ""},

		{js, `{"username":12.0}`, broken},
		{js, `{"username":1e1}`, broken},
		{js, `{"username":-0}`, broken},
		{js, `{"username":["alice"]}`, broken},
		{js, `{"username":{"$ne":""}}`, broken},
		{js, `{"username":"alice","username":"bob"}`, broken},
		{js, `{"username":"alice","USERNAME":"bob"}`, broken},
		{js, `{"username":"alice","uſername":"bob"}`, broken},
		{js, `{"username":null,"username":"bob"}`, "bob"},
		{js, `{"username":"alice","user\ud800name":"bob"}`, broken},
		{js, "{\"username\":\"\xff\"}", broken},
		{js, "{\"username\":\"\xfe\"}", broken},
		{js, `{"username":"\ud800"}`, broken},
		{js, `{"username":"\ufffd"}`, broken},
		{js, `{"username":"alice\u0000"}`, broken},
		{js, `{"username":"\ud83d\ude00"}`, broken},
		{js, `{"username":"ali\u00adce"}`, broken},
		{js, `{"username":"alice"} {}`, broken},
		{js, `{"username":"alice"}x`, broken},
		{js, `{"username":"alice"`, broken},
		{js, `{"username":"alice",}`, broken},
		{js, `{username:"alice"}`, broken},
		{js, `["username","alice"]`, broken},
		{js, `/* */{"username":"alice"}`, broken},
		{js, `username=alice`, broken},
		{js + "; charset=utf-16", `{"username":"alice"}`, broken},
		{js, strings.Repeat(`{"username":`, 5000) + "1" + strings.Repeat("}", 5000), broken},
		{js, `{"username":"alice","x":"` + strings.Repeat("x", maxBody) + `"}`, broken},

		// Many servers read JSON whatever it is called.
		{"", `{"username":"alice"}`, "alice"},
		{"text/plain", `{"username":"alice"}`, "alice"},
		{form, `{"username":"alice"}`, "alice"},
		{form, `{"username":"alice","x":"&username=bob&"}`, broken},
		{"", `username=alice`, "alice"},
		{"text/plain", `username=alice`, "alice"},
		{"multipart/form-data; boundary=x", "--x\r\n", broken},
		{"nonsense;;=", `{"username":"alice"}`, broken},

		{form, `username=Alice+&password=x`, "alice"},
		{form + "; charset=utf-8", `username=%61lice`, "alice"},
		{form + "; charset=ibm037", `username=alice`, broken},
		{form, `username=alice;x&password=x`, broken},
		{form, `password=a;b&username=alice`, "alice"},
		{form, `username=alice&username=bob`, broken},
		{form, `username=alice&Username=bob`, broken},
		{form, `username[]=alice`, broken},
		{form, "\nusername=alice", broken},
		{form, "\uFEFFusername=alice", broken},
		{js, `{"username ":"alice"}`, broken},
		{form, `username=%ff`, broken},
		{form, `{"username":"bob"&username=alice`, broken},
		{form, `user=alice`, ""},
		{form, `{username=alice`, broken},
		{"", "", ""},
	} {
		r := &Request{Header: http.Header{}, Body: body(tt.body)}
		if tt.kind != "" {
			r.Header.Set("Content-Type", tt.kind)
		}
		if got := valueOf(t, "body:username", r); got != tt.want {
			t.Errorf("%s %.80q is %q, want %q", tt.kind, tt.body, got, tt.want)
		}
	}
}

// What frameworks make of names that are not quite the one that is asked for. Whatever one of
// them takes for it must not be a way past.
const formType, jsonType = "application/x-www-form-urlencoded", "application/json"

// Servers stop at about as many fields, and maxPairs is the most with those that are empty.
const maxMembers, maxPairs = 1000, 4000

func TestFieldNamesThatFrameworksFold(t *testing.T) {
	for _, name := range []string{
		"[username]", "username]", "username[]", "username[0]", "username[x]", "username[", "[username", "model.username", "model[username]",
		"session[username]", "a.b.username", "!username", "_username", "__username", "user.name", "user name", "user[name", "user_name", "user-name",
		"user\tname", "username\x00x", "username\x00", " username", "username ", "\uFEFFusername", "username.", ".username", "username.x", "userName.",
		"%75sername", "%u0075sername", "?username", "$username", "u\u200Bsername", "USERNAME[]",
	} {
		escaped := url.QueryEscape(name)
		if strings.HasPrefix(name, "%") {
			escaped = name
		}
		for _, rest := range []string{"", "&username=decoy"} {
			r := &Request{Header: http.Header{"Content-Type": {formType}}, Body: body(escaped + "=alice" + rest)}
			if got := valueOf(t, "body:username", r); got != broken && !(name == "%75sername" && rest == "" && got == "alice") {
				t.Errorf("%q and %q is %q", escaped, rest, got)
			}
		}
	}
	for _, name := range []string{
		"user", "name", "username2", "xusername", "usernames", "username_confirmation", "confirm_username", "username-2", "new username",
		"сusername", "users.name", "names[user]",
	} {
		r := &Request{Header: http.Header{"Content-Type": {formType}}, Body: body(url.QueryEscape(name) + "=bob&username=alice")}
		if got := valueOf(t, "body:username", r); got != "alice" {
			t.Errorf("beside %q the name is %q", name, got)
		}
	}
	for _, tt := range []struct{ part, body, want string }{
		{"body:session[username]", "session%5Busername%5D=alice", "alice"},
		{"body:session[username]", "session.username=alice", broken},
		{"body:user[email]", "user%5Bemail%5D=alice", "alice"},
		{"body:user_name", "username=alice", broken},
		{"body:_id", "id=1", broken},
		{"body:größe", "gr%C3%B6%C3%9Fe=1", "1"},
	} {
		r := &Request{Header: http.Header{"Content-Type": {formType}}, Body: body(tt.body)}
		if got := valueOf(t, tt.part, r); got != tt.want {
			t.Errorf("%s of %s is %q, want %q", tt.part, tt.body, got, tt.want)
		}
	}
}

// The members of an object in an object have the names that forms have for them.
func TestNestedMembers(t *testing.T) {
	for _, tt := range []struct{ part, body, want string }{
		{"body:user[email]", `{"user":{"email":"alice"}}`, "alice"},
		{"body:user[email]", `{"us\u0065r":{"\u0065mail":"alice"},"email":""}`, "alice"},
		{"body:user[email]", `{"user":{"email":"alice","email":"bob"}}`, broken},
		{"body:user[email]", `{"user":{"email":"alice"},"user[email]":"bob"}`, broken},
		{"body:user[email]", `{"user":{"name":"alice"}}`, ""},
		{"body:email", `{"user":{"email":"alice"}}`, broken},
		{"body:email", `{"user":{"x":{"email":"alice"}}}`, ""},
		{"body:email", `{"email":"alice","user":{"email":"bob"}}`, broken},
		{"body:email", `{"email":"alice","user":{"email":"alice"}}`, "alice"},
		{"body:email", `{"user":{"email":"alice"},"other":{"a":1},"email":"alice"}`, "alice"},
	} {
		if got := valueOf(t, tt.part, &Request{Body: body(tt.body)}); got != tt.want {
			t.Errorf("%s of %s is %q, want %q", tt.part, tt.body, got, tt.want)
		}
	}
}

// Bodies that are one thing to one server and another to the next.
func TestBodiesOfTwoMinds(t *testing.T) {
	const js, none = "application/json", ""
	for _, tt := range []struct{ kind, body string }{
		{js, `{"username":"decoy","a":"&username=alice&password=x&b="}`},
		{none, `{"username":"decoy","a":"&username=alice&password=x&b="}`},
		{"application/x-www-form-urlencoded-x", `{"username":"decoy","a":"&username=alice&password=x&b="}`},
		{"application/x-www-form-urlencoded-x", `username=alice`},
		{js, `{"username":"decoy","a":";username=alice;b="}`},
		{js, `{"username":"decoy","a":"&%75sername=alice&b="}`},
		{js, `{"username":"decoy","session":{"username":"alice"}}`},
		{js, `{"session":{"username":"alice"}}`},
		{formType, `{"username":"alice","a":NaN}`},
		{formType, `{'username':'alice'}`},
		{formType, `{"username":"alice"} // x`},
		{formType, `// x` + "\n" + `{"username":"alice"}`},
		{formType, ` ["username"]`},
		{formType, `[{"username":"alice"}]`},
		{formType, "username: alice"},
		{formType, `<login username="alice"/>`},
		{formType, "{\x00\"\x00u\x00"},
		{formType, "_charset_=utf-7&username=alice"},
		{formType, `username=alice&password=p"q{}`},
		{formType, `/*&username=alice&*/{"username":"bob"}`},
		{formType, "//&username=alice&\n" + `{"username":"bob"}`},
		{formType, "#&username=alice&\nusername: bob"},
		{formType, "\x00" + `{"username":"alice","a":"&username=alice&"}`},
		{formType, "\x00{\x00\"\x00u&username=alice&\x00}"},
		{"", "\u00a0" + `{"username":"alice","a":"&username=alice&"}`},
		{formType, `<!--&username=alice&--><login username="bob"/>`},
		{js + ";" + strings.Repeat("a=b;", 100), `{"username":"alice"}`},
		{formType, "username=%61lice%2561"},
		{formType, "username=%2561lice"},
		{formType, "username=%u0061lice"},
		{formType, "username=%61lice%"},
		{formType, strings.Repeat("a=b&", maxMembers) + "username=alice"},
		{formType, strings.Repeat("&", maxPairs) + "username=alice"},
		{"application/xml", `<login username="alice"/>`},
		{"application/octet-stream", `username=alice`},
		{"application/json, text/plain", `{"username":"alice"}`},
		{"multipart/form-data; boundary=x", `{"username":"alice"}`},
		{formType + "; boundary=x", `username=alice`},
	} {
		r := &Request{Header: http.Header{}, Body: body(tt.body)}
		if tt.kind != "" {
			r.Header.Set("Content-Type", tt.kind)
		}
		if got := valueOf(t, "body:username", r); got != broken {
			t.Errorf("%s %.80q is %q", tt.kind, tt.body, got)
		}
	}
	// What people do send.
	for _, tt := range []struct{ kind, body string }{
		{js, `{"username":"alice","password":"a=b&c","note":"R&D; 50% off [now]","tags":["a","b"],"address":{"street":"x"}}`},
		{js, `{"username":"alice","password":"{\"a\":1}"}`},
		{formType, "username=alice&password=p%26%3D%25+%22&remember=on"},
		{formType, "csrf_token=x%3D%3D&user[profile][city]=x&username=alice"},
		{formType, `username=alice&password=p"q[x]:y z`},
		{formType, "username=alice\r\n"},
		{js, `{"username":"alice","billing":{"username":"alice"}}`},
		{formType, "username=alice&username="},
	} {
		r := &Request{Header: http.Header{"Content-Type": {tt.kind}}, Body: body(tt.body)}
		if got := valueOf(t, "body:username", r); got != "alice" {
			t.Errorf("%s %.80q is %q", tt.kind, tt.body, got)
		}
	}
}

func TestMultipart(t *testing.T) {
	const field = "Content-Disposition: form-data; name=\"username\"\r\n\r\nalice\r\n"
	const other = "Content-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n"
	const file = "Content-Disposition: form-data; name=\"f\"; filename=\"x.png\"\r\nContent-Type: image/png\r\n\r\n\xff\xd8\r\n\x00\r\n"
	const plain = "multipart/form-data; boundary=x"
	for _, tt := range []struct{ kind, body, want string }{
		{plain, "--x\r\n" + field + "--x--\r\n", "alice"},
		{plain, "--x\r\n" + field + "--x--", "alice"},
		{plain, "--x\r\n" + other + "--x\r\n" + file + "--x\r\n" + field + "--x--\r\n", "alice"},
		{"Multipart/Form-Data;boundary=x", "--x\r\n" + field + "--x--\r\n", "alice"},
		{"multipart/form-data; boundary=----WebKitFormBoundaryA0", "------WebKitFormBoundaryA0\r\n" + field + "------WebKitFormBoundaryA0--\r\n", "alice"},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"username\"\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\nalice\r\n--x--\r\n", "alice"},
		{plain, "--x\r\n" + other + "--x--\r\n", ""},
		{plain, "--x--\r\n", ""},
		{plain, "--x\r\n" + strings.Replace(file, "\xff", "\xff&\xfe=%%&&user\xff=", 1) + "--x\r\n" + field + "--x--\r\n", "alice"},

		{plain, "--x\r\n" + field + "--x\r\n" + strings.Replace(other, "\r\nb", "\r\n&username=bob&", 1) + "--x--\r\n", broken},
		{plain, "--x\r\n" + field + "--x\r\n" + strings.Replace(other, "\r\nb", "\r\n&user\xffname=bob&", 1) + "--x--\r\n", broken},

		{plain, "--x\r\n" + field + "--x\r\n" + strings.Replace(field, "alice", "bob", 1) + "--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"username\"\r\nContent-Type: text/plain; charset=utf-7\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"username\"; filename=\"x\"\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=username\r\n\r\nalice\r\n--x--\r\n", "alice"},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"username\"\r\nContent-Length: 5\r\n\r\nalice\r\n--x--\r\n", "alice"},
		{plain, "--x\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=username\r\n\r\nalice\r\n--x--\r\n", "alice"},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"username\"\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: binary\r\n\r\nalice\r\n--x--\r\n", "alice"},
		{plain, "--x\r\n" + strings.Replace(file, `"x.png"`, `"x;y.png"; filename*=utf-8''x%3By.png`, 1) + "--x\r\n" + field + "--x--\r\n", "alice"},
		{plain, "--x\r\n" + strings.Replace(file, `"x.png"`, `"x; name=username; y.png"`, 1) + "--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=user name\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=a;name=username\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"username\"\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nX-Other: y\r\nContent-Disposition: form-data; name=\"username\"\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"a\"; name=\"username\"\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"a\"; name*=utf-8''username\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"user%6eame\"\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"a\\\"; name=\"username\"\r\n\r\nalice\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=\"username\"\r\n\r\nYWxpY2U=\r\n--x--\r\n", broken},
		{plain, "--x\r\nContent-Disposition: form-data; name=\"username\"\r\nContent-Transfer-Encoding: base64\r\n\r\nYWxpY2U=\r\n--x--\r\n", broken},
		{plain, "preamble\r\n--x\r\n" + field + "--x--\r\n", broken},
		{plain, "--x\r\n" + field + "--x--\r\nepilogue", broken},
		{plain, "--x\r\n" + field, broken},
		{plain, "--x\n" + strings.ReplaceAll(field, "\r\n", "\n") + "--x--\n", broken},
		{plain, "--x \r\n" + field + "--x--\r\n", broken},
		{plain, "--x\r\n" + strings.Replace(other, "\r\nb", "\r\nb\n--x\n"+field, 1) + "--x--\r\n", broken},
		{plain, "--x\r\n" + field + "--xy\r\n" + other + "--x--\r\n", broken},
		{plain, "", ""},
		{plain, "username=alice", broken},
		{"multipart/form-data", "--x\r\n" + field + "--x--\r\n", broken},
		{`multipart/form-data; boundary="x"`, "--x\r\n" + field + "--x--\r\n", "alice"},
		{`multipart/form-data; boundary="x`, "--x\r\n" + field + "--x--\r\n", broken},
		{`multipart/form-data; boundary="x y"`, "--x y\r\n" + field + "--x y--\r\n", broken},
		{"multipart/form-data; boundary=x; boundary=y", "--x\r\n" + field + "--x--\r\n", broken},
		{"multipart/form-data; charset=utf-7; boundary=x", "--x\r\n" + field + "--x--\r\n", broken},
		{"multipart/mixed; boundary=x", "--x\r\n" + field + "--x--\r\n", broken},
		{"multipart/form-data; boundary=x y", "--x y\r\n" + field + "--x y--\r\n", broken},
	} {
		r := &Request{Header: http.Header{"Content-Type": {tt.kind}}, Body: body(tt.body)}
		if got := valueOf(t, "body:username", r); got != tt.want {
			t.Errorf("%s %.120q is %q, want %q", tt.kind, tt.body, got, tt.want)
		}
	}
}

// What the standard library writes is read.
func TestMultipartWriter(t *testing.T) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, err := range []error{w.WriteField("password", "x\r\n--y"), w.WriteField("username", "Alice"), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &Request{Header: http.Header{"Content-Type": {w.FormDataContentType()}}, Body: body(b.String())}
	if got := valueOf(t, "body:username", r); got != "alice" {
		t.Errorf("got %q", got)
	}
}

func TestBodyBesideOtherThings(t *testing.T) {
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for name, tt := range map[string]struct {
		r    Request
		want string
	}{
		"no body":                         {Request{}, ""},
		"no body, but a query":            {Request{RawQuery: "username=Alice"}, "alice"},
		"an empty body":                   {Request{RawQuery: "username=Alice", Body: body("")}, "alice"},
		"form and query":                  {Request{Header: form, RawQuery: "username=bob", Body: body("username=alice")}, broken},
		"form, the same query":            {Request{Header: form, RawQuery: "username=alice", Body: body("username=alice")}, "alice"},
		"query beside the form":           {Request{Header: form, RawQuery: "username=alice", Body: body("password=x")}, "alice"},
		"JSON and query":                  {Request{RawQuery: "username=bob", Body: body(`{"username":"alice"}`)}, broken},
		"JSON and a query beside it":      {Request{RawQuery: "page=2", Body: body(`{"username":"alice"}`)}, "alice"},
		"JSON, and the name in the query": {Request{RawQuery: "username=alice", Body: body(`{"x":1}`)}, "alice"},
		"a number as text in the query":   {Request{RawQuery: "username=12.0", Body: body(`{"username":12.0}`)}, broken},
		"compressed":                      {Request{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: body(`{"username":"alice"}`)}, broken},
		"not compressed":                  {Request{Header: http.Header{"Content-Encoding": {"identity"}}, Body: body(`{"username":"alice"}`)}, "alice"},
		"too many fields":                 {Request{Body: body(`{` + strings.Repeat(`"":1,`, maxMembers) + `"username":"alice"}`)}, broken},
		"many fields":                     {Request{Body: body(`{` + strings.Repeat(`"":1,`, maxMembers-1) + `"username":"alice"}`)}, "alice"},
		"compressed twice":                {Request{Header: http.Header{"Content-Encoding": {"", "gzip"}}, Body: body(`{"username":"alice"}`)}, broken},
		"two types":                       {Request{Header: http.Header{"Content-Type": {"text/plain", form["Content-Type"][0]}}, Body: body(`username=alice`)}, broken},
	} {
		if got := valueOf(t, "body:username", &tt.r); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestBodyIsReadOnce(t *testing.T) {
	n := 0
	r := &Request{Body: func(int64) ([]byte, error) { n++; return []byte(`{"a":"1","b":"2"}`), nil }}
	var x extractor
	x.reset(r, prefix64)
	for _, s := range []string{"body:a", "body:b", "body:c", "body:a"} {
		p, _ := parsePart(s)
		if v, _ := p.value(&x); v != map[string]string{"body:a": "1", "body:b": "2"}[s] {
			t.Errorf("%s is %q", s, v)
		}
	}
	x.reset(&Request{}, prefix64)
	if v, ok := (&part{kind: bodyPart, name: "a"}).value(&x); ok {
		t.Errorf("the next request has %q of the last one", v)
	}
	if n != 1 {
		t.Errorf("the body was read %d times", n)
	}
}

func TestJWT(t *testing.T) {
	token := func(payload string) string {
		return "eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	for _, tt := range []struct{ claim, auth, want string }{
		{"sub", "Bearer " + token(`{"sub":"Alice"}`), "Alice"},
		{"sub", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJBbGljZSJ9.", "Alice"},
		{"sub", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMiJ9Cg==.c2ln", "12"},
		{"n", "Bearer " + token(`{"n":1.5}`), "1.5"},
		{"b", "Bearer " + token(`{"b":false}`), "false"},
		{"https://example.com/plan", "Bearer " + token(`{"https://example.com/plan":"pro"}`), "pro"},
		{"a.b", "Bearer " + token(`{"a":{"b":1}}`), ""},
		{"sub", "Bearer " + token(`{}`), ""},
		{"sub", "Basic " + token(`{"sub":"Alice"}`), ""},
		{"sub", "", ""},
		{"sub", "Bearer " + token(`{"sub":["Alice"]}`), broken},
		{"sub", "Bearer " + token(`{"sub":"a","sub":"b"}`), broken},
		{"sub", "Bearer " + token(`["sub"]`), broken},
		{"sub", "Bearer " + token(`{"sub":"a"}x`), broken},
		{"sub", "Bearer opaque", broken},
		{"sub", "Bearer a.!.c", broken},
		{"sub", "Bearer " + token(`{"sub":"Alice"}`) + ".x.y", broken},
		{"sub", "Bearer " + token(`{"sub":"\ud800"}`), broken},
		{"sub", "Bearer " + token(`{"sub":"`+strings.Repeat("x", maxBody)+`"}`), broken},
	} {
		r := &Request{Header: http.Header{}}
		if tt.auth != "" {
			r.Header.Set("Authorization", tt.auth)
		}
		if got := valueOf(t, "jwt:"+tt.claim, r); got != tt.want {
			t.Errorf("%s of %.80q is %q, want %q", tt.claim, tt.auth, got, tt.want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ part, in, want string }{
		{"header:X", " aB\t", "aB"},
		{"api_key", "aB", "aB"},
		{"jwt:sub", "aB", "aB"},
		{"host", "Example.com:80", "example.com"},
		{"method", "post", "POST"},
		{"body:u", " Álice", "alice"},
		{"query:u", " Álice", "alice"},
		{"body:u", "a\x00", "a\x00"},
	} {
		p, err := parsePart(tt.part)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.canonical(tt.in); got != tt.want {
			t.Errorf("%s: %q is %q, want %q", tt.part, tt.in, got, tt.want)
		}
	}
}

func TestHotPartsDoNotAllocate(t *testing.T) {
	var parts []part
	for _, s := range []string{"client_ip", "header:X-API-Key", "api_key", "cookie:sid", "query:q", "host", "method", "route", "const:x"} {
		p, err := parsePart(s)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	r := &Request{
		Host: "example.com:80", Peer: netip.MustParseAddr("2001:db8::1"), RawQuery: "a=b&q=1",
		Header: http.Header{"X-Api-Key": {"abc"}, "Cookie": {"a=b; sid=1"}},
	}
	var x extractor
	n := testing.AllocsPerRun(100, func() {
		x.reset(r, prefix64)
		x.route = "/"
		for i := range parts {
			if v, ok := parts[i].value(&x); !ok && parts[i].kind != queryPart {
				t.Errorf("%s is missing: %q", parts[i].text, v)
			}
		}
	})
	if n > 1 { // the value of the query
		t.Errorf("%v allocations", n)
	}
}

func FuzzParts(f *testing.F) {
	f.Add("application/json", `{"username":"alice","b":[1]}`, "username=x;y&q[]=%zz", "sid=a; sid=%62")
	f.Add("application/x-www-form-urlencoded", `username=%ff&username=b`, "a=b", `sid="x"`)
	f.Add("text/plain; charset=utf-16", "\xff\xfe{\x00", "+username%00=1", "=;=")
	f.Add("", `{"":{}}x`, "", "")
	var parts []part
	for _, s := range []string{"body:username", "query:q", "cookie:sid", "jwt:sub", "api_key", "client_ip", "header:X", "host", "method", "route", "const:c"} {
		p, err := parsePart(s)
		if err != nil {
			f.Fatal(err)
		}
		parts = append(parts, p)
	}
	used := new(extractor)
	f.Fuzz(func(t *testing.T, kind, data, query, header string) {
		r := &Request{
			Method: kind, Host: header, RawQuery: query, Body: body(data), Peer: netip.AddrFrom4([4]byte{1, 2, 3, 4}),
			Header: http.Header{"Content-Type": {kind}, "Cookie": {header, query}, "X": {data}, "Authorization": {"Bearer " + header + "." + base64.RawURLEncoding.EncodeToString([]byte(data)) + "."}},
		}
		var fresh extractor
		fresh.reset(r, prefix64)
		used.reset(r, prefix64)
		for i := range parts {
			p := &parts[i]
			v, ok := p.value(used)
			garbled := used.garbled
			w, okToo := p.value(&fresh)
			if v != w || ok != okToo || garbled != fresh.garbled {
				t.Fatalf("%s is %q, %v, then %q, %v", p, v, ok, w, okToo)
			}
			if ok == (v == "") || ok && garbled {
				t.Fatalf("%s is %q, %v, garbled %v", p, v, ok, garbled)
			}
			if (p.kind == bodyPart || p.kind == queryPart) && !utf8.ValidString(v) {
				t.Fatalf("%s is %q", p, v)
			}
		}
	})
}
