package checkgrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const rules = `
version: 1
trusted_proxies: [10.0.0.1]
answers: {403: {status: 418, headers: {X-Support: "yes"}}}
rules:
  - {name: per-address, key: [client_ip], limit: 30/hour}
  - {name: per-key, key: [api_key], missing: skip, limits: [5/hour, 9/day]}
  - {name: login, match: POST /login, key: [body:username], limit: 2/hour}
  - {name: tenant, match: /tenant/, key: [header:X-Tenant], missing: refuse, limit: 3/hour}
  - {name: closed, match: /closed, block: true}
  - {name: open, match: /open, exempt: true}
  - {name: dear, match: /dear, limit: 1/hour, cost: {header: X-Cost, max: 9}}
  - {name: seen, match: /seen, limit: 1/hour, shadow: true}
  - {name: queue, match: /queue, limit: 1/second burst 3, algorithm: leaky_bucket}
`

func newEngine(t *testing.T) *policy.Engine {
	t.Helper()
	p, err := policyfile.Parse("test.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}

// serve serves the API until the test ends.
func serve(t *testing.T, c Config) ChecksClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	Register(server, c)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	cc, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return NewChecksClient(cc)
}

func about(method, path string, headers ...string) *CheckRequest {
	r := &HttpRequest{Method: method, Host: "example.com", Path: path, Client: "192.0.2.1"}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, &Header{Name: headers[i], Value: headers[i+1]})
	}
	return &CheckRequest{About: &CheckRequest_Request{Request: r}}
}

func subject(rule, part, value string) *CheckRequest {
	return &CheckRequest{About: &CheckRequest_Subject{Subject: &Subject{Rule: rule, Key: map[string]string{part: value}}}}
}

// A history of requests is answered as the middleware answers it, by calls and by batches, with time
// standing still.
func TestLikeHTTP(t *testing.T) {
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 1))
	synctest.Test(t, func(t *testing.T) {
		door := httplimit.Policy(newEngine(t))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		calls, stream := serve(t, Config{Engine: newEngine(t)}), open(t, serve(t, Config{Engine: newEngine(t)}))
		for range 40 {
			batch := make([]*CheckRequest, 1+random.IntN(20))
			for i := range batch {
				batch[i] = anyRequest(random)
			}
			if err := stream.Send(&CheckBatch{Checks: batch}); err != nil {
				t.Fatal(err)
			}
			answers, err := stream.Recv()
			if err != nil || len(answers.Answers) != len(batch) {
				t.Fatalf("%d answers for %d checks, %v", len(answers.GetAnswers()), len(batch), err)
			}
			for i, one := range batch {
				want := ask(door, one)
				single, err := calls.Check(t.Context(), one)
				if err != nil {
					t.Fatal(err)
				}
				if got := said(single); got != want {
					t.Fatalf("%v\nby a call: %s\nby HTTP: %s", one, got, want)
				}
				if got := said(answers.Answers[i]); got != want {
					t.Fatalf("%v\nin a batch: %s\nby HTTP: %s", one, got, want)
				}
			}
			time.Sleep(time.Duration(random.IntN(10)) * time.Minute)
		}
	})
}

func anyRequest(random *rand.Rand) *CheckRequest {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	c := about(pick("GET", "POST"), pick("/", "/login", "/tenant/x?y=1", "/closed", "/open", "/dear", "/seen", "/a/../login", "//closed"))
	r := c.GetRequest()
	r.Client = pick("192.0.2.1", "192.0.2.2", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1")
	for name, values := range map[string][]string{
		"X-Forwarded-For": {"", "192.0.2.9", "6.6.6.6, 192.0.2.8"},
		"X-API-Key":       {"", "a", "b"},
		"x-tenant":        {"", "t"},
		"X-Cost":          {"", "9"},
		"Accept":          {"", "text/plain"},
	} {
		if v := pick(values...); v != "" {
			r.Headers = append(r.Headers, &Header{Name: name, Value: v})
		}
	}
	if r.Method == "POST" {
		r.Body = []byte(pick("", "username=alice", `{"username": "bob"}`, "username=a&username=b"))
	}
	return c
}

// ask asks the middleware.
func ask(door http.Handler, c *CheckRequest) string {
	in := c.GetRequest()
	r := httptest.NewRequest(in.Method, in.Path, strings.NewReader(string(in.Body)))
	r.Host, r.RemoteAddr = in.Host, net.JoinHostPort(in.Client, "4711")
	for _, h := range in.Headers {
		r.Header.Add(h.Name, h.Value)
	}
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r)
	got := &CheckResponse{Allowed: w.Code == http.StatusOK, Status: int32(w.Code), Body: w.Body.Bytes()}
	for name, values := range w.Header() {
		for _, v := range values {
			got.Headers = append(got.Headers, &Header{Name: name, Value: v})
		}
	}
	return said(got)
}

