package rls_test

import (
	"math"
	"slices"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/sluicehq/sluice/internal/rls"
)

const lookups = `
domain: edge
descriptors:
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 7, name: by-key}
  - key: path
    value: /files/*
    rate_limit: {unit: DAY, requests_per_unit: 6, name: files}
  - key: path
    value: /files/big*
    rate_limit: {unit: day, requests_per_unit: 5, name: never-found}
  - key: path
    value: "*/admin/*"
    rate_limit: {unit: Week, requests_per_unit: 4, name: admin}
  - key: path
    value: /files/exact
    rate_limit: {unit: Month, requests_per_unit: 3, name: exact}
  - key: path
    value: /nothing
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 2, name: outer}
    descriptors:
      - key: path
        rate_limit: {unit: year, requests_per_unit: 9, name: inner}
  - key: user
    value: bob
    descriptors:
      - key: color
        rate_limit: {unit: second, requests_per_unit: 1000, name: color}
  - key: free
    rate_limit: {unlimited: true}
`

// Which limit is that of a descriptor: as deep as it is, and at each level by the value, else by the
// first wildcard in the file, else by the key alone, with no way back.
func TestLookup(t *testing.T) {
	client := byConfig(t, lookups)
	const none = ""
	for _, c := range []struct {
		domain string
		d      *common.RateLimitDescriptor
		name   string
		unit   pb.RateLimitResponse_RateLimit_Unit
		count  uint32
	}{
		{"edge", of("path", "/x"), "by-key", pb.RateLimitResponse_RateLimit_HOUR, 7},
		{"edge", of("path", ""), "by-key", pb.RateLimitResponse_RateLimit_HOUR, 7},
		{"edge", of("path", "/files/exact"), "exact", pb.RateLimitResponse_RateLimit_MONTH, 3},
		{"edge", of("path", "/files/exact2"), "files", pb.RateLimitResponse_RateLimit_DAY, 6},
		{"edge", of("path", "/files/bigger"), "files", pb.RateLimitResponse_RateLimit_DAY, 6},
		{"edge", of("path", "/a/admin/b"), "admin", pb.RateLimitResponse_RateLimit_WEEK, 4},
		{"edge", of("path", "/a/admin"), "by-key", pb.RateLimitResponse_RateLimit_HOUR, 7},
		{"edge", of("path", "/nothing"), none, 0, 0},
		{"edge", of("user", "eve"), "outer", pb.RateLimitResponse_RateLimit_MINUTE, 2},
		{"edge", of("user", "eve", "path", "/x"), "inner", pb.RateLimitResponse_RateLimit_YEAR, 9},
		{"edge", of("user", "eve", "path", "/x", "more", "1"), none, 0, 0},
		{"edge", of("user", "bob"), none, 0, 0},
		{"edge", of("user", "bob", "path", "/x"), none, 0, 0},
		{"edge", of("user", "bob", "color", "red"), "color", pb.RateLimitResponse_RateLimit_SECOND, 1000},
		{"edge", of("path", "/x", "user", "eve"), none, 0, 0},
		{"edge", of("unknown", "/x"), none, 0, 0},
		{"Edge", of("path", "/x"), none, 0, 0},
	} {
		out := ask(t, client, c.domain, c.d)
		s := out.GetStatuses()[0]
		l := s.GetCurrentLimit()
		if out.GetOverallCode() != ok || s.GetCode() != ok {
			t.Errorf("%v: %v", c.d, out)
		}
		if l.GetName() != c.name || l.GetUnit() != c.unit || l.GetRequestsPerUnit() != c.count || (l == nil) != (c.name == none) {
			t.Errorf("%s %v: limit %v, want %s", c.domain, c.d, l, c.name)
		}
		if c.name == none && (s.GetLimitRemaining() != 0 || s.GetDurationUntilReset() != nil) {
			t.Errorf("%v of no limit: %v", c.d, s)
		}
		if c.name != none && (s.GetLimitRemaining() != c.count-1 || s.GetDurationUntilReset().GetSeconds() < 1) {
			t.Errorf("%v: %v", c.d, s)
		}
	}
	s := ask(t, client, "edge", of("free", "1")).GetStatuses()[0]
	if s.GetCode() != ok || s.GetLimitRemaining() != math.MaxUint32 || s.GetCurrentLimit() != nil || s.GetDurationUntilReset() != nil {
		t.Errorf("unlimited: %v", s)
	}
}

