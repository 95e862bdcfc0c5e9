package policy

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
)

// priced is a policy with prices and nothing else that matters.
func priced(t *testing.T, prices string) *prices {
	t.Helper()
	return parse(t, "prices: "+prices+"\nrules: [{name: a, limit: 1 USD/day, cost: {usd: prices}}]").prices
}

const somePrices = `{gpt-5*: {input: 1.25, cached: 0.125, output: 10, most: 128000}, gpt-5-mini: {input: 0.25, output: 2},
  gpt-5: {input: 1, output: 9}, claude-*: {input: 3, cached: 0.3, cache_write: 3.75, output: 15, most: 64000}`

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
		{"}", "claude", 3_000_000, 15_000_000, 1_000_000}, // unknown: the highest of each
		{"}", "", 3_000_000, 15_000_000, 1_000_000},
		{`, "*": {input: 0.000001, output: 0}}`, "claude", 1, 0, 1},
		{`, "*": {input: 0.000001, output: 0}}`, "claude-x", 3_000_000, 15_000_000, 300_000},
	} {
		p := priced(t, somePrices+c.prices).of(c.model)
		if p.input != c.input || p.output != c.output || p.cached != c.cached {
			t.Errorf("%s with %s: %+v, want %+v", c.model, c.prices, *p, c)
		}
	}
	known := priced(t, somePrices+"}")
	if a, b, most := known.of("claude-x").written, known.of("?").written, known.of("?").most; a != 3_750_000 || b != 3_750_000 || most != 128_000 {
		t.Errorf("a write into the cache costs %d and %d, the longest output has %d tokens", a, b, most)
	}
}

// A cost is the exact sum, rounded up once.
func TestCostOfTokens(t *testing.T) {
	t.Parallel()
	p := priced(t, somePrices+"}").of("claude-x")
	for _, c := range []struct {
		tokens
		micro int64
	}{
		{tokens{}, 0},
		{tokens{input: 1}, 3},
		{tokens{input: 1, cached: 1}, 1},                                     // 0.3
		{tokens{input: 3, cached: 1, written: 1}, 8},                         // 3 + 0.3 + 3.75
		{tokens{input: 1_000_000, output: 1_000_000}, 18_000_000},            // USD for a million
		{tokens{input: 20, cached: 10, output: 3}, 78},                       // 30 + 3 + 45
		{tokens{cached: 10}, 3},                                              // more than all input
		{tokens{input: -5, cached: -1, output: -7}, 0},                       // nonsense
		{tokens{input: math.MaxInt64, output: math.MaxInt64}, math.MaxInt64}, // no overflow
		{tokens{cached: math.MaxInt64, written: math.MaxInt64, input: math.MaxInt64}, math.MaxInt64},
	} {
		if got := p.cost(c.tokens); got != c.micro {
			t.Errorf("%+v costs %d, want %d", c.tokens, got, c.micro)
		}
	}
}

// Random prices and tokens, against big numbers.
func TestCostExactly(t *testing.T) {
	t.Parallel()
	s := seed.Of(t)
	rng := rand.New(rand.NewPCG(s, s))
	number := func(most int64) int64 { return rng.Int64N(most>>rng.IntN(40) + 1) }
	for range 20_000 {
		p := price{input: number(mostPrice * millionths), cached: number(mostPrice * millionths), written: number(mostPrice * millionths), output: number(mostPrice * millionths)}
		n := tokens{input: number(math.MaxInt64 - 1), output: number(math.MaxInt64 - 1)}
		n.cached = number(n.input)
		n.written = number(n.input - n.cached)
		sum := new(big.Int)
		for _, of := range [][2]int64{{n.input - n.cached - n.written, p.input}, {n.cached, p.cached}, {n.written, p.written}, {n.output, p.output}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(of[0]), big.NewInt(of[1])))
		}
		want, rest := new(big.Int).QuoRem(sum, big.NewInt(millionths), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		if want.Cmp(big.NewInt(math.MaxInt64)) > 0 {
			want.SetInt64(math.MaxInt64)
		}
		if got := p.cost(n); got != want.Int64() {
			t.Fatalf("seed %d: %+v of %+v costs %d, want %v", s, n, p, got, want)
		}
	}
}

// Prices as JSON keep their digits, and the fingerprint of a policy covers them, in a file or not.
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
				t.Errorf("%s and %s %s have one fingerprint", other, name, input)
			}
			seen[print] = name + " " + string(input)
		}
	}
}
