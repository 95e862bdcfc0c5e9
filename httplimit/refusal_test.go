package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicehq/sluice/policy"
)

const once = `
version: 1
rules:
  - {name: once, key: [client_ip], limit: 1/hour}
  - {name: signed, match: /signed, key: [header:X-API-Key], missing: refuse, limit: 9/hour}
`

// In a program that decides itself, an Answerer responds to HEAD without a body, and calls Refuse: see also
// ExampleAnswerer.
func TestAnswerer(t *testing.T) {
	t.Parallel()
	head := httptest.NewRecorder()
	if (Config{}).Answerer().Answer(head, httptest.NewRequest("HEAD", "/", nil), policy.Decision{Missing: "a name"}) || head.Code != 400 || head.Body.Len() > 0 {
		t.Errorf("HEAD: %d %s", head.Code, head.Body)
	}
	mine := httptest.NewRecorder()
	Config{Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) {
		fmt.Fprint(w, d.Err)
	}}.Answerer().Answer(mine, httptest.NewRequest("GET", "/", nil), policy.Decision{Unavailable: true, Err: errors.New("the database is unavailable")})
	if mine.Code != 503 || mine.Body.String() != "the database is unavailable" {
		t.Errorf("with Refuse: %d %s", mine.Code, mine.Body)
	}
}
