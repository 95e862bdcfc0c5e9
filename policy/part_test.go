package policy

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/testkit"
)

func TestParsePart(t *testing.T) {
	t.Parallel()
	if p := partOf(t, "header:x-api-key"); p.name != "X-Api-Key" {
		t.Errorf("the name of the header is %q", p.name)
	}
	for _, row := range names(t, "parts of keys that are none") {
		if _, err := parsePart(row.In); err == nil || !strings.Contains(err.Error(), row.Want) || len(err.Error()) > 300 {
			t.Errorf("%q: %v; want %s", row.In, err, row.Want)
		}
	}
	if _, err := parsePart(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 300 {
		t.Errorf("a long text: %.400v", err)
	}
}

func partOf(t testing.TB, text string) part {
	t.Helper()
	p, err := parsePart(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

var prefix64 = &Policy{ipv6Prefix: 64}

// valueOf returns a part of a request, "-" if it is missing and "garbled" if servers may read another one.
func valueOf(t testing.TB, text string, r *Request) string {
	t.Helper()
	p := partOf(t, text)
	var x extractor
	x.reset(r, prefix64)
	x.route = "GET /r"
	v, ok := p.value(&x)
	switch {
	case x.garbled && (ok || v != ""):
		t.Fatalf("%s is %q, and garbled", text, v)
	case x.garbled:
		return "garbled"
	case ok != (v != ""):
		t.Fatalf("%s is %q, %v", text, v, ok)
	case !ok:
		return "-"
	}
	return v
}

// Servers stop at about as many fields, and maxPairs is the most with those that are empty.
const maxMembers, maxPairs = 1000, 4000

func TestParts(t *testing.T) {
	t.Parallel()
	for _, section := range testkit.Sections(t, "testdata/parts.txt") {
		for _, row := range section.Rows(t) {
			if strings.HasPrefix(section.Name, "names ") {
				for _, rest := range []string{"=alice", "=alice&username=decoy"} {
					checkPart(t, "body:username", []string{"type=form", "body=" + row.In + rest}, row.Want)
				}
				continue
			}
			name, _, _ := strings.Cut(section.Name, ", ")
			in := testkit.Words(row.In)
			if row.Block != nil {
				in = append(in, "body="+strings.Join(row.Block, "\r\n")+"\r\n")
			}
			checkPart(t, name, in, row.Want)
		}
	}
	many, few := strings.Repeat(`"":1,`, maxMembers), strings.Repeat(`"":1,`, maxMembers-1)
	for body, want := range map[string]string{
		"{" + few + `"username":"alice"}`:                                      "alice",
		"{" + many + `"username":"alice"}`:                                     "garbled",
		strings.Repeat(`{"username":`, 5000) + "1" + strings.Repeat("}", 5000): "garbled",
		`{"username":"alice","x":"` + strings.Repeat("x", maxBody) + `"}`:      "garbled",
		strings.Repeat("a=b&", maxMembers) + "username=alice":                  "garbled",
		strings.Repeat("&", maxPairs) + "username=alice":                       "garbled",
	} {
		kind := "type=json"
		if body[0] != '{' {
			kind = "type=form"
		}
		checkPart(t, "body:username", []string{kind, "body=" + body}, want)
	}
	checkPart(t, "body:username", []string{"type=" + jsonType + ";" + strings.Repeat("a=b;", 100), `body={"username":"alice"}`}, "garbled")
	checkPart(t, "jwt:sub", []string{`jwt={"sub":"` + strings.Repeat("x", maxBody) + `"}`}, "garbled")
}

func checkPart(t *testing.T, part string, in []string, want string) {
	t.Helper()
	r := requestOf(in)
	if got := valueOf(t, part, &r.Request); got != want {
		t.Errorf("%s of %.200q is %q, want %q", part, in, got, want)
	}
}

// body gives a request a body as listeners do.
func body(s string) func(int64) ([]byte, error) {
	return func(limit int64) ([]byte, error) {
		if int64(len(s)) > limit {
			return nil, nil
		}
		return append([]byte{}, s...), nil
	}
}

// A header's aliases are all that CGI makes the same variable of, and not itself.
func TestHeaderAliases(t *testing.T) {
	t.Parallel()
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

func FuzzParts(f *testing.F) {
	f.Add("application/json", `{"username":"alice","b":[1]}`, "username=x;y&q[]=%zz", "sid=a; sid=%62")
	f.Add("application/x-www-form-urlencoded", `username=%ff&username=b`, "a=b", `sid="x"`)
	f.Add("text/plain; charset=utf-16", "\xff\xfe{\x00", "+username%00=1", "=;=")
	f.Add("", `{"":{}}x`, "", "")
	var parts []part
	for _, s := range []string{"body:username", "query:q", "cookie:sid", "jwt:sub", "api_key", "client_ip", "header:X", "host", "method", "route", "const:c"} {
		parts = append(parts, partOf(f, s))
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

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "values of parts") {
		in := testkit.Words(row.In)
		p := partOf(t, in[0])
		if got := p.canonical(in[1]); got != row.Want {
			t.Errorf("%s is %q, want %q", row.In, got, row.Want)
		}
	}
}
