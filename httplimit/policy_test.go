package httplimit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
)

// A rule that looks into the body leaves it to the handler.
func TestPolicyBody(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(Policy(policytest.Engine(t, layers))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })))
	defer s.Close()
	for i, want := range []int{200, 429} {
		for _, name := range []string{"alice", "bob"} {
			body := `{"username":"` + name + `","password":"` + strings.Repeat("x", 1000*i) + `"}`
			response, err := http.Post(s.URL+"/login", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != want || want == 200 && string(got) != body {
				t.Errorf("%s: %d %s", name, response.StatusCode, got)
			}
		}
	}
}
