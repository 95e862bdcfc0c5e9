package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// engine returns one for a policy, over a store of its own.
func engine(t *testing.T, rules string) *policy.Engine {
	t.Helper()
	return policy.NewEngine(memory.New(), compile(t, rules))
}

func compile(t *testing.T, rules string) *policy.Policy {
	t.Helper()
	p, err := policyfile.Parse("test.yaml", []byte("version: 1\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRefusal(t *testing.T) {
	cc := loopback(t, grpclimit.Policy(engine(t, `
rules:
  - {name: per-address, key: [client_ip], limit: 2/hour}
  - {name: all, limit: 100/minute}`)))
	first := call(t.Context(), cc, sayMethod, "hello")
	if first.code != codes.OK || first.header.Get("ratelimit")[0] != `"per-address";r=1;t=1800, "all";r=99;t=60` {
		t.Errorf("%v, %v", first.status, first.header)
	}
	if got := first.header.Get("ratelimit-policy"); len(got) != 1 || got[0] != `"per-address";q=2;w=3600, "all";q=100;w=60` {
		t.Errorf("%q", got)
	}
	call(t.Context(), cc, sayMethod, "hello")
	refused := call(t.Context(), cc, sayMethod, "hello")
	if refused.code != codes.ResourceExhausted || len(refused.header) > 0 {
		t.Fatalf("%v, with the header %v, which keeps clients from retrying", refused.status, refused.header)
	}
	if want := "Limit per-address: 2 per 3600s. Retry in 1800 s."; refused.status.Message() != want {
		t.Errorf("%q, not %q", refused.status.Message(), want)
	}
	if got := refused.trailer.Get("ratelimit"); len(got) != 1 || !strings.HasPrefix(got[0], `"per-address";r=0;t=1800, "all";r=98;`) {
		t.Errorf("%q", got)
	}
	wait, quota := details(t, refused.status)
	ms, err := strconv.Atoi(strings.Join(refused.trailer.Get("grpc-retry-pushback-ms"), ","))
	if pushed := time.Duration(ms) * time.Millisecond; err != nil || pushed != wait || wait > 1800*time.Second || wait < 1790*time.Second {
		t.Errorf("pushback %v, RetryInfo %v, %v", pushed, wait, err)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].Subject != "per-address" || v[0].QuotaId != "per-address" || v[0].QuotaValue != 2 || v[0].Description != "Limit per-address: 2/hour burst 2" {
		t.Errorf("%v", v)
	}
}

// details returns those of a refusal, -1 where there is no RetryInfo.
func details(t *testing.T, s *status.Status) (wait time.Duration, quota *errdetails.QuotaFailure) {
	t.Helper()
	wait = -1
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("a detail is %v", d)
		}
	}
	return wait, quota
}

// brokenStore is a store that does not answer.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("connection refused")
}

func TestCodes(t *testing.T) {
	rules := `
rules:
  - {name: away, match: /test.Echo/Login, limit: 1/day, on_error: deny}
  - {name: open, match: /test.Echo/Say, headers: {X-Open: "1"}, limit: 1/day, on_error: allow}
  - {name: key, match: /test.Echo/Say, headers: {X-Key: "1"}, key: [header:X-Tenant], limit: 1/day, missing: refuse}
  - {name: blocked, match: /test.Echo/Say, headers: {X-Blocked: "1"}, block: true}
  - {name: dear, match: /test.Echo/Say, headers: {X-Dear: "*"}, limit: 1/day, cost: {header: X-Dear, max: 100}}`
	for name, c := range map[string]struct {
		store  sluice.Store
		method string
		md     []string
		code   codes.Code
		wait   time.Duration
		push   string
	}{
		"the store is away, and a rule closed": {brokenStore{}, loginMethod, nil, codes.Unavailable, time.Second, "1000"},
		"the store is away, and a rule open":   {brokenStore{}, sayMethod, []string{"x-open", "1"}, codes.OK, -1, ""},
		"nothing to count by":                  {memory.New(), sayMethod, []string{"x-key", "1"}, codes.InvalidArgument, -1, ""},
		"blocked":                              {memory.New(), sayMethod, []string{"x-blocked", "1"}, codes.PermissionDenied, -1, ""},
		"more than ever fits":                  {memory.New(), sayMethod, []string{"x-dear", "5"}, codes.ResourceExhausted, -1, "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			cc := loopback(t, grpclimit.Policy(policy.NewEngine(c.store, compile(t, rules))))
			got := call(t.Context(), cc, c.method, "", c.md...)
			wait, _ := details(t, got.status)
			if push := strings.Join(got.trailer.Get("grpc-retry-pushback-ms"), ","); got.code != c.code || wait != c.wait || push != c.push {
				t.Errorf("%v, RetryInfo %v, pushback %q", got.status, wait, push)
			}
			if got.code != codes.OK && got.status.Message() == "" {
				t.Error("it is not said why")
			}
		})
	}
}

