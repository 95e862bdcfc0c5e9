package rls_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// trees generates descriptors with few keys and values, so that random requests match them.
type trees struct {
	*rand.Rand
	keys, values, flags []string
	limit               func() string
}

// list writes a list of descriptors.
func (r *trees) list(depth int) string {
	var b strings.Builder
	seen := make(map[string]bool)
	b.WriteString("[")
	for range 1 + r.IntN(4) {
		key, value := pick(r.Rand, r.keys...), pick(r.Rand, r.values...)
		if seen[key+"="+value] {
			continue
		}
		seen[key+"="+value] = true
		fmt.Fprintf(&b, "{key: %q, value: %q", key, value)
		for _, flag := range r.flags {
			if r.IntN(5) == 0 {
				b.WriteString(", " + flag + ": true")
			}
		}
		if strings.Contains(value, "*") && r.IntN(3) == 0 {
			b.WriteString(", share_threshold: true")
		}
		b.WriteString(r.limit())
		if depth > 1 && r.IntN(2) == 0 {
			b.WriteString(", descriptors: " + r.list(depth-1))
		}
		b.WriteString("}, ")
	}
	return b.String() + "]"
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// ofADay returns a random limit per day that a history can use up.
func (r *trees) ofADay() string {
	switch r.IntN(6) {
	case 0:
		return ""
	case 1:
		return ", rate_limit: {unlimited: true}"
	}
	return fmt.Sprintf(", rate_limit: {unit: day, requests_per_unit: %d}", r.IntN(5))
}

func randomDescriptor(r *rand.Rand) (step string) {
	for range 1 + r.IntN(3) {
		step += " " + pick(r, "a", "a", "b", "domain", "a#2") + "=" + pick(r, "x", "y", "z", "xx", "", "*")
	}
	return step
}

// The policy that results from converting a configuration decides as the configuration does, for random configurations
// and histories.
func TestConvertDecidesTheSame(t *testing.T) {
	seed := seed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	tree := &trees{Rand: r, keys: []string{"a", "b", "domain", "a#2"}, values: []string{"", "", "x", "y", "*", "x*"}, flags: []string{"shadow_mode"}}
	tree.limit = tree.ofADay
	whole, rules := 0, 0
	for whole < 25 {
		text := "{domain: edge, descriptors: " + tree.list(3) + "}"
		limits := read(t, sluice.FixedWindow, text)
		doc, left := limits.Convert()
		if len(left) > 0 {
			continue // part of the configuration cannot be converted
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
			step := "edge" + randomDescriptor(r)
			if r.IntN(3) == 0 {
				step += " |" + randomDescriptor(r)
			}
			if a, b := codesOf(ask(t, original, step)), codesOf(ask(t, converted, step)); !slices.Equal(a, b) {
				t.Fatalf("seed %d: %s: %v, after conversion %v\n%s\n%s", seed, step, a, b, text, encoded)
			}
		}
	}
	if rules < 25 {
		t.Errorf("seed %d: only %d rules in %d configurations", seed, rules, whole)
	}
}

// codesOf returns the overall code of a response and the codes of its descriptors.
func codesOf(out *pb.RateLimitResponse) []pb.RateLimitResponse_Code {
	all := []pb.RateLimitResponse_Code{out.GetOverallCode()}
	for _, s := range out.GetStatuses() {
		all = append(all, s.GetCode())
	}
	return all
}

// Settings that a policy cannot express are reported with their lines.
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
