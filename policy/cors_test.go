package policy

import (
	"fmt"
	"testing"
)

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
		t.Error("with a star, an origin is denied, or a missing origin is allowed")
	}
	if none := parse(t, rules).CORS(); none.Allows("https://x.test") || none.Any() || none.Credentials() {
		t.Error("without cors, an origin or credentials are allowed")
	}
}