// What is told apart by method, metadata, address, trusted proxies and what the program says.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		rule  string
		calls [][]string // method, and metadata
		want  string     // a digit of 0 or 8 (RESOURCE_EXHAUSTED) for each
	}{
		"method":              {`{match: /test.Echo/Say, limit: 1/day}`, [][]string{{sayMethod}, {sayMethod}, {loginMethod}, {loginMethod}}, "0800"},
		"method as POST":      {`{match: POST /test.Echo/, limit: 1/day}`, [][]string{{sayMethod}, {loginMethod}}, "08"},
		"metadata":            {`{key: [header:X-Tenant], limit: 1/day}`, [][]string{{sayMethod, "x-tenant", "a"}, {sayMethod, "x-tenant", "a"}, {sayMethod, "x-tenant", "b"}}, "080"},
		"a bearer token":      {`{key: [api_key], limit: 1/day}`, [][]string{{sayMethod, "authorization", "Bearer a"}, {sayMethod, "authorization", "Bearer a"}, {sayMethod, "authorization", "Bearer b"}}, "080"},
		"address":             {`{key: [client_ip], limit: 1/day}`, [][]string{{sayMethod, "x-forwarded-for", "192.0.2.1"}, {sayMethod, "x-forwarded-for", "192.0.2.2"}}, "08"},
		"through a proxy":     {"{key: [client_ip], limit: 1/day}\ntrusted_proxies: [127.0.0.1]", [][]string{{sayMethod, "x-forwarded-for", "192.0.2.1"}, {sayMethod, "x-forwarded-for", "192.0.2.2"}, {sayMethod, "x-forwarded-for", "6.6.6.6, 192.0.2.1"}}, "008"},
		"of the program":      {`{key: [attr:user], limit: 1/day}`, [][]string{{sayMethod, "x-user", "a"}, {sayMethod, "x-user", "b"}, {sayMethod, "x-user", "a"}}, "008"},
		"no pseudo-header":    {`{key: [header:X-None], missing: skip, limit: 1/day}`, [][]string{{sayMethod}, {sayMethod}}, "00"},
		"the authority":       {`{hosts: [other.test], limit: 1/day}`, [][]string{{sayMethod}, {sayMethod}}, "00"},
		"streams like calls":  {`{key: [client_ip], limit: 1/day}`, [][]string{{talkMethod}, {sayMethod}}, "08"},
		"binary and repeated": {`{key: [header:X-Bytes-Bin], limit: 1/day}`, [][]string{{sayMethod, "x-bytes-bin", "\xff\x00"}, {sayMethod, "x-bytes-bin", "\xff\x00"}, {sayMethod, "x-bytes-bin", "\xfe"}}, "080"},
	} {
		t.Run(name, func(t *testing.T) {
			config := grpclimit.Config{Attributes: func(ctx context.Context, fullMethod string, attributes map[string]string) {
				md, _ := metadata.FromIncomingContext(ctx)
				attributes["user"] = strings.Join(md.Get("x-user"), "")
			}}
			rule, rest, _ := strings.Cut(c.rule, "\n")
			cc := loopback(t, config.Policy(engine(t, rest+"\nrules: [{name: one, "+rule[1:]+"]")))
			got := ""
			for _, one := range c.calls {
				if one[0] == talkMethod {
					got += fmt.Sprint(int(talkOnce(t, cc)))
					continue
				}
				got += fmt.Sprint(int(call(t.Context(), cc, one[0], "", one[1:]...).code))
			}
			if got != c.want {
				t.Errorf("codes %s, not %s", got, c.want)
			}
		})
	}
}

func open(t *testing.T, ctx context.Context, cc *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, talkMethod)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// say sends a message and returns the code of its answer.
func exchange(stream grpc.ClientStream, text string) codes.Code {
	_ = stream.SendMsg(wrapperspb.String(text)) // the stream's error comes from RecvMsg
	return status.Code(stream.RecvMsg(&wrapperspb.StringValue{}))
}

