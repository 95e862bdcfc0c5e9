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

// budgets counts each call in every way. Its windows keep what was charged.
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

// charges are what rules have charged a key.
type charges map[string]int64

// charged returns what the rules of a gateway have charged an API key.
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

// charges returns what a response with a usage is to be charged under the budgets.
func (u *usage) charges() charges {
	total := u.Input + u.Output
	fresh := u.Input - u.Cached
	usd := (1250*fresh + 125*u.Cached + 10_000*u.Output + 999) / 1000 // micro-USD
	return charges{"total": total, "uncached": fresh + u.Output, "output": u.Output, "usd": usd, "kept": total}
}

// What is charged is what the SDK reports, however the response came. A retry of a failed call is charged once:
// litellm #18728 and aisix PR #733 are about tokens from a cache, ai-gateway PR #1189, wso2 #1245, higress #55 and
// aibrix PR #2653 about responses that are compressed or arrive in pieces.
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
				if c.Retries > 0 { // kept counts failures, too, whose estimate it keeps
					delete(want, "kept")
					delete(got, "kept")
				}
				if asJSON(t, got) != asJSON(t, want) {
					t.Errorf("the SDK reports %+v, and charged is %v, not %v", *a.Usage, got, want)
				}
			})
		}
	})
}

// Whether a model has worked for a request whose connection broke off is unknown: it is charged what is expected of
// its input, beside the retry.
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
			t.Errorf("%d is charged, not %d", got, want)
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

// A complete stream that does not report its usage is charged the estimate, since it may hide reasoning. praxis-proxy
// #770 is about such streams, for which nothing is charged.
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
				t.Errorf("%s: %v is charged, not %d", asJSON(t, a), got, want)
			}
		})
	}
}

// With "usage: ask" the upstream reports the usage of such a stream, and keeps what the client itself has asked for:
// apisix overwrites its stream_options.
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
				t.Errorf("the SDK reports %+v, and charged is %v, not %v", *a.Usage, got, want)
			}
		})
	}
}

// A stream that the client leaves, or that breaks off, is charged what has passed: neither nothing nor all that was
// reserved, as in litellm #27955 and PR #35098. With "unknown: estimate" it is charged the estimate.
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
					t.Errorf("with %d tokens of input, %v is charged", input, got)
				}
				if got["kept"] != input+most {
					t.Errorf("unknown: estimate charges %d, not %d", got["kept"], input+most)
				}
			})
		}
	})
}

// A call whose answer is a failure is charged nothing where the rule counts successes, and the estimate where it
// counts everything and keeps it.
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
			t.Errorf("%v is charged, not %v", got, want)
		}
	})
}

// A model without a price costs the highest of each price.
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
			t.Errorf("%d micro-USD are charged, not %d", got, want)
		}
	})
}

// A call that asks for more than the limit can ever have is refused at once, and is charged nothing under any rule:
// litellm PR #29193 answers it with 429 for ever, and PR #27001 and #39309 keep what was reserved for a refusal. A
// large maximum that is not used does not fill the limit, as in litellm PR #38647.
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
				t.Fatalf("%v is charged, not %v", got, want)
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
