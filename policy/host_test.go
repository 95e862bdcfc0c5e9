package policy

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

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

func TestAim(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "targets of requests") {
		in := testkit.Words(row.In)
		r := requestOf(append([]string{"host="}, in[1:]...))
		got := r.Aim(in[0])
		if got == "" {
			got = fmt.Sprintf("path %s, query %s, host %s, %d fields", r.Path, r.RawQuery, r.Host, len(r.Header))
		}
		if got != row.Want {
			t.Errorf("%s: %s, want %s", row.In, got, row.Want)
		}
	}
	for _, header := range []http.Header{{"A B": {"c"}}, {"A": {"b\x01"}}} {
		if fault := (&Request{Header: header}).Aim("/"); fault != "The head has a field that none can have." {
			t.Errorf("%q: %q", header, fault)
		}
	}
}
