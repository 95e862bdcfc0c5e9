package rls_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/rls"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const tenAnHour = `{domain: edge, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10}}]}`

// left says what is left of a descriptor's limit.
func left(t *testing.T, client pb.RateLimitServiceClient, d *common.RateLimitDescriptor) uint32 {
	t.Helper()
	return ask(t, client, "edge", hits(0, d)).GetStatuses()[0].GetLimitRemaining()
}

func TestHits(t *testing.T) {
	client := byConfig(t, tenAnHour)
	user := func() *common.RateLimitDescriptor { return of("user", "a") }
	for _, c := range []struct {
		r    *pb.RateLimitRequest
		left uint32
	}{
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{user()}}, 9},                                 // absent is 1
		{&pb.RateLimitRequest{HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{user()}}, 6},                  // of the request
		{&pb.RateLimitRequest{HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{hits(2, user())}}, 4},         // of the descriptor
		{&pb.RateLimitRequest{HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{hits(0, user())}}, 4},         // looks only
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{hits(5, user())}}, 4},                        // does not fit
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{refund(3, user())}}, 7},                      // gives back
		{&pb.RateLimitRequest{HitsAddend: 1, Descriptors: []*common.RateLimitDescriptor{refund(0, user())}}, 7},       // gives nothing back
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{refund(math.MaxUint64, user())}}, 10},        // never more than was used
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{hits(math.MaxUint64, user())}}, 10},          // never fits
		{&pb.RateLimitRequest{HitsAddend: math.MaxUint32, Descriptors: []*common.RateLimitDescriptor{user()}}, 10},    // nor does that
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{user(), user(), hits(2, user())}}, 6},        // the same thrice
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{hits(4, user()), hits(4, user())}}, 6},       // together too much
		{&pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{hits(6, user()), of("user", "another")}}, 0}, // all that is left
	} {
		c.r.Domain = "edge"
		out := send(t, client, c.r)
		if got := left(t, client, user()); got != c.left {
			t.Errorf("after %v, which was told %v, %d are left, want %d", c.r, out, got, c.left)
		}
	}
	if out := ask(t, client, "edge", hits(0, user())); out.GetOverallCode() != over {
		t.Errorf("who looks at what is used up: %v", out)
	}
	if out := ask(t, client, "edge", refund(4, user())); !slices.Equal(codesOf(out), []int{1, 1}) {
		t.Errorf("who gives back: %v", out)
	}
	// What is looked at refuses the request, which uses up nothing of the rest then.
	ask(t, client, "edge", hits(4, user()))
	if out := ask(t, client, "edge", hits(0, user()), of("user", "third")); !slices.Equal(codesOf(out), []int{2, 2, 1}) {
		t.Errorf("a look that refuses: %v", out)
	}
	if got := left(t, client, of("user", "third")); got != 10 {
		t.Errorf("%d are left of what was beside it", got)
	}
}

func codesOf(out *pb.RateLimitResponse) (all []int) {
	for _, c := range allCodes(out) {
		all = append(all, int(c))
	}
	return all
}

func limited(requests uint32, unit typev3.RateLimitUnit, multiplier *wrapperspb.UInt32Value, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit, UnitMultiplier: multiplier}
	return d
}