// history asks for descriptors one by one, and compares the overall codes.
func history(t *testing.T, client pb.RateLimitServiceClient, steps ...any) {
	t.Helper()
	for i := 0; i < len(steps); i += 2 {
		d := steps[i].(*common.RateLimitDescriptor)
		if out := ask(t, client, "edge", d); out.GetOverallCode() != steps[i+1].(pb.RateLimitResponse_Code) {
			t.Errorf("step %d, %v: %v", i/2, d, out)
		}
	}
}

// What counts together, and what apart.
func TestCounts(t *testing.T) {
	client := byConfig(t, `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: user, value: x_path_y, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: user
    value: x
    descriptors:
      - {key: path, value: y, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: apart, value: "a*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: shared, value: "a*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: shared
    value: "b*"
    share_threshold: true
    descriptors:
      - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: closed, rate_limit: {unit: hour}}
  - key: twice
    descriptors:
      - {key: twice, rate_limit: {unit: hour, requests_per_unit: 1}}
`)
	history(t, client,
		of("user", "a"), ok, of("user", "b"), ok, of("user", ""), ok, of("user", "!"), ok, of("user", "a"), over, of("user", ""), over,
		// These two would have one key if they were joined by "_".
		of("user", "x_path_y"), ok, of("user", "x", "path", "y"), ok, of("user", "x_path_y"), over, of("user", "x", "path", "y"), over,
		of("apart", "a1"), ok, of("apart", "a2"), ok, of("apart", "a1"), over,
		of("shared", "a1"), ok, of("shared", "a2"), over,
		of("shared", "b1", "user", "u"), ok, of("shared", "b1", "user", "v"), ok, of("shared", "b2", "user", "u"), over,
		of("closed", "1"), over,
		of("twice", "a", "twice", "b"), ok, of("twice", "b", "twice", "a"), ok, of("twice", "a", "twice", "b"), over,
	)
	if s := ask(t, client, "edge", of("closed", "1")).GetStatuses()[0]; s.GetCurrentLimit().GetUnit() != pb.RateLimitResponse_RateLimit_HOUR || s.GetLimitRemaining() != 0 || s.GetDurationUntilReset() != nil {
		t.Errorf("a limit of 0: %v", s)
	}
}

// A shadow counts and tells its limit, and never refuses.
func TestShadowMode(t *testing.T) {
	client := byConfig(t, `
domain: edge
descriptors:
  - {key: user, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: closed, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	for _, left := range []uint32{1, 0, 0, 0} {
		out := ask(t, client, "edge", of("user", "a"))
		if s := out.GetStatuses()[0]; !slices.Equal(allCodes(out), []pb.RateLimitResponse_Code{ok, ok}) || s.GetLimitRemaining() != left || s.GetCurrentLimit().GetRequestsPerUnit() != 2 {
			t.Errorf("want %d left: %v", left, out)
		}
	}
	if out := ask(t, client, "edge", of("closed", "a")); out.GetOverallCode() != ok {
		t.Errorf("a shadow of 0: %v", out)
	}
}

// Quotas that are used up are told, and refuse only when all of them are.
func TestQuotaMode(t *testing.T) {
	const config = `
domain: edge
descriptors:
  - {key: small, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: large, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
`
	client := byConfig(t, config)
	small, large, user := of("small", "1"), of("large", "1"), of("user", "1")
	for i, want := range [][]pb.RateLimitResponse_Code{
		{ok, ok, ok, ok},
		{ok, over, ok, ok},
		{ok, over, ok, ok},
		{over, over, over, over},
	} {
		if out := ask(t, client, "edge", small, large, user); !slices.Equal(allCodes(out), want) {
			t.Errorf("request %d: %v", i, out)
		}
	}
	client = byConfig(t, config)
	history(t, client, small, ok)
	// It is refused since all quotas are used up: the other limit is as it was.
	for range 5 {
		if out := ask(t, client, "edge", small, user); !slices.Equal(allCodes(out), []pb.RateLimitResponse_Code{over, over, ok}) {
			t.Errorf("all quotas are used up: %v", out)
		}
	}
	history(t, client, user, ok, user, ok, user, ok, user, over)
}

// A limit that another of the request replaces counts as none.
func TestReplaces(t *testing.T) {
	client := byConfig(t, `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1, name: general}}
  - {key: vip, rate_limit: {unit: hour, requests_per_unit: 3, replaces: [{name: general}]}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: general}]}}
