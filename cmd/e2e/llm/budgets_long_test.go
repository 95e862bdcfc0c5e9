//go:build long

package llm

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// budgets counts each call in every unit. Fixed windows give nothing back while a test runs.
const budgets = `
version: 1
prices: {"sample*": {input: 1.25, cached: 0.125, output: 10, most: 4000}, "dear": {input: 15, output: 75}}
rules:
  - {name: total, match: POST /v1/, key: [api_key], limit: 1000000/day, algorithm: fixed_window, cost: {tokens: total, estimate: {output: 700}}, count: {status: [2xx]}}
  - {name: uncached, match: POST /v1/, key: [api_key], limit: 1000000/day, algorithm: fixed_window, cost: {tokens: uncached}, count: {status: [2xx]}}
  - {name: output, match: POST /v1/, key: [api_key], limit: 1000000/day, algorithm: fixed_window, cost: {tokens: output}, count: {status: [2xx]}}
  - {name: usd, match: POST /v1/, key: [api_key], limit: 1000 USD/month, cost: {usd: prices}, count: {status: [2xx]}}
  - {name: kept, match: POST /v1/, key: [api_key], limit: 1000000/day, algorithm: fixed_window, cost: {tokens: total, estimate: {output: 700}, unknown: estimate}}
`

// charges are the units that rules have charged to a key.
type charges map[string]int64

// charged returns the units that the rules of a gateway have charged to an API key.
func charged(t testing.TB, g *testkit.Gateway, key string) charges {
	t.Helper()
	c := exec.CommandContext(t.Context(), testkit.Binary(t), "subject", "api_key="+key, "--output", "json", "--admin-url", g.Admin)
	c.Env = testkit.Environ()
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	var subject struct {
		Rules []struct {
			Rule   string
			Limits []struct{ Used int64 }
		}
	}
	if err == nil {
		err = json.Unmarshal(out, &subject)
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	all := charges{}
	for _, r := range subject.Rules {
		all[r.Rule] = r.Limits[0].Used
	}
	return all
}

// charges returns what the budgets charge for a response with a usage.
func (u *usage) charges() charges {
	total := u.Input + u.Output
	fresh := u.Input - u.Cached
	usd := (1250*fresh + 125*u.Cached + 10_000*u.Output + 999) / 1000 // micro-USD
	return charges{"total": total, "uncached": fresh + u.Output, "output": u.Output, "usd": usd, "kept": total}
}

// The charges equal the usage that the SDK reports, however the response arrived. A retry of a failed call is charged
// once. litellm #18728 and aisix PR #733 are about tokens from a cache; ai-gateway PR #1189, wso2 #1245, higress #55
// and aibrix PR #2653 are about responses that are compressed or arrive in pieces.
func TestLongSDKsCharged(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, budgets)
	everySDK(t, func(t *testing.T, c call) {
		for name, edit := range map[string]func(*call){
			"plain":       func(*call) {},
			"stream":      func(c *call) { c.Stream, c.Usage = true, true },
			"tool":        func(c *call) { c.Tools = true },
			"tool stream": func(c *call) { c.Tools, c.Stream, c.Usage = true, true, true },
			"cut":         func(c *call) { c.MaxTokens, c.Stream, c.Usage = 5, true, true },
			"long":        func(c *call) { c.Text, c.Stream, c.Usage, c.MaxTokens = "Write 2000 words", true, true, 3000 },
			"retry":       func(c *call) { c.Key, c.Retries, c.SkipWaits = failsOnce, 1, true },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := c
				c.URL = g.URL
				edit(&c)
				c.Key = unique(t, c.Key)
				a := ask(t, c)
				if a.Error != nil || a.Usage == nil || a.Calls != 1+c.Retries || a.Encoding != "" {
					t.Fatal(asJSON(t, a))
				}
				want, got := a.Usage.charges(), charged(t, g, c.Key)
				if c.Retries > 0 { // kept also counts failures, and keeps their estimates
					delete(want, "kept")
					delete(got, "kept")
				}
				if asJSON(t, got) != asJSON(t, want) {
					t.Errorf("the SDK reports %+v; charged %v, want %v", *a.Usage, got, want)
				}
			})
		}
	})
}

// If a connection broke off, it is unknown whether a model has worked for the request. The expected cost of its input
// is charged in addition to the retry.
func TestLongSDKsHungUp(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, budgets)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Key, c.Retries, c.SkipWaits = g.URL, unique(t, hangsUpOnce), 1, true
		a := ask(t, c)
		if a.Error != nil || a.Calls != 2 {
			t.Fatal(asJSON(t, a))
		}
		got, want := charged(t, g, c.Key)["total"], a.Usage.charges()["total"]+up.input(c.Key)
		if got < want || got > want+1 { // the gateway's own answer is one event
			t.Errorf("charged %d, want %d", got, want)
		}
	})
}

// unique returns an API key for the test.
func unique(t *testing.T, prefix string) string {
	return prefix + strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
}

// input returns the tokens that a rule expects of the body of the last request with a key.
func (m *models) input(key string) int64 {
	size, _ := m.sizes.Load(key)
	n, _ := size.(int64)
	return (n + 2) / 3
}

