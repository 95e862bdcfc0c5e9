package answer_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// A quota has the remaining and the owed tokens and USD, by the costs that the responses have reported.
func TestQuotaOfBudgets(t *testing.T) {
	t.Parallel()
	p := policytest.Parse(t, `
prices: {"*": {input: 1, output: 10}}
rules:
  - {name: tpd, limit: 1000/day, algorithm: fixed_window, cost: {tokens: total, estimate: 700}}
  - {name: usd, limit: 0.50 USD/day, algorithm: fixed_window, cost: {usd: prices, estimate: 20000}}
`)
	e := policy.NewEngine(memory.New(), p)
	quota := func() string {
		var a answer.Answer
		d := e.Quota(t.Context(), &policy.Request{Path: "/"})
		new(answer.Encoder).Quota(&a, http.Header{}, &d, answer.Client{})
		return string(a.Body())
	}
	holds := func(wants ...string) {
		t.Helper()
		body := quota()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("the quota lacks %s: %s", want, body)
			}
		}
	}
	spend := func(input, output int64) {
		t.Helper()
		d := e.Decide(t.Context(), &policy.Request{Path: "/"})
		e.Settle(t.Context(), d, policy.Outcome{Status: 200, Numbers: map[string]int64{"usage.prompt_tokens": input, "usage.completion_tokens": output}})
	}
	spend(150, 100)
	holds(`"name":"tpd","quota":1000,"window":86400,"remaining":750,`, `,"unit":"tokens"}`,
		`"name":"usd","quota":500000,"window":86400,"remaining":498850,`, `"unit":"micro-usd","usd":{"quota":"0.50","remaining":"0.49885"}}`)
	spend(1000, 50_000)
	holds(`"remaining":0,`, `"owed":50250,"unit":"tokens",`, `"owed":2150,"unit":"micro-usd","usd":{"quota":"0.50","remaining":"0","owed":"0.00215"}`)
}
