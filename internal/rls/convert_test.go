package rls_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/rls"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// randomTree writes descriptors of few keys and values, so that requests find them.
func randomTree(r *rand.Rand, depth int) string {
	var b strings.Builder
	seen := make(map[string]bool)
	b.WriteString("[")
	for range 1 + r.IntN(4) {
		key, value := pick(r, "a", "b", "domain", "a#2"), pick(r, "", "", "x", "y", "*", "x*")
		if seen[key+"="+value] {
			continue
		}
		seen[key+"="+value] = true
		fmt.Fprintf(&b, "{key: %q, value: %q", key, value)
		if strings.Contains(value, "*") && r.IntN(3) == 0 {
			b.WriteString(", share_threshold: true")
		}
		if r.IntN(6) == 0 {
			b.WriteString(", shadow_mode: true")
		}
		switch r.IntN(6) {
		case 0:
		case 1:
			b.WriteString(", rate_limit: {unlimited: true}")
		default:
			fmt.Fprintf(&b, ", rate_limit: {unit: day, requests_per_unit: %d}", r.IntN(5))
		}
		if depth > 1 && r.IntN(2) == 0 {
			b.WriteString(", descriptors: " + randomTree(r, depth-1))
		}
		b.WriteString("}, ")
	}
	return b.String() + "]"
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

func randomDescriptor(r *rand.Rand) *common.RateLimitDescriptor {
	var entries []string
	for range 1 + r.IntN(3) {
		entries = append(entries, pick(r, "a", "a", "b", "domain", "a#2"), pick(r, "x", "y", "z", "xx", "", "*"))
	}
	return of(entries...)
}

// A policy that a configuration is converted to decides as the configuration does, over random ones
// and random histories.
func TestConvertDecidesTheSame(t *testing.T) {
	seed := seed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	whole, rules := 0, 0
	for whole < 25 {
		text := "{domain: edge, descriptors: " + randomTree(r, 3) + "}"
		limits := read(t, sluice.FixedWindow, text)
		doc, left := limits.Convert()
		if len(left) > 0 {
			continue // it says so
		}
		whole++
		rules += len(doc.Rules)
		encoded, err := policyfile.Encode("policy.yaml", doc)
		if err != nil {
			t.Fatal(err)
		}
		p, err := policyfile.Parse("policy.yaml", encoded)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, text, encoded)
		}
		original, converted := byConfig(t, text), serve(t, rls.Config{Engine: policy.NewEngine(memory.New(), p)})
		for range 40 {
			ds := []*common.RateLimitDescriptor{randomDescriptor(r)}
			if r.IntN(3) == 0 {
				ds = append(ds, randomDescriptor(r))
			}
			a, b := allCodes(ask(t, original, "edge", ds...)), allCodes(ask(t, converted, "edge", ds...))
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("seed %d: %v: %v, and converted %v\n%s\n%s", seed, ds, a, b, text, encoded)
			}
		}
	}
	if rules < 25 {
		t.Errorf("seed %d: only %d rules in %d configurations", seed, rules, whole)
	}
}

// What no policy can say is told with its place.
func TestConvertLeavesOut(t *testing.T) {
	limits := read(t, sluice.FixedWindow, `
domain: edge
descriptors:
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: better, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: good}]}}
  - {key: good, rate_limit: {unit: hour, requests_per_unit: 1, name: good}}
  - {key: path, value: "/x*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: star, value: "*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: star, value: one}
`)
	doc, left := limits.Convert()
	var lines []int
	for _, p := range left {
		lines = append(lines, p.Line)
	}
	if fmt.Sprint(lines) != "[4 5 7 8 9]" || len(doc.Rules) != 1 || doc.Rules[0].Name != "edge.good" {
		t.Errorf("left out in lines %v: %v; rules %v", lines, left, doc.Rules)
	}
}