// A complete stream that does not report its usage is charged the estimate, because it may hide reasoning. In
// praxis-proxy #770, such streams are charged nothing.
func TestLongSDKsWithoutUsage(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, budgets)
	for _, sdk := range []string{"openai", "openai-6", "openai-go"} {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			c := call{SDK: sdk, API: "chat", URL: g.URL, Key: unique(t, ""), Model: "sample-fast", Text: "Write 40 words", Stream: true, MaxTokens: 500}
			a := ask(t, c)
			got := charged(t, g, c.Key)
			if want := up.input(c.Key) + 500; a.Usage != nil || a.Text == "" || got["total"] != want || got["kept"] != want || got["output"] != 500 {
				t.Errorf("%s: charged %v, want %d", asJSON(t, a), got, want)
			}
		})
	}
}

// With "usage: ask", the upstream reports the usage of such a stream.
func TestLongSDKsAskUsage(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, strings.ReplaceAll(budgets, "cost: {tokens: total,", "cost: {tokens: total, usage: ask,"))
	for _, sdk := range []string{"openai", "openai-6", "openai-go"} {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			c := call{SDK: sdk, API: "chat", URL: g.URL, Key: unique(t, ""), Model: "sample-fast-cached", Text: "Write 40 words", Stream: true}
			a := ask(t, c)
			if a.Usage == nil || a.Usage.Output != 40 {
				t.Fatal(asJSON(t, a))
			}
			if got, want := charged(t, g, c.Key), a.Usage.charges(); asJSON(t, got) != asJSON(t, want) {
				t.Errorf("the SDK reports %+v; charged %v, want %v", *a.Usage, got, want)
			}
		})
	}
}

// A stream that the client leaves, or that breaks off, is charged for the part that has passed. It is charged neither
// nothing nor the whole reservation, as in litellm #27955 and PR #35098. With "unknown: estimate", it is charged the
// estimate.
func TestLongSDKsInterrupted(t *testing.T) {
	t.Parallel()
	const most, passed = 650, 8
	up := serveModels(t)
	g := up.gateway(t, budgets)
	everySDK(t, func(t *testing.T, c call) {
		for name, edit := range map[string]func(*call){
			"client leaves": func(c *call) { c.Model, c.LeaveAfter = "sample-slow", passed },
			"breaks off":    func(c *call) { c.Model = "sample-fails" },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := c
				c.URL, c.Key, c.MaxTokens, c.Stream, c.Usage = g.URL, unique(t, ""), most, true, true
				edit(&c)
				if a := ask(t, c); a.Calls != 1 || a.Usage != nil {
					t.Fatal(asJSON(t, a))
				}
				input := up.input(c.Key)
				var got charges
				testkit.Await(t, "the stream is settled", func() bool {
					got = charged(t, g, c.Key)
					return got["total"] != input+most
				})
				if seen := got["total"] - input; seen < passed || seen > most/2 || got["output"] != seen {
					t.Errorf("with %d tokens of input, charged %v", input, got)
				}
				if got["kept"] != input+most {
					t.Errorf("unknown: estimate charges %d, want %d", got["kept"], input+most)
				}
			})
		}
	})
}

// A failed call is charged nothing by a rule that counts successes, and the estimate by a rule that counts all calls
// and has "unknown: estimate".
func TestLongSDKsFailedCharged(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, budgets)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Key, c.Model, c.Retries, c.SkipWaits, c.MaxTokens = g.URL, unique(t, ""), "sample-fails", 2, true, 100
		a := ask(t, c)
		if a.Error == nil || a.Error.Status != http.StatusInternalServerError || a.Calls != 3 {
			t.Fatal(asJSON(t, a))
		}
		want := charges{"total": 0, "uncached": 0, "output": 0, "usd": 0, "kept": 3 * (up.input(c.Key) + 100)}
		if got := charged(t, g, c.Key); asJSON(t, got) != asJSON(t, want) {
			t.Errorf("charged %v, want %v", got, want)
		}
	})
}

// A model without a price is charged the highest price of each kind.
func TestLongSDKsUnknownModel(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, budgets)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Key, c.Model = g.URL, unique(t, ""), "new-fast"
		a := ask(t, c)
		if a.Error != nil {
			t.Fatal(asJSON(t, a))
		}
		if got, want := charged(t, g, c.Key)["usd"], 15*a.Usage.Input+75*a.Usage.Output; got != want {
			t.Errorf("charged %d micro-USD, want %d", got, want)
		}
	})
}

// A call that needs more than the limit can ever have is denied at once, and is charged nothing by any rule. litellm PR
// #29193 is about such calls, which got 429 forever, and PR #27001 and #39309 are about reservations that were kept
// after a denial. A large maximum that is not used does not fill the limit, as in litellm PR #38647.
func TestLongSDKsAboveLimit(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, `
version: 1
rules:
  - {name: calls, match: POST /v1/, key: [api_key], limit: 100/day, algorithm: fixed_window}
  - {name: total, match: POST /v1/, key: [api_key], limit: 5000/day, algorithm: fixed_window, cost: {tokens: total}, answer: llm}
`)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Key, c.MaxTokens = g.URL, unique(t, ""), 6000
		if a := ask(t, c); a.Error == nil || a.Error.Status != http.StatusTooManyRequests || a.Calls != 1 || a.Error.Message == "" {
			t.Fatal(asJSON(t, a))
		}
		want := charges{"calls": 0, "total": 0}
		c.MaxTokens = 4000
		for range 3 {
			if got := charged(t, g, c.Key); asJSON(t, got) != asJSON(t, want) {
				t.Fatalf("charged %v, want %v", got, want)
			}
			a := ask(t, c)
			if a.Error != nil {
				t.Fatal(asJSON(t, a))
			}
			want["calls"]++
			want["total"] += a.Usage.Input + a.Usage.Output
		}
	})
}
