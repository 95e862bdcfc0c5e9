package doors

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/checkgrpc"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// everyRules count alike whatever brings the user: a field of a request, or an attribute. Nothing
// comes back while a test runs.
const everyRules = `
version: 1
rules:
  - {name: user, key: ["header:X-User"], missing: skip, limits: [40/day burst 12, 300/30d burst 25], cost: {header: X-Cost, max: 50}}
  - {name: user-attribute, key: ["attr:user"], missing: skip, limits: [40/day burst 12, 300/30d burst 25]}
`

// verdict is what a door says.
type verdict struct {
	allowed   bool
	remaining int64
	retry     int64 // seconds, if not allowed; -1 is never
}

// everyDoor is a way to ask.
type everyDoor struct {
	name string
	ask  func(t *testing.T, user string, cost int64) verdict
	peek func(t *testing.T, user string, cost int64) verdict // nil: it cannot
}

// fieldsVerdict reads the fields that doors of HTTP have in common.
func fieldsVerdict(t *testing.T, allowed bool, h http.Header) (v verdict) {
	t.Helper()
	if h.Get("X-RateLimit-Remaining") == "" {
		t.Fatalf("allowed: %v, and nothing is said of what is left: %v", allowed, h)
	}
	v.allowed, v.remaining = allowed, number(t, h.Get("X-RateLimit-Remaining"))
	if !allowed {
		v.retry = -1
		if text := h.Get("Retry-After"); text != "" {
			v.retry = number(t, text)
		}
	}
	return v
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// byHTTP asks as a client does, for a status of success or refusal.
func byHTTP(url string, refused int, header ...string) func(*testing.T, string, int64) verdict {
	return func(t *testing.T, user string, cost int64) verdict {
		t.Helper()
		got := ask(t, "GET", url, "", append(header, "X-User", user, "X-Cost", strconv.FormatInt(cost, 10))...)
		if got.status != http.StatusOK && got.status != refused {
			t.Fatalf("%s: %d %s", url, got.status, got.body)
		}
		return fieldsVerdict(t, got.status == http.StatusOK, got.header)
	}
}

// byCheck asks the JSON API, with a body that has a user and a cost.
func byCheck(url, body string) func(*testing.T, string, int64) verdict {
	return func(t *testing.T, user string, cost int64) verdict {
		t.Helper()
		text := strings.NewReplacer("USER", user, "COST", strconv.FormatInt(cost, 10)).Replace(body)
		got := ask(t, "POST", url, text, "Content-Type", "application/json")
		var a struct {
			Answers []json.RawMessage
			Allowed bool
			Headers map[string]string
		}
		err := json.Unmarshal([]byte(got.body), &a)
		if err == nil && a.Answers != nil {
			err = json.Unmarshal(a.Answers[0], &a)
		}
		if err != nil || got.status != http.StatusOK {
			t.Fatalf("%d %s: %v", got.status, got.body, err)
		}
		h := http.Header{}
		for name, value := range a.Headers {
			h.Set(name, value)
		}
		return fieldsVerdict(t, a.Allowed, h)
	}
}

// byDescriptor asks the rate limit service, as Envoy does.
func byDescriptor(t *testing.T, addr, user string, hits int64) (v verdict) {
	t.Helper()
	client := pb.NewRateLimitServiceClient(dialGRPC(t, addr))
	out, err := client.ShouldRateLimit(within(t), &pb.RateLimitRequest{Domain: "every", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}, HitsAddend: wrapperspb.UInt64(uint64(hits)),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s := out.GetStatuses()[0]
	v = verdict{allowed: out.GetOverallCode() == pb.RateLimitResponse_OK, remaining: int64(s.GetLimitRemaining())}
	if !v.allowed {
		v.retry = int64(s.GetDurationUntilReset().AsDuration().Round(time.Second) / time.Second)
	}
	return v
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dialGRPC(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// byInterceptor asks a service of gRPC.
func byInterceptor(t *testing.T, addr, user string, cost int64) verdict {
	t.Helper()
	var head, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(within(t), "x-user", user, "x-cost", strconv.FormatInt(cost, 10))
	_, err := healthpb.NewHealthClient(dialGRPC(t, addr)).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&head), grpc.Trailer(&trailer))
	if err != nil && grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	h := http.Header{}
	for name, values := range metadata.Join(head, trailer) {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if wait := h.Get("Grpc-Retry-Pushback-Ms"); wait != "" && wait != "-1" {
		h.Set("Retry-After", strconv.FormatInt((number(t, wait)+999)/1000, 10))
	}
	return fieldsVerdict(t, err == nil, h)
}

// byStream asks the check API over gRPC, by a stream.
func byStream(t *testing.T, addr, user string, cost int64, mode checkgrpc.Mode) verdict {
	t.Helper()
	stream, err := checkgrpc.NewChecksClient(dialGRPC(t, addr)).CheckStream(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&checkgrpc.CheckBatch{Checks: []*checkgrpc.CheckRequest{{
		About: &checkgrpc.CheckRequest_Subject{Subject: &checkgrpc.Subject{Rule: "user", Key: map[string]string{"header:X-User": "stream-" + user}}},
		Cost:  cost, Mode: mode,
	}}}); err != nil {
		t.Fatal(err)
	}
	out, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	a, h := out.GetAnswers()[0], http.Header{}
	for _, f := range a.GetHeaders() {
		h.Add(f.GetName(), f.GetValue())
	}
	return fieldsVerdict(t, a.GetAllowed(), h)
}

// byRESP asks in the protocol of Redis, written by hand.
func byRESP(t *testing.T, addr string, args ...string) (v verdict) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(c, "$%d\r\n%s\r\n", len(a), a)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	var text strings.Builder
	if _, err := io.Copy(&text, bufio.NewReader(c)); err != nil {
		t.Fatal(err)
	}
	of := func(name string) int64 {
		m := regexp.MustCompile(`\b` + name + `\r\n:(-?\d+)\r\n`).FindStringSubmatch(text.String())
		if m == nil {
			t.Fatalf("%q has no %s", &text, name)
		}
		return number(t, m[1])
	}
	v = verdict{allowed: of("allowed") == 1, remaining: of("remaining")}
	if !v.allowed {
		v.retry = of("retry_after")
	}
	return v
}

// haproxy runs HAProxy by the example in deploy/.
func haproxy(t *testing.T, agent, backend string) (url string) {
	t.Helper()
	addr := testkit.Addr(t)
	messages := write(t, "spoe-sluice.conf", example(t, "haproxy/spoe-sluice.conf"))
	config := write(t, "haproxy.cfg", example(t, "haproxy/haproxy.cfg", "/etc/haproxy/spoe-sluice.conf", messages,
		"127.0.0.1:8000", addr, "127.0.0.1:9000", agent, "127.0.0.1:3000", backend))
	run(t, command(testkit.Program(t, "haproxy"), "-db", "-f", config), addr, func() string { return "" })
	return "http://" + addr
}

func engineOf(t *testing.T, document string) *policy.Engine {
	t.Helper()
	p, err := policyfile.Parse("test.yaml", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}

// everyDoors opens them all. Each has counts of its own, or asks for users of its own.
func everyDoors(t *testing.T) []everyDoor {
	t.Helper()
	server := backend(t)
	rls, resp, spoe, gateway := testkit.Addr(t), testkit.Addr(t), testkit.Addr(t), testkit.Addr(t)
	l := limit(t, everyRules, "--grpc", rls, "--resp", resp,
		"--upstream", "http://"+server, "--proxy", gateway, "--auth", "nginx,caddy,traefik,envoy")
	limit(t, everyRules, "--spoe", spoe)
	of := func(name string) *limiter { return limit(t, everyRules, "--auth", name) }
	check := "http://" + l.addr + "/v1/check"

	library := httptest.NewServer(httplimit.Policy(engineOf(t, everyRules))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Backend", "yes")
		_, _ = io.WriteString(w, "{}")
	})))
	t.Cleanup(library.Close)
	service := grpc.NewServer(grpclimit.Policy(engineOf(t, everyRules)).Options()...)
	healthpb.RegisterHealthServer(service, health.NewServer())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = service.Serve(socket) }()
	t.Cleanup(service.Stop)

	subject := func(kind string) string {
		return `{"rule": "user", "key": {"header:X-User": "` + kind + `-USER"}, "cost": COST`
	}
	request := `{"request": {"method": "GET", "path": "/", "client": "192.0.2.1", "headers": {"X-User": "request-USER"}}, "cost": COST`
	return []everyDoor{
		{name: "httplimit", ask: byHTTP(library.URL, 429)},
		{name: "gateway", ask: byHTTP("http://"+gateway, 429)},
		{
			name: "check, a request", ask: byCheck(check, request+`}`),
			peek: byCheck(check, request+`, "peek": true}`),
		},
		{
			name: "check, a rule", ask: byCheck(check, subject("rule")+`}`),
			peek: byCheck("http://"+l.addr+"/v1/peek", subject("rule")+`}`),
		},
		{name: "check, a list", ask: byCheck(check, `{"checks": [`+subject("list")+`}]}`)},
		{name: "auth request of nginx", ask: byHTTP("http://"+of("nginx").addr+"/auth/nginx", 403, "X-Original-URI", "/", "X-Original-Method", "GET", "X-Real-IP", "192.0.2.1", "X-Original-Host", "a.example")},
		{name: "nginx", ask: byHTTP(nginxExample("nginx/auth-request.conf")(t, of("nginx+id").addr, server), 429)},
		{name: "nginx with X-Accel-Redirect", ask: byHTTP(nginxExample("nginx/accel.conf")(t, of("nginx-accel+body+id").addr, server), 429)},
		{name: "Caddy", ask: byHTTP(caddy(t, of("caddy+id").addr, server), 429)},
		{name: "Traefik's question", ask: byHTTP("http://"+of("traefik").addr+"/auth/traefik", 429, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "a.example", "X-Forwarded-Proto", "http", "X-Forwarded-For", "192.0.2.1")},
		{name: "Envoy's question", ask: byHTTP("http://"+of("envoy").addr+"/auth/envoy/", 429, "X-Sluice-Client", "192.0.2.1")},
		{name: "HAProxy", ask: byHTTP(haproxy(t, spoe, server), 429)},
		{
			name: "Envoy's rate limit service",
			ask:  func(t *testing.T, user string, cost int64) verdict { return byDescriptor(t, rls, user, cost) },
		},
		{
			name: "check over gRPC",
			ask: func(t *testing.T, user string, cost int64) verdict {
				return byStream(t, rls, user, cost, checkgrpc.Mode_MODE_CHARGE)
			},
			peek: func(t *testing.T, user string, cost int64) verdict {
				return byStream(t, rls, user, cost, checkgrpc.Mode_MODE_PEEK)
			},
		},
		{name: "grpclimit", ask: func(t *testing.T, user string, cost int64) verdict {
			return byInterceptor(t, socket.Addr().String(), user, cost)
		}},
		{
			name: "the protocol of Redis",
			ask: func(t *testing.T, user string, cost int64) verdict {
				return byRESP(t, resp, "SLUICE.CHECK", "user", "header:X-User", "resp-"+user, "COST", strconv.FormatInt(cost, 10))
			},
			peek: func(t *testing.T, user string, cost int64) verdict {
				return byRESP(t, resp, "SLUICE.PEEK", "user", "header:X-User", "resp-"+user, "COST", strconv.FormatInt(cost, 10))
			},
		},
	}
}