// Limits that the request brings hold in place of those of the configuration, shadows too.
func TestOverrides(t *testing.T) {
	client := byConfig(t, `{domain: edge, descriptors: [{key: user, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, name: own}}]}`)
	for unit := typev3.RateLimitUnit_SECOND; unit <= typev3.RateLimitUnit_YEAR; unit++ {
		multiplier := wrapperspb.UInt32(uint32(unit) % 3)
		if multiplier.Value == 0 {
			multiplier = nil
		}
		if unit == typev3.RateLimitUnit_SECOND {
			multiplier = wrapperspb.UInt32(3600) // or the window ends in between
		}
		d := func() *common.RateLimitDescriptor { return limited(2, unit, multiplier, of("user", unit.String())) }
		for i, want := range []int{1, 1, 2, 2} {
			out := ask(t, client, "edge", d())
			s := out.GetStatuses()[0]
			l := s.GetCurrentLimit()
			if int(out.GetOverallCode()) != want || s.GetLimitRemaining() != uint32(max(0, 1-i)) || l.GetRequestsPerUnit() != 2 || l.GetName() != "" {
				t.Errorf("%v, request %d: %v", unit, i, out)
			}
			if unit == typev3.RateLimitUnit_SECOND {
				continue // 3600 seconds are told as an hour
			}
			if l.GetUnit().String() != unit.String() || l.GetUnitMultiplier().GetValue() > 1 && l.GetUnitMultiplier().GetValue() != multiplier.GetValue() {
				t.Errorf("%v x %v is told as %v", unit, multiplier, l)
			}
		}
	}
	// None of them counted for the limit of the configuration, nor for each other.
	if got := ask(t, client, "edge", of("user", "DAY")).GetStatuses()[0].GetLimitRemaining(); got != 0 {
		t.Errorf("%d are left of the limit of the configuration", got)
	}
	if out := ask(t, client, "edge", limited(0, typev3.RateLimitUnit_HOUR, nil, of("user", "a")), limited(5, typev3.RateLimitUnit_HOUR, nil, of("user", "beside"))); !slices.Equal(codesOf(out), []int{2, 2, 1}) {
		t.Errorf("a limit of 0: %v", out)
	}
	if out := ask(t, client, "edge", limited(5, typev3.RateLimitUnit_HOUR, nil, of("user", "beside"))); out.GetStatuses()[0].GetLimitRemaining() != 4 {
		t.Errorf("what was beside a limit of 0 was charged: %v", out)
	}
	if out := ask(t, client, "nowhere", limited(0, typev3.RateLimitUnit_HOUR, nil, of("user", "a"))); out.GetOverallCode() != ok || out.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("in a domain that there is not: %v", out)
	}
	if out := ask(t, client, "edge", hits(0, limited(0, typev3.RateLimitUnit_HOUR, nil, of("user", "a")))); !slices.Equal(codesOf(out), []int{1, 1}) {
		t.Errorf("a look at a limit of 0: %v", out)
	}
	byRules := byPolicy(t, "{version: 1, rules: [{name: all, key: [attr:user], limit: 1/hour}]}")
	for i, want := range []int{1, 1, 2} {
		if out := ask(t, byRules, "any", limited(2, typev3.RateLimitUnit_HOUR, nil, of("user", "a"))); int(out.GetOverallCode()) != want {
			t.Errorf("with a policy, request %d: %v", i, out)
		}
	}
	// The rules are not asked, nor charged.
	ask(t, byRules, "any", limited(0, typev3.RateLimitUnit_HOUR, nil, of("user", "b")))
	if out := ask(t, byRules, "any", of("user", "b")); out.GetOverallCode() != ok {
		t.Errorf("a limit of 0 was charged to a rule: %v", out)
	}
	if out := ask(t, byRules, "any", refund(1, limited(0, typev3.RateLimitUnit_HOUR, nil, of("user", "b")))); out.GetOverallCode() != ok {
		t.Errorf("a limit of 0 asks rules: %v", out)
	}
}

// What cannot be understood is answered by a code that says so, and the service goes on.
func TestErrors(t *testing.T) {
	client := byConfig(t, tenAnHour)
	many := func(n int) (ds []*common.RateLimitDescriptor) {
		for range n {
			ds = append(ds, of("user", "a"))
		}
		return ds
	}
	long := strings.Repeat("x", 4097)
	var wide []string
	for i := range 33 {
		wide = append(wide, fmt.Sprint("k", i), "v")
	}
	for _, c := range []struct {
		r    *pb.RateLimitRequest
		code codes.Code
		says string
	}{
		{&pb.RateLimitRequest{Descriptors: many(1)}, codes.InvalidArgument, "domain"},
		{&pb.RateLimitRequest{Domain: long, Descriptors: many(1)}, codes.InvalidArgument, "domain: it has 4097 bytes"},
		{&pb.RateLimitRequest{Domain: "edge"}, codes.InvalidArgument, "descriptors"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: many(129)}, codes.ResourceExhausted, "more than 128 descriptors"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: many(10_000)}, codes.ResourceExhausted, "more than 128 descriptors"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of(wide...)}}, codes.ResourceExhausted, "descriptors[0] has more than 32 entries"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of()}}, codes.InvalidArgument, "descriptors[0]: it has no entries"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of("user", "a", "", "b")}}, codes.InvalidArgument, "descriptors[0].entries[1]: it has no key"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of("user", long)}}, codes.InvalidArgument, "descriptors[0].entries[0]"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of("user", "a"), limited(1, typev3.RateLimitUnit_UNKNOWN, nil, of("user", "a"))}}, codes.InvalidArgument, "descriptors[1].limit.unit: 0 is no unit"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{limited(1, 7, nil, of("user", "a"))}}, codes.InvalidArgument, "7 is no unit"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{limited(1, -1, nil, of("user", "a"))}}, codes.InvalidArgument, "-1 is no unit"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{limited(1, 1, wrapperspb.UInt32(0), of("user", "a"))}}, codes.InvalidArgument, "unit_multiplier: it is 0"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{limited(1, 6, wrapperspb.UInt32(math.MaxUint32), of("user", "a"))}}, codes.InvalidArgument, "longer than ten years"},
		{&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{limited(math.MaxUint32, 6, nil, of("user", "a"))}}, codes.InvalidArgument, "too large to be counted exactly"},
	} {
		_, err := client.ShouldRateLimit(t.Context(), c.r)
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.80v: %v, want %v and %q", c.r, err, c.code, c.says)
		}
	}
	if got := left(t, client, of("user", "a")); got != 10 {
		t.Errorf("%d are left: a request that was not understood was charged", got)
	}
}

