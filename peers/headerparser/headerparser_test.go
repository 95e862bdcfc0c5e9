// Package headerparser tests that ratelimit-header-parser, from npm, reads the header fields of responses.
package headerparser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const rules = "rules: [{name: all, limit: 100/minute}]"

// The parser reads X-RateLimit and drafts 3 and 7. If a response has the RateLimit field of a later draft, it reads
// nothing, not even X-RateLimit: "fields: x-ratelimit" is for such clients.
func TestFields(t *testing.T) {
	node := testkit.Program(t, "node")
	if _, err := os.Stat("node_modules"); err != nil {
		out, err := exec.CommandContext(t.Context(), testkit.Program(t, "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent").CombinedOutput()
		if err != nil {
			t.Fatalf("npm: %v\n%s", err, out)
		}
	}
	for _, test := range []struct {
		name, policy string
		config       httplimit.Config
		reads        bool
	}{
		{"X-RateLimit", "fields: x-ratelimit\n" + rules, httplimit.Config{}, true},
		{"X-RateLimit with seconds", "fields: x-ratelimit\n" + rules, httplimit.Config{XFields: answer.XDelta}, true},
		{"draft 7", rules, httplimit.Config{Dialect: answer.Draft7}, true},
		{"draft 3", rules, httplimit.Config{Dialect: answer.Draft3}, true},
		{"draft 11", rules, httplimit.Config{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			handler := test.config.Policy(policytest.Engine(t, test.policy))(http.NotFoundHandler())
			s := httptest.NewServer(handler)
			defer s.Close()
			began := time.Now()
			out, err := exec.CommandContext(t.Context(), node, "parse.mjs", s.URL).Output()
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Limit, Remaining, Reset *float64 }
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !test.reads {
				if got.Limit != nil || got.Remaining != nil || got.Reset != nil {
					t.Errorf("the parser reads %s: the documents state that it does not", out)
				}
				return
			}
			if got.Limit == nil || *got.Limit != 100 || got.Remaining == nil || *got.Remaining != 99 || got.Reset == nil {
				t.Fatalf("the parser reads %s", out)
			}
			// The remaining 99 of 100 units correspond to 59.4 s.
			if in := time.UnixMilli(int64(*got.Reset * 1000)).Sub(began); in < 59*time.Second || in > 61*time.Second+time.Since(began) {
				t.Errorf("the reset is in %v", in)
			}
		})
	}
}
