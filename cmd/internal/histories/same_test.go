package histories

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
	"github.com/sluicehq/sluice/cmd/internal/door/checkgrpc"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/policy"
)

const sameRules = `
version: 1
trusted_proxies: [10.0.0.0/8]
body_limit: 64KiB
cors: {origins: ["https://app.example.com"], preflights: exempt}
tiers: {from: header:X-Plan, default: free}
lists:
  bad: [203.0.113.0/24]
answers:
  "403": {body: "Go away.", type: text/plain, headers: {X-Why: list}}
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: spam, clients: [bad], block: true}
  - {name: per-address, key: [client_ip], limit: 30/minute burst 40, tiers: {pro: 50/minute}}
  - {name: per-key, key: [api_key], missing: skip, limits: [5/10s, 20/minute], penalty: 20s}
  - {name: login, match: POST /login, key: [client_ip, "body:username"], limit: 3/minute, algorithm: sliding_window_log}
  - {name: named, match: POST /login, body: {username: "al*"}, limit: 9/minute}
  - {name: files, match: "/files/{name}", key: ["query:user", route], missing: refuse, limit: 9/minute, algorithm: fixed_window}
  - {name: hosts, hosts: ["*.example.com"], key: [host, method], limit: 25/minute, algorithm: sliding_window_counter}
  - {name: guesses, match: POST /guess, key: [client_ip], limit: 5/minute, count: {status: [401]}}
  - {name: dear, match: /dear, limit: 3/minute, cost: {header: X-Cost, max: 9}}
  - {name: seen, key: ["cookie:s"], limit: 2/minute, shadow: true}
`

