package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/replay/accesslog"
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
	var out bytes.Buffer
	for i := range n {
		c := r.IntN(1 + r.IntN(100_000))
		fmt.Fprintf(&out, "10.%d.%d.%d - - [%s] \"GET /api/users/%d?x=1 HTTP/1.1\" 200 612 \"https://app.example.com/\" \"Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0\"\n",
			c>>16, c>>8&255, c&255, at.Add(time.Duration(i)*5*time.Millisecond).Format("02/Jan/2006:15:04:05 -0700"), r.IntN(5000))
	}
	name := filepath.Join(b.TempDir(), "access.log")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	return name
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
