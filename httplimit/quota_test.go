package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/policy"
)

// Refusals of a program's own hold for who is blocked here, too.
func TestQuotaRefusedByProgram(t *testing.T) {
	t.Parallel()
	engine := policytest.Engine(t, "rules: [{name: a, block: true}]\n")
	config := Config{QuotaPath: "/q", Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) {
		_, _ = w.Write([]byte("own " + d.Blocked))
	}}
	if w := recorded(config.Policy(engine)(things), httptest.NewRequest("GET", "/q", nil)); w.Code != 403 || w.Body.String() != "own a" {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
	// What is malformed is answered by the door, as it always is.
	if w := recorded(config.Policy(engine)(things), httptest.NewRequest("GET", "/q?path=x", nil)); w.Code != 400 || !strings.Contains(w.Body.String(), "slash") {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}
