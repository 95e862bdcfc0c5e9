package httplimit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/memory"
)

// A rule that looks into the body leaves it to the handler.
func TestPolicyBody(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(Policy(mustEngine(t, memory.New(), layers))(http.HandlerFunc(
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

// The place of a client that leaves the queue of a rule goes to the next one.
func TestPolicyQueueClientLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := Policy(mustEngine(t, memory.New(),
			"version: 1\nrules: [{name: queue, limit: 1/second burst 2, algorithm: leaky_bucket}]\n"))(things)
		fresh := func() *http.Request { return httptest.NewRequest("GET", "/", nil) }
		recorded(h, fresh())
		leaving := fresh()
		ctx, cancel := context.WithCancel(t.Context())
		go recorded(h, leaving.WithContext(ctx))
		synctest.Wait()
		if w := recorded(h, fresh()); w.Code != 429 {
			t.Fatalf("the queue is not full: %d", w.Code)
		}
		cancel()
		synctest.Wait()
		if w := recorded(h, fresh()); w.Code != 200 {
			t.Errorf("the place is lost: %d", w.Code)
		}
	})
}