// The answers that a policy has reach Envoy, and those that are built in.
func TestAnswers(t *testing.T) {
	client := byPolicy(t, `
version: 1
answers: {429: {type: text/plain, body: "Slow down, please."}}
rules:
  - {name: users, key: [attr:user], limit: 1/hour, algorithm: fixed_window}
`, func(c *rls.Config) { c.Answers = true })
	out := ask(t, client, "edge", of("user", "a"))
	if h := headers(out); h.Get("RateLimit-Policy") != `"users";q=1;w=3600` || h.Get("X-RateLimit-Remaining") != "0" || h.Get("Retry-After") != "" || len(out.GetRawBody()) != 0 {
		t.Errorf("passes: %v", out)
	}
	out = ask(t, client, "edge", of("user", "a"), of("user", "b"))
	h := headers(out)
	if h.Get("Retry-After") == "" || h.Get("Content-Type") != "text/plain; charset=utf-8" || string(out.GetRawBody()) != "Slow down, please." || h.Get("Content-Length") != "" {
		t.Errorf("is refused: %v", out)
	}
	// What never passes has no time after which it does.
	out = ask(t, client, "edge", of("user", "b"), limited(0, typev3.RateLimitUnit_HOUR, nil, of("user", "c")))
	if h := headers(out); h.Get("Retry-After") != "" || out.GetOverallCode() != over || strings.Contains(strings.ToLower(string(out.GetRawBody())), "retry") {
		t.Errorf("brings a limit of 0: %v", out)
	}
	if out := ask(t, byPolicy(t, `{version: 1, rules: [{name: users, limit: 1/hour}]}`), "edge", of("user", "a")); len(out.GetResponseHeadersToAdd()) != 0 || out.GetDynamicMetadata() != nil {
		t.Errorf("nobody asked for more: %v", out)
	}
}

func headers(out *pb.RateLimitResponse) http.Header {
	h := make(http.Header)
	for _, v := range out.GetResponseHeadersToAdd() {
		h.Add(v.GetKey(), v.GetValue())
	}
	return h
}