// described is a request that can be sent, and described to a check.
type described struct {
	method, target, host, client, body string
	fields                             []string // "Name: value"
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func anyRequest(r *rand.Rand) described {
	if r.IntN(2) == 0 { // one of a few requests that use up their limits
		return described{method: "POST", target: pick(r, "/login", "/guess", "/"), host: "a.example.com", client: "192.0.2.1",
			fields: []string{pick(r, "X-API-Key: k-1", "X-Plan: pro")}, body: "username=alice"}
	}
	q := described{
		method: pick(r, "GET", "GET", "POST", "POST", "OPTIONS", "PUT", "CONNECT", "A(B"),
		target: pick(r, "/", "/health", "/login", "/login", "/guess", "/LOGIN", "//login", "/a/../login", "/%6cogin", "/login;x=1", "/dear", "/files/a?user=1", "/files/b?user=2&user=3",
			"/files/c", "/files/%2e%2e?user=a%20b", "/files/d?user=\xc3\xa9", "/\xc3\xa9", "/a#b", "/%zz", "/?a=%zz", "*", "login", "/a\x01", "/a?b?c", "/a?", "/a\"<>`{}|^"),
		host:   pick(r, "example.com", "a.example.com", "B.Example.com:8080", "a..example.com", "[2001:db8::1]:80", "[fe80::1%25x]", "a:80:80", "127.0.0.1"),
		client: pick(r, "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "10.0.0.1", "203.0.113.5", "::ffff:192.0.2.1"),
	}
	for _, f := range []string{"X-API-Key: k-1", "X-API-Key:  k-2\t", "authorization: Bearer k-1", "X-Plan: pro", "Cookie: s=1; t=2", "Accept: text/html, text/plain;q=0.5",
		"X-Forwarded-For: 192.0.2.9, 10.0.0.2", "Origin: https://app.example.com", "Access-Control-Request-Method: PUT", "X-Odd: \xc3\xbf", "X-Empty:", "X-Cost: 2"} {
		if r.IntN(5) == 0 {
			q.fields = append(q.fields, f)
		}
	}
	if q.method == "POST" {
		q.body = pick(r, "username=alice", "username=%C3%81lice", `{"username":"bob"}`, `{"username":"bob"`, "", "username=a&username=b", "\xff\xfe", strings.Repeat("x", 70<<10))
	}
	return q
}

// parse returns the request as a server reads it, or nil if a server would refuse it.
func (q *described) parse() *http.Request {
	head := q.method + " " + q.target + " HTTP/1.1\r\nHost: " + q.host + "\r\n" + strings.Join(append(q.fields, ""), "\r\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(q.body), q.body))))
	if err != nil {
		return nil
	}
	r.RemoteAddr = net.JoinHostPort(q.client, "1234")
	return r
}

func (q *described) describe() string {
	headers := map[string]any{}
	for _, f := range q.fields {
		name, value, _ := strings.Cut(f, ":")
		if before, twice := headers[name].(string); twice {
			headers[name] = []string{before, value}
		} else {
			headers[name] = value
		}
	}
	request := map[string]any{"method": q.method, "path": q.target, "host": q.host, "client": q.client, "headers": headers}
	if q.method == "POST" { // with a body, rules that do not read it are decided first
		request["body_base64"] = []byte(q.body)
	}
	text, _ := json.Marshal(request)
	return string(text)
}

// same has the interfaces that decide about the same requests. The middleware, the JSON API and gRPC count separately.
// The handler besideGRPC settles the requests of gRPC.
type same struct {
	*player
	random           *rand.Rand
	passed           int // the status of the handler behind the middleware; 0 if the request has not reached it
	middleware       http.Handler
	json, besideGRPC http.Handler
	calls            checkgrpc.ChecksClient
	batches          grpc.BidiStreamingClient[checkgrpc.CheckBatch, checkgrpc.CheckBatchResponse]
	statuses         map[int]int
}

// The middleware, the JSON API, and calls and batches of gRPC return the same decisions, fields and bodies for the same
// requests.
func TestSame(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		p := &player{T: t, at: "same"}
		s := &same{player: p, random: rand.New(rand.NewPCG(seed, 0)), statuses: make(map[int]int)}
		engine := func() *policy.Engine { return policytest.Engine(t, sameRules) }
		handler := func(w http.ResponseWriter, _ *http.Request) {
			s.passed = pick(s.random, 200, 401)
			w.WriteHeader(s.passed)
		}
		s.middleware = httplimit.Policy(engine())(http.HandlerFunc(handler))
		s.json = checkapi.Handler(door.Config{Engine: engine()})
		shared := engine()
		s.besideGRPC = checkapi.Handler(door.Config{Engine: shared})
		conn := p.serveGRPC(func(server *grpc.Server) { checkgrpc.Register(server, door.Config{Engine: shared}) })
		s.calls = checkgrpc.NewChecksClient(conn)
		var err error
		if s.batches, err = s.calls.CheckStream(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 800 {
			s.round(1 + s.random.IntN(9))
			time.Sleep(time.Duration(s.random.IntN(5000)) * time.Millisecond)
		}
		for _, status := range []int{200, 400, 403, 429} {
			if s.statuses[status] < 30 {
				t.Errorf("statuses after 800 rounds: %v, want at least 30 of each", s.statuses)
			}
		}
	})
}

// round sends n requests at the same time. gRPC gets them as a batch, unless one of them goes to /guess: its outcome
// has to be settled before the next request.
func (s *same) round(n int) {
	var all []described
	batch := &checkgrpc.CheckBatch{}
	for range n {
		q := anyRequest(s.random)
		all = append(all, q)
		batch.Checks = append(batch.Checks, q.message())
	}
	var answers []*checkgrpc.CheckResponse
	if !slices.ContainsFunc(all, func(q described) bool { return q.target == "/guess" }) {
		if err := s.batches.Send(batch); err != nil {
			s.Fatal(err)
		}
		out, err := s.batches.Recv()
		if err != nil || len(out.Answers) != n {
			s.Fatalf("%d answers for %d checks, %v", len(out.GetAnswers()), n, err)
		}
		answers = out.Answers
	}
	for i, q := range all {
		want := s.ask(q)
		s.statuses[want.Status]++
		s.compare(q, want, "the JSON API returns", s.check(q))
		if answers == nil {
			one, err := s.calls.Check(s.Context(), batch.Checks[i])
			if err != nil {
				s.Fatal(err)
			}
			s.compare(q, want, "a call of gRPC returns", answerOf(one))
		} else {
			s.compare(q, want, "a batch of gRPC returns", answerOf(answers[i]))
		}
		if want.Allowed {
			settlement := fmt.Sprintf(`{"request": %s, "outcome": {"status": %d}}`, q.describe(), s.passed)
			s.post(s.json, "/v1/settle", settlement)
			s.post(s.besideGRPC, "/v1/settle", settlement)
		}
	}
}

// sameAnswer is the answer of an integration.
type sameAnswer struct {
	Allowed bool
	Status  int
	Headers map[string]string
	Body    string
	unread  bool // the server refuses the request before a decision
}

// ask asks the middleware.
func (s *same) ask(q described) (a sameAnswer) {
	w := httptest.NewRecorder()
	s.passed = 0
	if r := q.parse(); r != nil {
		s.middleware.ServeHTTP(w, r)
	} else {
		w.Code = http.StatusBadRequest
	}
	a = sameAnswer{Allowed: s.passed != 0, Status: w.Code, Headers: map[string]string{}, Body: w.Body.String()}
	for name, values := range w.Header() {
		if name != "Content-Length" && name != "Connection" {
			a.Headers[name] = strings.Join(values, ", ")
		}
	}
	if a.Allowed {
		a.Status = http.StatusOK
	}
	a.unread = w.Code == http.StatusBadRequest && !strings.Contains(a.Body, "lacks") && !strings.Contains(a.Body, "more than one way")
	return a
}

// check asks the JSON API.
func (s *same) check(q described) (a sameAnswer) {
	s.Helper()
	if err := json.Unmarshal(s.post(s.json, "/v1/check", `{"request": `+q.describe()+"}"), &a); err != nil {
		s.Fatal(err)
	}
	return a
}

// message describes a request for gRPC.
func (q *described) message() *checkgrpc.CheckRequest {
	r := &checkgrpc.HttpRequest{Method: q.method, Host: q.host, Path: q.target, Client: q.client}
	for _, f := range q.fields {
		name, value, _ := strings.Cut(f, ":")
		r.Headers = append(r.Headers, &checkgrpc.Header{Name: name, Value: strings.Trim(value, " \t")})
	}
	if q.method == "POST" {
		r.Body = []byte(q.body)
	}
	return &checkgrpc.CheckRequest{About: &checkgrpc.CheckRequest_Request{Request: r}}
}

func answerOf(out *checkgrpc.CheckResponse) sameAnswer {
	a := sameAnswer{Allowed: out.Allowed, Status: int(out.Status), Headers: map[string]string{}, Body: string(out.Body)}
	for _, h := range out.Headers {
		if before, twice := a.Headers[h.Name]; twice {
			h.Value = before + ", " + h.Value
		}
		a.Headers[h.Name] = h.Value
	}
	return a
}

func (s *same) compare(q described, want sameAnswer, how string, got sameAnswer) {
	s.Helper()
	switch {
	case got.Allowed != want.Allowed || got.Status != want.Status:
		s.Fatalf("%+v: %s %d, and the middleware returns %d %s", q, how, got.Status, want.Status, want.Body)
	case want.unread && got.Headers["Ratelimit"] != "":
		s.Fatalf("%+v was counted, although a server refuses it before a decision: %s %+v", q, how, got)
	case !want.unread && (!maps.Equal(got.Headers, want.Headers) || got.Body != want.Body):
		s.Fatalf("%+v: %s\n%v\n%s\nand the middleware\n%v\n%s", q, how, got.Headers, got.Body, want.Headers, want.Body)
	}
}
