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
		if fault := (&Request{Header: header}).Aim("/"); fault != "Invalid header field." {
			t.Errorf("%q: %q", header, fault)
		}
	}
}
