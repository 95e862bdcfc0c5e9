package policy

import (
	"fmt"
	"net/http"
	"testing"
)

func TestAim(t *testing.T) {
	for _, c := range []struct {
		r                  Request
		target             string
		path, query, fault string
	}{
		{target: "/a/b?c=d", path: "/a/b", query: "c=d"},
		{target: "/a%2fb?", path: "/a%2fb"},
		{target: "*", r: Request{Method: "OPTIONS"}, path: "*"},
		{target: "*", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "/a#b", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "/%zz", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "/", r: Request{Method: "CONNECT"}, fault: "The method is none that a request can have."},
		{target: "/", r: Request{Method: "G T"}, fault: "The method is none that a request can have."},
		{target: "/", r: Request{Host: "a,b"}, fault: "The Host must be a name or an address, and perhaps a port."},
		{target: "/", r: Request{Header: http.Header{"A B": {"c"}}}, fault: "The head has a field that none can have."},
		{target: "/", r: Request{Header: http.Header{"A": {"b\x01"}}}, fault: "The head has a field that none can have."},
		{target: "/", r: Request{Host: "a", Header: http.Header{"Host": {"b"}}}, fault: "The request has two hosts."},
		{target: "/", r: Request{Header: http.Header{"Host": {"a", "a"}}}, fault: "The request has two hosts."},
	} {
		fault := c.r.Aim(c.target)
		if fault != c.fault || fault == "" && (c.r.Path != c.path || c.r.RawQuery != c.query) {
			t.Errorf("%q, %+v: %q", c.target, c.r, fault)
		}
	}
	r := Request{Header: http.Header{"Host": {"a"}}}
	if fault := r.Aim("/"); fault != "" || r.Host != "a" || len(r.Header) != 0 {
		t.Errorf("%+v: %q", r, fault)
	}
}

func TestPlainHost(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "hosts") {
		if got := PlainHost(row.In); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: %v", row.In, got)
		}
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	const rules = "\nrules: [{name: a, limit: 1/second}]"
	p := parse(t, `cors: {origins: [https://app.example.com, "https://*.shop.test:8443", "http://[::1]:3000"]}`+rules)
	for _, row := range names(t, "origins") {
		if got := p.CORS().Allows(row.In); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: allowed %v", row.In, got)
		}
	}
	every := parse(t, "cors: {origins: '*'}"+rules).CORS()
	if !every.Any() || !every.Allows("https://x.test") || every.Allows("") {
		t.Error("with a star, some origin is not allowed, or none is")
	}
	if none := parse(t, rules).CORS(); none.Allows("https://x.test") || none.Any() || none.Credentials() {
		t.Error("without cors, something is allowed")
	}
}
