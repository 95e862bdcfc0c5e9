package policy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

func TestOrigins(t *testing.T) {
	p := parse(t, `
cors: {origins: [https://app.example.com, "https://*.shop.test:8443", "http://[::1]:3000"]}
rules: [{name: a, limit: 1/second}]
`)
	for origin, want := range map[string]bool{
		"https://app.example.com": true, "http://[::1]:3000": true,
		"https://a.shop.test:8443": true, "https://a.b-c.shop.test:8443": true,
		"": false, "null": false, "*": false, "http://app.example.com": false, "https://app.example.com:444": false,
		"https://app.example.com.evil.test": false, "https://evil.test/https://app.example.com": false, "https://APP.example.com": false,
		"https://shop.test:8443": false, "https://.shop.test:8443": false, "https://a.shop.test": false, "https://evilshop.test:8443": false,
		"https://evil.test/.shop.test:8443": false, "https://evil.test#.shop.test:8443": false, "https://evil.test:1.shop.test:8443": false,
	} {
		if got := p.CORS().Allows(origin); got != want {
			t.Errorf("%q: allowed %v", origin, got)
		}
	}
	every := parse(t, "cors: {origins: '*'}\nrules: [{name: a, limit: 1/second}]\n")
	if !every.CORS().Any() || !every.CORS().Allows("https://x.test") || every.CORS().Allows("") {
		t.Error("with a star, some origin is not allowed, or none is")
	}
	if none := parse(t, "rules: [{name: a, limit: 1/second}]\n").CORS(); none.Allows("https://x.test") || none.Any() || none.Credentials() {
		t.Error("without cors, something is allowed")
	}
}

// A preflight is what a browser sends by itself, and nothing else is exempt with it.
func TestPreflights(t *testing.T) {
	const document = `
cors: {origins: [https://app.example.com], preflights: exempt}
rules: [{name: a, limit: 1000/second}]
`
	const byPath = `
cors: {origins: [https://app.example.com], preflights: exempt}
rules:
  - {name: all, limit: 1000/second}
  - {name: login, match: POST /login.php, key: ["body:username"], limit: 1000/second}
  - {name: find, match: "GET /find", key: ["query:user"], limit: 1000/second}
  - {name: id, hosts: [id.example.com], key: ["body:username"], limit: 1000/second}
  - {name: key, match: /key, key: ["header:X-Plan"], limit: 1000/second}
`
	body := func(s string) func(int64) ([]byte, error) {
		return func(limit int64) ([]byte, error) {
			if int64(len(s)) > limit {
				return nil, nil
			}
			return []byte(s), nil
		}
	}
	preflight := http.Header{"Origin": {"https://app.example.com"}, "Access-Control-Request-Method": {"POST"}}
	with := func(name string, values ...string) http.Header {
		h := preflight.Clone()
		h[name] = values
		return h
	}
	for name, test := range map[string]struct {
		document string
		request  Request
		exempt   bool
	}{
		"preflight":        {document, Request{Method: "OPTIONS", Path: "/x", Header: preflight}, true},
		"other method":     {document, Request{Method: "POST", Path: "/x", Header: preflight}, false},
		"other case":       {document, Request{Method: "options", Path: "/x", Header: preflight}, false},
		"other origin":     {document, Request{Method: "OPTIONS", Path: "/x", Header: with("Origin", "https://evil.test")}, false},
		"two origins":      {document, Request{Method: "OPTIONS", Path: "/x", Header: with("Origin", "https://app.example.com", "https://app.example.com")}, false},
		"no origin":        {document, Request{Method: "OPTIONS", Path: "/x", Header: with("Origin")}, false},
		"no method asked":  {document, Request{Method: "OPTIONS", Path: "/x", Header: http.Header{"Origin": {"https://app.example.com"}}}, false},
		"with a password":  {document, Request{Method: "OPTIONS", Path: "/x", Header: with("Authorization", "Basic YTpi")}, false},
		"with a cookie":    {document, Request{Method: "OPTIONS", Path: "/x", Header: with("Cookie", "a=b")}, false},
		"with an API key":  {document, Request{Method: "OPTIONS", Path: "/x", Header: with("X-Api-Key", "k")}, false},
		"empty body":       {document, Request{Method: "OPTIONS", Path: "/x", Header: preflight, Body: body("")}, true},
		"body":             {document, Request{Method: "OPTIONS", Path: "/x", Header: preflight, Body: body("username=alice&password=p")}, false},
		"body that breaks": {document, Request{Method: "OPTIONS", Path: "/x", Header: preflight, Body: func(int64) ([]byte, error) { return nil, io.ErrUnexpectedEOF }}, false},
		"other path":       {byPath, Request{Method: "OPTIONS", Path: "/x", Header: preflight}, true},
		"path of a body":   {byPath, Request{Method: "OPTIONS", Path: "/login.php", Header: preflight}, false},
		"path of a query":  {byPath, Request{Method: "OPTIONS", Path: "/find", RawQuery: "user=alice", Header: preflight}, false},
		"path in disguise": {byPath, Request{Method: "OPTIONS", Path: "/a/..;x/%6cogin.php", Header: preflight}, false},
		"path of a header": {byPath, Request{Method: "OPTIONS", Path: "/key", Header: preflight}, true},
		"host of a body":   {byPath, Request{Method: "OPTIONS", Host: "id.example.com", Path: "/x", Header: preflight}, false},
		"every path":       {strings.Replace(document, "name: a", "name: a, key: [query:user]", 1), Request{Method: "OPTIONS", Path: "/x", Header: preflight}, false},
		"method override":  {document, Request{Method: "OPTIONS", Path: "/x", Header: with("X-Http-Method-Override", "POST")}, false},
		"not asked for":    {"cors: {origins: [https://app.example.com]}\nrules: [{name: a, limit: 1000/second}]\n", Request{Method: "OPTIONS", Path: "/x", Header: preflight}, false},
		"said to be count": {"cors: {origins: [https://app.example.com], preflights: count}\nrules: [{name: a, limit: 1000/second}]\n", Request{Method: "OPTIONS", Path: "/x", Header: preflight}, false},
	} {
		e := NewEngine(memory.New(), parse(t, test.document))
		would, is := e.Explain(t.Context(), &test.request), e.Decide(t.Context(), &test.request)
		if is.Exempt != test.exempt || would.Decision.Exempt != test.exempt || !is.Allowed || (len(is.Results) == 0) != test.exempt {
			t.Errorf("%s: decided %+v, explained %+v", name, is, would)
		}
	}
}
