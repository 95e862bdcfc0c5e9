//go:build long

package llm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

// post sends a chat with an API key. The caller closes the body of the response.
func post(t testing.TB, g *testkit.Gateway, key, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", g.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// spend sends requests until one is denied, and adds up the tokens that the responses report.
func spend(t testing.TB, gateways []*testkit.Gateway, random *rand.Rand, spent *atomic.Int64) {
	for {
		body := fmt.Sprintf(`{"model":"sample","max_tokens":%d,"messages":[{"role":"user","content":"Write %d words"}]}`, 50+random.IntN(400), 1+random.IntN(60))
		resp := post(t, gateways[random.IntN(len(gateways))], "k", body)
		var whole struct {
			Usage struct {
				Total int64 `json:"total_tokens"`
			}
		}
		err := json.NewDecoder(resp.Body).Decode(&whole)
		resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusTooManyRequests:
			return
		case err != nil || resp.StatusCode != http.StatusOK || whole.Usage.Total == 0:
			t.Errorf("%s, %v, %+v", resp.Status, err, whole)
			return
		}
		spent.Add(whole.Usage.Total)
	}
}

// sharing returns the flags of gateways that share a Redis. The timeout is long, because the machine may be busy.
func sharing(t testing.TB) []string {
	return []string{"--store", redistest.Start(t).URL(), "--store-timeout", "5s"}
}

// With a hard estimate, twenty clients of three gateways never spend more than the limit, but nearly all of it. litellm
// #18730, #34732 and #40002 let concurrent requests pass; Envoy AI Gateway #2394, agentgateway and APISIX count only
// afterwards.
func TestLongBudgetNeverExceeded(t *testing.T) {
	t.Parallel()
	const limit, largest = 20_000, 600 // in tokens; largest is the most of a request
	policy := fmt.Sprintf(`
version: 1
rules: [{name: total, match: POST /v1/, key: [api_key], limit: %d/day, algorithm: fixed_window, cost: {tokens: total, estimate: {bytes: 1}}}]
`, limit)
	up := serveModels(t)
	shared := sharing(t)
	for name, args := range map[string][][]string{"memory": {nil}, "Redis": {shared, shared, shared}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gateways []*testkit.Gateway
			for _, more := range args {
				gateways = append(gateways, up.gateway(t, policy, more...))
			}
			var spent atomic.Int64
			var clients sync.WaitGroup
			for i := range uint64(20) {
				clients.Go(func() { spend(t, gateways, rand.New(rand.NewPCG(seed.Of(t), i)), &spent) })
			}
			clients.Wait()
			n := spent.Load()
			if n > limit || n < limit-20*largest {
				t.Errorf("%d tokens were spent of %d", n, limit)
			}
			if got := charged(t, gateways[0], "k")["total"]; got != n {
				t.Errorf("%d tokens were spent, and %d are charged", n, got)
			}
		})
	}
}

// If a gateway is killed with fifty streams, their reservations remain: too much is charged, never too little.
func TestLongBudgetKilled(t *testing.T) {
	t.Parallel()
	const streams, most = 50, 400
	const body = `{"model":"sample-slow","stream":true,"max_tokens":400,"messages":[{"role":"user","content":"Write 400 words"}]}`
	up := serveModels(t)
	shared := sharing(t)
	dies, lives := up.gateway(t, budgets, shared...), up.gateway(t, budgets, shared...)
	var passing sync.WaitGroup
	for range streams {
		resp := post(t, dies, "k", body)
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); resp.StatusCode != http.StatusOK || !strings.HasPrefix(line, "data: ") {
			t.Fatalf("%s: %q, %v", resp.Status, line, err)
		}
		passing.Go(func() { _, _ = io.Copy(io.Discard, resp.Body) }) // until the gateway is killed
	}
	dies.Signal(syscall.SIGKILL)
	dies.Wait()
	passing.Wait()
	input := int64(len(body)+2) / 3
	want := charges{"total": streams * (input + most), "uncached": streams * (input + most), "output": streams * most, "kept": streams * (input + most)}
	got := charged(t, lives, "k")
	delete(got, "usd")
	if asJSON(t, got) != asJSON(t, want) {
		t.Errorf("%v is charged, not %v", got, want)
	}
}
