package parts

import (
	"cmp"
	"encoding/base64"
	"fmt"
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
	for _, row := range rows(t, "parts of keys that are none") {
		if _, err := Parse(row.In); err == nil || !strings.Contains(err.Error(), row.Want) || len(err.Error()) > 300 {
			t.Errorf("%q: %v; want %s", row.In, err, row.Want)
		}
	}
	if _, err := Parse(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 300 {
		t.Errorf("a long text: %.400v", err)
	}
}

// rows returns the rows of a section of the test data.
func rows(t testing.TB, section string) []testkit.Row {
	t.Helper()
	return testkit.SectionOf(t, "testdata/names.txt", section).Rows(t)
}

func partOf(t testing.TB, text string) Part {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

// valueOf returns the value of a part of a request, "-" if it is missing, and "garbled" if servers may read another
// value.
func valueOf(t testing.TB, text string, r *Request) string {
	t.Helper()
	p := partOf(t, text)
	var x Reader
	*x.Reset() = *r
	x.Route = "GET /r"
	v, ok := p.Value(&x)
	switch {
	case x.Garbled() && (ok || v != ""):
		t.Fatalf("%s is %q, and garbled", text, v)
	case x.Garbled():
		return "garbled"
	case ok != (v != ""):
		t.Fatalf("%s is %q, %v", text, v, ok)
	case !ok:
		return "-"
	}
	return v
}

// Servers stop reading at about maxMembers fields. maxPairs is the maximum that includes empty fields.
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
	many, few := strings.Repeat(`"":1,`, 4000), strings.Repeat(`"":1,`, 3999)
	for body, want := range map[string]string{
		"{" + few + `"username":"alice"}`:                                          "alice",
		"{" + many + `"username":"alice"}`:                                         "garbled",
		strings.Repeat(`{"username":`, 5000) + "1" + strings.Repeat("}", 5000):     "garbled",
		`{"username":"alice","x":"` + strings.Repeat("x", DefaultBodyLimit) + `"}`: "garbled",
		strings.Repeat("a=b&", maxMembers) + "username=alice":                      "garbled",
		strings.Repeat("&", maxPairs) + "username=alice":                           "garbled",
	} {
		kind := "type=json"
		if body[0] != '{' {
			kind = "type=form"
		}
		checkPart(t, "body:username", []string{kind, "body=" + body}, want)
	}
	checkPart(t, "body:username", []string{"type=application/json;" + strings.Repeat("a=b;", 100), `body={"username":"alice"}`}, "garbled")
	checkPart(t, "jwt:sub", []string{`jwt={"sub":"` + strings.Repeat("x", 64<<10) + `"}`}, "garbled")
}

// requestOf reads a request in the form of scripts/README of package policy.
func requestOf(words []string) *Request {
	r := &Request{Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{}, IPv6Prefix: 64}
	for _, word := range words {
		switch name, value, found := strings.Cut(word, "="); name {
		case "method":
			r.Method = value
		case "host":
			r.Host = value
		case "query":
			r.RawQuery = value
		case "from":
			r.Peer, _ = netip.ParseAddr(value)
		case "jwt":
			r.Header.Set("Authorization", "Bearer "+token(value))
		case "body":
			r.Body = body(value)
		case "type":
			r.Header.Add("Content-Type", cmp.Or(map[string]string{"form": "application/x-www-form-urlencoded", "json": "application/json"}[value], value))
		default:
			if !found || name[0] < 'A' || name[0] > 'Z' {
				panic(fmt.Sprintf("a request has no %q", word))
			}
			r.Header.Add(name, value)
		}
	}
	return r
}

// body returns the Body field of a request, as integrations set it.
func body(s string) func(int64) ([]byte, error) {
	return func(limit int64) ([]byte, error) {
		if int64(len(s)) > limit {
			return nil, nil
		}
		return []byte(s), nil
	}
}

// token returns a token with these claims.
func token(claims string) string {
	return "eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func checkPart(t *testing.T, part string, in []string, want string) {
	t.Helper()
	if got := valueOf(t, part, requestOf(in)); got != want {
		t.Errorf("%s of %.200q is %q, want %q", part, in, got, want)
	}
}

// The aliases of a header are all other headers that have the same variable in CGI.
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
	var parts []Part
	for _, s := range []string{"body:username", "query:q", "cookie:sid", "jwt:sub", "api_key", "client_ip", "header:X", "host", "method", "route", "const:c"} {
		parts = append(parts, partOf(f, s))
	}
	used := new(Reader)
	f.Fuzz(func(t *testing.T, kind, data, query, header string) {
		r := &Request{
			Method: kind, Host: header, RawQuery: query, Body: body(data), Peer: netip.AddrFrom4([4]byte{1, 2, 3, 4}), IPv6Prefix: 64,
			Header: http.Header{"Content-Type": {kind}, "Cookie": {header, query}, "X": {data}, "Authorization": {"Bearer " + header + "." + base64.RawURLEncoding.EncodeToString([]byte(data)) + "."}},
		}
		var fresh Reader
		*fresh.Reset(), *used.Reset() = *r, *r
		for i := range parts {
			p := &parts[i]
			v, ok := p.Value(used)
			garbled := used.Garbled()
			w, okToo := p.Value(&fresh)
			if v != w || ok != okToo || garbled != fresh.Garbled() {
				t.Fatalf("%s is %q, %v, then %q, %v", p, v, ok, w, okToo)
			}
			if ok == (v == "") || ok && garbled {
				t.Fatalf("%s is %q, %v, garbled %v", p, v, ok, garbled)
			}
			if p.Folds() && !utf8.ValidString(v) {
				t.Fatalf("%s is %q", p, v)
			}
		}
	})
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, row := range rows(t, "values of parts") {
		in := testkit.Words(row.In)
		p := partOf(t, in[0])
		if got := p.Canonical(in[1]); got != row.Want {
			t.Errorf("%s is %q, want %q", row.In, got, row.Want)
		}
	}
}

func TestAppendIPv4(t *testing.T) {
	t.Parallel()
	for n := range 256 {
		a := [4]byte{byte(n), byte(255 - n), byte(7 * n), byte(n >> 3)}
		if got, want := string(appendIPv4([]byte("k/"), a)), "k/"+netip.AddrFrom4(a).String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