// A router that reads which service has something left of its quota uses one after the other, each for
// what it has, and learns when the first has something again.
func TestMetadataOfQuotas(t *testing.T) {
	client := byConfig(t, `
domain: edge
descriptors:
  - {key: service, value: a, quota_mode: true, metadata: {route: {service: a, weights: {x: 1}}}, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: service, value: b, quota_mode: true, metadata: {route: {service: b, weights: {x: 9, y: [2]}}, b: true}, rate_limit: {unit: month, requests_per_unit: 2}}
  - {key: free, metadata: {free: true}, rate_limit: {unlimited: true}}
`, func(c *rls.Config) { c.Metadata, c.Answers = true, true })
	look := func() *pb.RateLimitResponse {
		return ask(t, client, "edge", of("free", ""), hits(0, of("service", "a")), hits(0, of("service", "b")))
	}
	both := map[string]any{"route": map[string]any{"service": "a", "weights": map[string]any{"x": 1.0, "y": []any{2.0}}}, "b": true}
	onlyB := map[string]any{"route": map[string]any{"service": "b", "weights": map[string]any{"x": 9.0, "y": []any{2.0}}}, "b": true}
	for i, want := range []map[string]any{both, onlyB, onlyB} {
		out := look()
		got, _ := out.GetDynamicMetadata().AsMap()["metadata"].(map[string]any)
		if !reflect.DeepEqual(got, want) || out.GetOverallCode() != ok || headers(out).Get("Retry-After") != "" {
			t.Fatalf("request %d: %v, want %v", i, out, want)
		}
		ask(t, client, "edge", of("service", got["route"].(map[string]any)["service"].(string)))
	}
	out := look()
	first := min(reset(out.GetStatuses()[1]), reset(out.GetStatuses()[2]))
	wait, err := strconv.Atoi(headers(out).Get("Retry-After"))
	if d := time.Duration(wait)*time.Second - first; out.GetOverallCode() != over || out.GetDynamicMetadata().AsMap()["metadata"] != nil || err != nil || d.Abs() > time.Second {
		t.Errorf("nothing is left: %v (%v), and the first has something after %v", out, err, first)
	}
}

func TestMetadata(t *testing.T) {
	client := byConfig(t, `
domain: edge
descriptors:
  - key: user
    metadata: {team: [payments, 7, 1.5, true, null, {deep: x}], sluice: {algorithm: token_bucket, burst: 20}}
    rate_limit: {unit: hour, requests_per_unit: 10}
`, func(c *rls.Config) { c.Metadata = true })
	out := send(t, client, &pb.RateLimitRequest{Domain: "edge", HitsAddend: 2, Descriptors: []*common.RateLimitDescriptor{
		of("user", "a=b", "path", ""), hits(3, limited(5, typev3.RateLimitUnit_DAY, nil, of("user", "a"))), of("user", "c"),
	}})
	want := map[string]any{
		"domain": "edge", "hitsAddend": 2.0,
		"descriptors": []any{
			map[string]any{"entries": []any{"user=a=b", "path="}},
			map[string]any{"entries": []any{"user=a"}, "hitsAddend": 3.0, "limit": "requests_per_unit:5 unit:DAY"},
			map[string]any{"entries": []any{"user=c"}},
		},
		"metadata": map[string]any{
			"team":   []any{"payments", 7.0, 1.5, true, nil, map[string]any{"deep": "x"}},
			"sluice": map[string]any{"algorithm": "token_bucket", "burst": 20.0},
		},
	}
	if got := out.GetDynamicMetadata().AsMap(); fmt.Sprint(got) != fmt.Sprint(want) || !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("metadata\n%v, want\n%v", got, want)
	}
	// The settings hold: a bucket of twenty.
	if s := out.GetStatuses()[2]; s.GetLimitRemaining() != 18 {
		t.Errorf("a burst of 20: %v", s)
	}
}

// awayStore says what a store says that cannot be reached.
type awayStore struct{}

func (awayStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("dial tcp 192.0.2.1:6379: secret")
}

// While the store is away each rule's on_error decides, and nobody hears why.
func TestStoreAway(t *testing.T) {
	for onError, want := range map[string]pb.RateLimitResponse_Code{"allow": ok, "deny": over} {
		limits := read(t, sluice.FixedWindow, `{domain: edge, descriptors: [{key: user, metadata: {sluice: {on_error: `+onError+`}}, rate_limit: {unit: hour, requests_per_unit: 10}}]}`)
		p, err := policy.Compile(limits.Document)
		if err != nil {
			t.Fatal(err)
		}
		client := serve(t, rls.Config{Engine: policy.NewEngine(awayStore{}, p), Limits: func() *rls.Limits { return limits }, Answers: true, Metadata: true})
		out := ask(t, client, "edge", of("user", "a"), of("other", "a"))
		if out.GetOverallCode() != want || out.GetStatuses()[0].GetCode() != want || out.GetStatuses()[1].GetCode() != ok {
			t.Errorf("on_error %s: %v", onError, out)
		}
		if text := out.String() + string(out.GetRawBody()); strings.Contains(text, "secret") || strings.Contains(text, "192.0.2.1") {
			t.Errorf("it tells what the store has said: %s", text)
		}
		if want == over && out.GetStatuses()[0].GetDurationUntilReset().GetSeconds() != 1 {
			t.Errorf("when to ask again: %v", out)
		}
	}
}

