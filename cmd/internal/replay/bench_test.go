package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const threeRules = `version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 300/minute}
  - {name: api, match: "/api/{rest...}", key: [client_ip], limit: 1000/hour}
  - {name: users, match: "GET /api/users/{id}", key: [client_ip, route], limit: 5000/day}
`

// benchLog writes a log of n requests, few of them refused by threeRules.
func benchLog(b *testing.B, n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	all := make([]logtest.Request, n)
	for i := range all {
		c := r.IntN(1 + r.IntN(100_000))
		all[i] = logtest.Request{
			At: at.Add(time.Duration(i) * 5 * time.Millisecond), Client: fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255),
			Method: "GET", Target: fmt.Sprintf("/api/users/%d?x=1", r.IntN(5000)),
		}
	}
	return logtest.Write(b, logtest.Combined(all))
}

// A line is read, parsed and decided by three rules that all match.
func BenchmarkLine(b *testing.B) {
	doc, err := policyfile.Decode("policy.yaml", []byte(threeRules))
	if err != nil {
		b.Fatal(err)
	}
	f, err := accesslog.Lookup("combined", accesslog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := Config{Files: []string{benchLog(b, b.N)}, Document: doc, Compile: policy.Compile, NewStore: newStore}
	c.Feed.Format = f
	b.ReportAllocs()
	b.ResetTimer()
	r, err := Run(b.Context(), c)
	if err != nil || r.Requests != int64(b.N) || r.Rules["users"].Matched != r.Requests {
		b.Fatal(r, err)
	}
}