// talkOnce opens a stream, exchanges one message and closes it.
func talkOnce(t *testing.T, cc *grpc.ClientConn) codes.Code {
	t.Helper()
	stream := open(t, t.Context(), cc)
	if code := exchange(stream, "hello"); code != codes.OK {
		return code
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != io.EOF {
		return status.Code(err)
	}
	return codes.OK
}

// Interceptors of a single limiter, with other services beside ours.
func TestLimit(t *testing.T) {
	limiter, err := sluice.NewLimiter(memory.New(), "calls", sluice.Limit{Count: 2, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	limit := grpclimit.Limit(limiter, nil)
	server := grpc.NewServer(limit.Options()...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	server.RegisterService(&service, nil)
	p := testkit.NewPipes()
	go func() { _ = server.Serve(p) }()
	t.Cleanup(server.Stop)
	cc := connect(t, "passthrough:///test", dialer(p))

	if answer, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", answer, err)
	}
	if got := call(t.Context(), cc, sayMethod, ""); got.code != codes.OK || got.header.Get("ratelimit")[0] != `"calls";r=0;t=1800` {
		t.Errorf("%v, %v", got.status, got.header)
	}
	if got := call(t.Context(), cc, sayMethod, ""); got.code != codes.ResourceExhausted {
		t.Errorf("%v", got.status)
	}
	if d, err := limiter.Peek(t.Context(), "192.0.2.1"); err != nil || d.Remaining > 0 {
		t.Errorf("the address is not what has counted: %+v, %v", d, err)
	}
}

// Each message of a stream counts where that is asked for.
func TestPerMessage(t *testing.T) {
	rules := `rules: [{name: messages, limit: 3/day}]`
	for perMessage, want := range map[bool][]codes.Code{false: {0, 0, 0, 0, 0}, true: {0, 0, 0, codes.ResourceExhausted, codes.ResourceExhausted}} {
		cc := loopback(t, grpclimit.Config{PerMessage: perMessage}.Policy(engine(t, rules)))
		stream := open(t, t.Context(), cc)
		for i, code := range want {
			if got := exchange(stream, "hello"); got != code {
				t.Errorf("per message %v: message %d is answered with %v, not %v", perMessage, i, got, code)
			}
		}
		if pushed := stream.Trailer().Get("grpc-retry-pushback-ms"); perMessage && len(pushed) != 1 {
			t.Errorf("trailers %v", stream.Trailer())
		}
	}
}

// Calls wait for their turn in a queue, and give it back where it would come too late.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(engine(t, `rules: [{name: queue, limit: 1/second burst 3, algorithm: leaky_bucket}]`)))
		start := time.Now()
		call(t.Context(), cc, sayMethod, "")
		soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if got := call(soon, cc, sayMethod, ""); got.code != codes.ResourceExhausted || time.Since(start) != 0 {
			t.Errorf("%v after %v: its turn would come after the deadline", got.status, time.Since(start))
		}
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, leave)
		if got := call(left, cc, sayMethod, ""); got.code != codes.Canceled {
			t.Errorf("%v", got.status)
		}
		synctest.Wait()
		if got := call(t.Context(), cc, sayMethod, ""); got.code != codes.OK || time.Since(start) != time.Second {
			t.Errorf("%v after %v: who has left has not given back the turn", got.status, time.Since(start))
		}
	})
}

// Calls count by how they end.
func TestOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		rule   string
		orders []string
		left   string // of 10
	}{
		"by code":                  {"count: {status: [401, 403]}", []string{"", "code 16", "code 7", "code 5", "code 13"}, "r=8"},
		"by class":                 {"count: {status: [5xx]}", []string{"", "code 13", "code 14", "code 2", "code 4", "code 12", "code 15", "code 3"}, "r=4"},
		"a panic is not known":     {"count: {status: [401]}", []string{"panic", ""}, "r=9"},
		"unless":                   {"count: {unless_header: X-Free}", []string{"header x-free 1", "trailer x-free yes", ""}, "r=9"},
		"the handler knows better": {"count: {status: [200]}", []string{"settle", ""}, "r=9"},
		"cost of a header":         {"cost: {response_header: X-Cost, max: 100}", []string{"header x-cost 4", "trailer x-cost 2", "trailer x-cost 0"}, "r=4"},
		"cost of bytes":            {"cost: {response_bytes: 10}", []string{"settle 567890123456789012345678901"}, "r=6"}, // 2 and 34 bytes
	} {
		t.Run(name, func(t *testing.T) {
			cc := loopback(t, grpclimit.Policy(engine(t, `rules: [{name: calls, match: /test.Echo/, algorithm: fixed_window, limit: 10/day, `+c.rule+`}]`)))
			for _, order := range c.orders {
				call(t.Context(), cc, sayMethod, order)
			}
			last := call(t.Context(), cc, sayMethod, "") // itself is one of those that are counted before they end
			n, _ := strconv.Atoi(strings.TrimPrefix(c.left, "r="))
			if got := strings.Join(last.header.Get("ratelimit"), ""); !strings.Contains(got, fmt.Sprintf("r=%d;", n-1)) {
				t.Errorf("%s, and r=%d was to be left", got, n-1)
			}
		})
	}
}

// Streams count by how they end, too. A client that leaves has seen no end of it.
func TestOutcomeOfStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(engine(t, `rules: [{name: failed, algorithm: fixed_window, limit: 10/day, count: {status: [401]}}]`)))
		if code := talkOnce(t, cc); code != codes.OK {
			t.Fatal(code)
		}
		if code := exchange(open(t, t.Context(), cc), "code 16"); code != codes.Unauthenticated {
			t.Fatal(code)
		}
		ctx, leave := context.WithCancel(t.Context())
		stream := open(t, ctx, cc)
		if exchange(stream, "hello") != codes.OK {
			t.Fatal("the stream does not answer")
		}
		_ = stream.SendMsg(wrapperspb.String("wait"))
		synctest.Wait()
		leave()
		synctest.Wait()
		// The one that was refused by the handler and the one that was left count, and the one that asks.
		if got := call(t.Context(), cc, sayMethod, "").header.Get("ratelimit")[0]; !strings.Contains(got, "r=7;") {
			t.Errorf("%s, and r=7 was to be left", got)
		}
	})
}