// Rules of a policy by the address of the client see that of the descriptor.
func TestRemoteAddress(t *testing.T) {
	client := byPolicy(t, `
version: 1
rules:
  - {name: barred, clients: [192.0.2.0/24], block: true}
  - {name: networks, key: [client_ip], limit: 1/hour}
`)
	if out := ask(t, client, "edge", of("remote_address", "192.0.2.7")); out.GetOverallCode() != over || out.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("blocked: %v", out)
	}
	ask(t, client, "edge", of("remote_address", "2001:db8::1"))
	if out := ask(t, client, "edge", of("remote_address", "2001:db8::2")); out.GetOverallCode() != over {
		t.Errorf("one network: %v", out)
	}
}

func TestTokens(t *testing.T) {
	client := byConfig(t, tenAnHour, func(c *rls.Config) {
		c.Authorize = func(_, token string) error {
			if token != "good" {
				return errors.New("another token")
			}
			return nil
		}
	})
	r := &pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of("user", "a")}}
	for _, c := range []struct {
		pairs []string
		code  codes.Code
	}{
		{nil, codes.Unauthenticated},
		{[]string{"authorization", "Bearer bad"}, codes.Unauthenticated},
		{[]string{"authorization", "good"}, codes.Unauthenticated},
		{[]string{"authorization", "Bearer good", "authorization", "Bearer good"}, codes.Unauthenticated},
		{[]string{"authorization", "bearer good"}, codes.OK},
	} {
		_, err := client.ShouldRateLimit(metadata.AppendToOutgoingContext(t.Context(), c.pairs...), r)
		if status.Code(err) != c.code {
			t.Errorf("%v: %v, want %v", c.pairs, err, c.code)
		}
	}
}

// Responses have what the official messages make of them, and nothing that they do not know.
func TestNothingUnknown(t *testing.T) {
	client := byConfig(t, tenAnHour, func(c *rls.Config) { c.Answers, c.Metadata = true, true })
	out := ask(t, client, "edge", of("user", strings.Repeat("long", 200)), of("user", "b"))
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	back := new(pb.RateLimitResponse)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, back); err != nil || !proto.Equal(out, back) {
		t.Errorf("unknown fields: %v", out)
	}
}

// leavingStore has a caller leave while it decides, once, and fails for those who have left, as a
// store does that is asked over the network.
type leavingStore struct {
	sluice.Store
	leave atomic.Pointer[context.CancelFunc]
	again chan struct{} // what is asked after that has been answered
}

func (s *leavingStore) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := ctx.Err(); err != nil {
		s.again <- struct{}{}
		return err
	}
	err := s.Store.Take(ctx, charges, receipts)
	if leave := s.leave.Swap(nil); leave != nil {
		(*leave)()
		<-ctx.Done()
	} else {
		s.again <- struct{}{}
	}
	return err
}

// What a refused request was charged is given back although its caller has left meanwhile.
func TestGivesBackToWhoHasLeft(t *testing.T) {
	limits := read(t, sluice.FixedWindow, `
domain: edge
descriptors:
  - {key: small, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: large, rate_limit: {unit: day, requests_per_unit: 9}}
`)
	p, err := policy.CompileAt(limits.Document, limits.Where)
	if err != nil {
		t.Fatal(err)
	}
	store := &leavingStore{Store: memory.New(), again: make(chan struct{}, 8)}
	client := serve(t, rls.Config{Engine: policy.NewEngine(store, p), Limits: func() *rls.Limits { return limits }, Algorithm: sluice.FixedWindow})
	history(t, client, of("small", ""), ok)
	<-store.again

	ctx, cancel := context.WithCancel(t.Context())
	store.leave.Store(&cancel)
	_, err = client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		hits(0, of("small", "")), of("large", ""),
	}})
	if status.Code(err) != codes.Canceled {
		t.Fatalf("a caller that has left: %v", err)
	}
	<-store.again
	if n := left(t, client, of("large", "")); n != 9 {
		t.Errorf("%d left of 9, of which none was used", n)
	}
}
