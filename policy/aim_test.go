package policy_test

import (
	"net/http"
	"testing"

	"github.com/sluicehq/sluice/policy"
)

func TestAim(t *testing.T) {
	for _, c := range []struct {
		r                  policy.Request
		target             string
		path, query, fault string
	}{
		{target: "/a/b?c=d", path: "/a/b", query: "c=d"},
		{target: "/a%2fb?", path: "/a%2fb"},
		{target: "*", r: policy.Request{Method: "OPTIONS"}, path: "*"},
		{target: "*", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "/a#b", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "/%zz", fault: `The path must begin with "/" and be escaped as in a request.`},
		{target: "/", r: policy.Request{Method: "CONNECT"}, fault: "The method is none that a request can have."},
		{target: "/", r: policy.Request{Method: "G T"}, fault: "The method is none that a request can have."},
		{target: "/", r: policy.Request{Host: "a,b"}, fault: "The Host must be a name or an address, and perhaps a port."},
		{target: "/", r: policy.Request{Header: http.Header{"A B": {"c"}}}, fault: "The head has a field that none can have."},
		{target: "/", r: policy.Request{Header: http.Header{"A": {"b\x01"}}}, fault: "The head has a field that none can have."},
		{target: "/", r: policy.Request{Host: "a", Header: http.Header{"Host": {"b"}}}, fault: "The request has two hosts."},
		{target: "/", r: policy.Request{Header: http.Header{"Host": {"a", "a"}}}, fault: "The request has two hosts."},
	} {
		fault := c.r.Aim(c.target)
		if fault != c.fault || fault == "" && (c.r.Path != c.path || c.r.RawQuery != c.query) {
			t.Errorf("%q, %+v: %q", c.target, c.r, fault)
		}
	}
	r := policy.Request{Header: http.Header{"Host": {"a"}}}
	if fault := r.Aim("/"); fault != "" || r.Host != "a" || len(r.Header) != 0 {
		t.Errorf("%+v: %q", r, fault)
	}
}