`)
	for range 3 {
		out := ask(t, client, "edge", of("user", "a"), of("vip", "a"))
		if s := out.GetStatuses()[0]; out.GetOverallCode() != ok || s.GetCurrentLimit() != nil {
			t.Errorf("replaced: %v", out)
		}
	}
	if out := ask(t, client, "edge", of("free", ""), of("user", "a")); out.GetOverallCode() != ok || out.GetStatuses()[1].GetCurrentLimit() != nil {
		t.Errorf("replaced by one without a limit: %v", out)
	}
	history(t, client, of("user", "a"), ok, of("user", "a"), over)
	if out := ask(t, client, "edge", of("user", "b"), of("vip", "a")); !slices.Equal(allCodes(out), []pb.RateLimitResponse_Code{over, ok, over}) {
		t.Errorf("the one that replaces is used up: %v", out)
	}
}

// A refused request uses up nothing, unless it is to be counted as envoyproxy/ratelimit does.
func TestTogetherOrEach(t *testing.T) {
	const config = `
domain: edge
descriptors:
  - {key: small, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: large, rate_limit: {unit: hour, requests_per_unit: 10}}
`
	for _, c := range []struct {
		refused bool
		left    uint32
	}{{false, 9}, {true, 5}} {
		client := byConfig(t, config, func(c2 *rls.Config) { c2.CountRefused = c.refused })
		for range 5 {
			ask(t, client, "edge", of("small", "1"), of("large", "1"))
		}
		peeked := ask(t, client, "edge", hits(0, of("large", "1"))).GetStatuses()[0]
		if peeked.GetLimitRemaining() != c.left {
			t.Errorf("refused requests count: %v; %d left, want %d", c.refused, peeked.GetLimitRemaining(), c.left)
		}
	}
}

// More than is left is refused, and uses up what is left only if refused requests count.
func TestMoreThanIsLeft(t *testing.T) {
	const config = `{domain: edge, descriptors: [{key: tokens, rate_limit: {unit: hour, requests_per_unit: 10}}]}`
	for _, refused := range []bool{false, true} {
		client := byConfig(t, config, func(c *rls.Config) { c.CountRefused = refused })
		after := pb.RateLimitResponse_Code(ok)
		if refused {
			after = over
		}
		history(t, client, hits(8, of("tokens", "")), ok, hits(5, of("tokens", "")), over, of("tokens", ""), after)
	}
}

// A policy that only watches refuses nothing: no limits, no quotas, and none that a request brings.
func TestShadowAll(t *testing.T) {
	client := byConfig(t, `
domain: edge
descriptors:
  - {key: small, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: closed, rate_limit: {unit: hour, requests_per_unit: 0}}
`, func(c *rls.Config) { c.Engine.ShadowAll() })
	brought := of("brought", "a")
	brought.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 0, Unit: typev3.RateLimitUnit_HOUR}
	for range 3 {
		for _, d := range []*common.RateLimitDescriptor{of("small", "1"), of("user", "1"), of("closed", "1"), brought} {
			if out := ask(t, client, "edge", d); !slices.Equal(allCodes(out), []pb.RateLimitResponse_Code{ok, ok}) {
				t.Errorf("%v: %v", d, out)
			}
		}
	}
}