// said returns an answer as HTTP has it.
func said(a *CheckResponse) string {
	var lines []string
	for _, h := range a.Headers {
		if h.Name != "Content-Length" {
			lines = append(lines, h.Name+": "+h.Value)
		}
	}
	slices.Sort(lines)
	return fmt.Sprint(a.Allowed, a.Status, "\n", strings.Join(lines, "\n"), "\n", string(a.Body))
}

func open(t *testing.T, client ChecksClient) grpc.BidiStreamingClient[CheckBatch, CheckBatchResponse] {
	t.Helper()
	stream, err := client.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// Subjects are asked about, looked at and given back, and what is asked twice by one ID counts once.
func TestSubjectsModesAndIDs(t *testing.T) {
	client := serve(t, Config{Engine: newEngine(t)})
	for i, c := range []struct {
		cost      int64
		mode      Mode
		id        string
		allowed   bool
		remaining int64
		known     bool
	}{
		{0, Mode_MODE_CHARGE, "", true, 29, false},
		{19, Mode_MODE_CHARGE, "", true, 10, false},
		{11, Mode_MODE_PEEK, "", false, 10, false},
		{11, Mode_MODE_CHARGE, "", false, 10, false},
		{6, Mode_MODE_CHARGE, "one", true, 4, false},
		{6, Mode_MODE_CHARGE, "one", true, 4, true},
		{5, Mode_MODE_GIVE_BACK, "", true, 9, false},
		{9, Mode_MODE_PEEK, "", true, 9, false}, // nothing is taken
	} {
		in := subject("per-address", "client_ip", "192.0.2.1")
		in.Cost, in.Mode, in.Id = c.cost, c.mode, c.id
		got, err := client.Check(t.Context(), in)
		if err != nil || got.Allowed != c.allowed || got.Results[0].Remaining != c.remaining || got.Known != c.known || got.Results[0].Limit != 30 || got.Results[0].Rule != "per-address" {
			t.Errorf("%d: %v, %v", i, got, err)
		}
		if got.GetAllowed() != (got.GetRetryAfter() == nil) || got.GetStatus() != map[bool]int32{true: 200, false: 429}[c.allowed] {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// A queue's delay is told, and not waited for.
func TestDelay(t *testing.T) {
	client := serve(t, Config{Engine: newEngine(t)})
	for i := range 3 {
		got, err := client.Check(t.Context(), about("GET", "/queue"))
		least, most := time.Duration(i-1)*time.Second, time.Duration(i)*time.Second
		if d := got.GetDelay().AsDuration(); err != nil || !got.Allowed || d > most || d < least {
			t.Errorf("%d: %v, %v", i, got, err)
		}
	}
}

// What is wrong with a question is said, nothing is charged for it, and others of its batch are answered.
func TestFaults(t *testing.T) {
	client := serve(t, Config{Engine: newEngine(t)})
	many := about("GET", "/")
	for range maxFields + 1 {
		many.GetRequest().Headers = append(many.GetRequest().Headers, &Header{Name: "A", Value: "b"})
	}
	wrong := map[string]*CheckRequest{
		"about nothing":                     {},
		"the cost is -1":                    {Cost: -1, About: about("GET", "/").About},
		"the cost is 9223372036854775807":   {Cost: 1<<63 - 1, About: about("GET", "/").About},
		"no mode 7":                         {Mode: 7, About: about("GET", "/").About},
		"id is longer":                      {Id: strings.Repeat("x", 257), About: about("GET", "/").About},
		"none":                              subject("none", "client_ip", "192.0.2.1"),
		"client_ip":                         subject("per-address", "client_ip", "nobody"),
		"more than 256":                     many,
		`the client "nobody" is no address`: {About: &CheckRequest_Request{Request: &HttpRequest{Path: "/", Client: "nobody"}}},
	}
	batch := &CheckBatch{}
	var texts []string
	for text, one := range wrong {
		if _, err := client.Check(t.Context(), one); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
		batch.Checks, texts = append(batch.Checks, one), append(texts, text)
	}
	batch.Checks = append(batch.Checks, about("GET", "/"))
	stream := open(t, client)
	_ = stream.Send(batch) // its error comes with the answer
	answers, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if got := answers.Answers[i]; !strings.Contains(got.Error, text) || got.Allowed {
			t.Errorf("%q: %v", text, got)
		}
	}
	if last := answers.Answers[len(texts)]; !last.Allowed || last.Results[0].Remaining != 29 {
		t.Errorf("%v", last)
	}
	for _, path := range []string{"", "x", "/ ", "/%zz", "http://a/", "/#a"} {
		if got, err := client.Check(t.Context(), about("GET", path)); err != nil || got.Status != 400 || got.Allowed {
			t.Errorf("%q: %v, %v", path, got, err)
		}
	}
	for _, odd := range []*CheckRequest{about("CONNECT", "/"), about("G T", "/"), about("GET", "/", "A b", "c"), about("GET", "/", "A", "b\nc"), about("GET", "/", "Host", "other")} {
		if got, err := client.Check(t.Context(), odd); err != nil || got.Status != 400 {
			t.Errorf("%v: %v, %v", odd, got, err)
		}
	}
}

func TestBatchesAreBounded(t *testing.T) {
	client := serve(t, Config{Engine: newEngine(t)})
	for n, want := range map[int]codes.Code{0: codes.OK, maxChecks: codes.OK, maxChecks + 1: codes.InvalidArgument} {
		stream := open(t, client)
		batch := &CheckBatch{}
		for i := range n {
			batch.Checks = append(batch.Checks, subject("per-key", "api_key", fmt.Sprint(i)))
		}
		_ = stream.Send(batch)
		answers, err := stream.Recv()
		if status.Code(err) != want || err == nil && len(answers.Answers) != n {
			t.Errorf("%d checks: %d answers, %v", n, len(answers.GetAnswers()), err)
		}
	}
	// A stream that its client closes ends well.
	stream := open(t, client)
	_ = stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
}

// A panic while it decides ends the call, and not the process.
func TestPanic(t *testing.T) {
	engine := newEngine(t)
	var broken atomic.Bool
	broken.Store(true)
	engine.Observe(func(context.Context, *policy.Observation) {
		if broken.Load() {
			panic("broken")
		}
	})
	client := serve(t, Config{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	if _, err := client.Check(t.Context(), about("GET", "/")); status.Code(err) != codes.Internal {
		t.Errorf("a call: %v", err)
	}
	stream := open(t, client)
	_ = stream.Send(&CheckBatch{Checks: []*CheckRequest{about("GET", "/"), about("GET", "/")}})
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("a stream: %v", err)
	}
	broken.Store(false)
	if out, err := client.Check(t.Context(), about("GET", "/")); err != nil || !out.Allowed {
		t.Errorf("the next one: %v, %v", out, err)
	}
}

func TestWhoMayAsk(t *testing.T) {
	client := serve(t, Config{Engine: newEngine(t), Authorize: isSecret})
	for header, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "secret": codes.Unauthenticated, "Basic secret": codes.Unauthenticated,
		"Bearer other": codes.Unauthenticated, "Bearer secret": codes.OK, "bearer  secret": codes.OK,
	} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		if _, err := client.Check(ctx, about("GET", "/")); status.Code(err) != want {
			t.Errorf("%q: %v", header, err)
		}
		for name, call := range map[string]func() error{
			"Hold":    func() error { _, err := client.Hold(ctx, &Place{Place: "x"}); return err },
			"Release": func() error { _, err := client.Release(ctx, &Place{Place: "x"}); return err },
		} {
			if err := call(); (status.Code(err) == codes.Unauthenticated) != (want == codes.Unauthenticated) {
				t.Errorf("%q: %s says %v", header, name, err)
			}
		}
		if err := firstOf(ctx, client); status.Code(err) != want {
			t.Errorf("%q: the stream says %v", header, err)
		}
	}
}

func firstOf(ctx context.Context, client ChecksClient) error {
	stream, err := client.CheckStream(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&CheckBatch{})
	_, err = stream.Recv()
	return err
}

// FuzzCheck: whatever is asked, there is an answer or a fault, and it can be sent.
func FuzzCheck(f *testing.F) {
	f.Add("GET", "example.com", "/login?x=1", "X-Tenant", "a", "192.0.2.1", "per-address", "client_ip", "192.0.2.1", int64(1), int32(0), []byte("username=a"))
	f.Add("", "[::1]:80", "//a/%2f", "Host", "\xff", "::1", "login", "body:username", "\xff", int64(-1), int32(9), []byte(nil))
	p, err := policyfile.Parse("test.yaml", []byte(rules))
	if err != nil {
		f.Fatal(err)
	}
	s := &service{Config: Config{Engine: policy.NewEngine(memory.New(), p)}, encoder: answer.Encoder{}}
	f.Fuzz(func(t *testing.T, method, host, path, name, value, client, rule, part, key string, cost int64, mode int32, body []byte) {
		request := about(method, path, name, value)
		r := request.GetRequest()
		r.Host, r.Client, r.Body = host, client, body
		of := subject(rule, part, key)
		for _, one := range []*CheckRequest{request, of} {
			one.Cost, one.Mode = cost, Mode(mode)
		}
		for _, got := range s.decide(t.Context(), []*CheckRequest{request, of}) {
			if (got.Error == "") != (got.Status != 0) || got.Allowed && got.Status != 200 {
				t.Errorf("%v", got)
			}
		}
	})
}

func isSecret(_, token string) error {
	if token != "secret" {
		return errors.New("another token")
	}
	return nil
}
