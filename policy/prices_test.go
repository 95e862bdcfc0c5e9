package policy

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/sluicehq/sluice/policy/internal/money"
)

// priced returns the prices of a policy.
func priced(t *testing.T, prices string) *money.Prices {
	t.Helper()
	return parse(t, "prices: "+prices+"\nrules: [{name: a, limit: 1 USD/day, cost: {usd: prices}}]").prices
}

const somePrices = `{gpt-5*: {input: 1.25, cached: 0.125, output: 10, most: 128000}, gpt-5-mini: {input: 0.25, output: 2},
  gpt-5: {input: 1, output: 9}, claude-*: {input: 3, cached: 0.3, cache_write: 3.75, output: 15, most: 64000}`

// A model without a price costs the highest price of each kind.
func TestPriceOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prices, model         string
		input, output, cached int64 // in millionths of a micro-USD for a token
	}{
		{"}", "gpt-5-turbo", 1_250_000, 10_000_000, 125_000},
		{"}", "gpt-5-mini", 250_000, 2_000_000, 250_000},
		{"}", "GPT-5-Mini", 250_000, 2_000_000, 250_000},
		{"}", "gpt-5-mini-2026", 1_250_000, 10_000_000, 125_000},
		{"}", "gpt-5", 1_000_000, 9_000_000, 1_000_000}, // a whole name comes before a pattern of its length
		{"}", "claude-", 3_000_000, 15_000_000, 300_000},
		{"}", "claude", 3_000_000, 15_000_000, 1_000_000}, // unknown: the highest prices
		{"}", "", 3_000_000, 15_000_000, 1_000_000},
		{`, "*": {input: 0.000001, output: 0}}`, "claude", 1, 0, 1},
		{`, "*": {input: 0.000001, output: 0}}`, "claude-x", 3_000_000, 15_000_000, 300_000},
	} {
		p := priced(t, somePrices+c.prices).Of(c.model)
		if p.Input != c.input || p.Output != c.output || p.Cached != c.cached {
			t.Errorf("%s with %s: %+v, want %+v", c.model, c.prices, *p, c)
		}
	}
	known := priced(t, somePrices+"}")
	if a, b, most := known.Of("claude-x").Written, known.Of("?").Written, known.Of("?").Most; a != 3_750_000 || b != 3_750_000 || most != 128_000 {
		t.Errorf("a write into the cache costs %d and %d, the longest output has %d tokens", a, b, most)
	}
}

// A cost is the exact sum, rounded up once.
func TestCostOfTokens(t *testing.T) {
	t.Parallel()
	p := priced(t, somePrices+"}").Of("claude-x")
	for _, c := range []struct {
		money.Tokens
		micro int64
	}{
		{money.Tokens{}, 0},
		{money.Tokens{Input: 1}, 3},
		{money.Tokens{Input: 1, Cached: 1}, 1},                                     // 0.3
		{money.Tokens{Input: 3, Cached: 1, Written: 1}, 8},                         // 3 + 0.3 + 3.75
		{money.Tokens{Input: 1_000_000, Output: 1_000_000}, 18_000_000},            // USD for a million
		{money.Tokens{Input: 20, Cached: 10, Output: 3}, 78},                       // 30 + 3 + 45
		{money.Tokens{Cached: 10}, 3},                                              // more than all input
		{money.Tokens{Input: -5, Cached: -1, Output: -7}, 0},                       // negative numbers
		{money.Tokens{Input: math.MaxInt64, Output: math.MaxInt64}, math.MaxInt64}, // no overflow
		{money.Tokens{Cached: math.MaxInt64, Written: math.MaxInt64, Input: math.MaxInt64}, math.MaxInt64},
	} {
		if got := p.Cost(c.Tokens); got != c.micro {
			t.Errorf("%+v costs %d, want %d", c.Tokens, got, c.micro)
		}
	}
}

// Prices keep their digits in JSON. The fingerprint of a policy depends on the prices, whether or not they are in a
// file.
func TestPricesAsJSON(t *testing.T) {
	t.Parallel()
	const text = `{"gpt-5*":{"input":1.25,"cached":0.10,"output":10,"most":128000},"odd":{"input":"1,25","output":0}}`
	var p Prices
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	if back, err := json.Marshal(p); string(back) != text || err != nil {
		t.Errorf("%s, %v\nwant %s", back, err, text)
	}
	var file Prices
	if err := json.Unmarshal([]byte(`{"file": "prices.yaml"}`), &file); err != nil || !reflect.DeepEqual(file, Prices{File: "prices.yaml"}) {
		t.Errorf("%+v, %v", file, err)
	}
	for _, wrong := range []string{`[]`, `7`, `{"a": 5}`, `{"a": {"input": true}}`} {
		if err := json.Unmarshal([]byte(wrong), new(Prices)); err == nil {
			t.Errorf("%s was read", wrong)
		}
	}
	seen := make(map[string]string)
	for _, input := range []Decimal{"1", "2"} {
		for _, name := range []string{"", "prices.yaml"} {
			doc := Document{Prices: Prices{File: name, Models: map[string]Price{"*": {Input: input, Output: "1"}}}}
			print := compile(t, doc).Fingerprint()
			if other := seen[print]; other != "" {
				t.Errorf("%s and %s %s have the same fingerprint", other, name, input)
			}
			seen[print] = name + " " + string(input)
		}
	}
}