// One history through every door: each says what the first one says, of each request. Promises are
// as much shorter as they are made later.
func TestEveryDoor(t *testing.T) {
	t.Parallel()
	doors := everyDoors(t)
	seed := seed.Of(t)
	random, began := rand.New(rand.NewPCG(seed, 1)), time.Now()
	refused, asked := 0, ""
	defer func() { t.Logf("the last to be asked was %s", asked) }()
	for step := range 60 {
		user, cost := string("abcd"[random.IntN(4)]), 1+random.Int64N(5)
		if random.IntN(8) == 0 {
			cost = 13 // more than ever fits in a day
		}
		var first verdict
		for i, d := range doors {
			asked = d.name
			if d.peek != nil {
				d.peek(t, user, cost)
			}
			got := d.ask(t, user, cost)
			if i == 0 {
				first = got
			}
			aged := int64(time.Since(began)/time.Second) + 1
			if got.allowed != first.allowed || got.remaining != first.remaining || max(got.retry-first.retry, first.retry-got.retry) > aged {
				t.Fatalf("seed %d, step %d: %d of %s: %s says %+v, and %s %+v", seed, step, cost, user, doors[0].name, first, d.name, got)
			}
		}
		if !first.allowed {
			refused++
		}
	}
	if refused < 5 || refused > 55 {
		t.Errorf("seed %d: %d of 60 are refused, which says little", seed, refused)
	}
}

// Descriptors have no path: rules that match one are not theirs, whatever else they need.
func TestDescriptorsHaveNoPath(t *testing.T) {
	t.Parallel()
	addr := testkit.Addr(t)
	limit(t, `
version: 1
rules:
  - {name: login, match: POST /login, key: ["body:user"], limit: 1/day}
  - {name: user, key: ["attr:user"], limit: 3/day}
`, "--grpc", addr)
	for i := range int64(3) {
		if got := byDescriptor(t, addr, "a", 1); !got.allowed || got.remaining != 2-i {
			t.Errorf("descriptor %d: %+v", i, got)
		}
	}
	if got := byDescriptor(t, addr, "a", 1); got.allowed {
		t.Errorf("the fourth: %+v", got)
	}
}
