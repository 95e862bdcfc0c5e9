package checkapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const historyRules = `
trusted_proxies: [10.0.0.0/8]
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
  - {name: files, match: "/files/{name}", key: ["query:user", route], missing: refuse, limit: 9/minute, algorithm: fixed_window}
  - {name: hosts, hosts: ["*.example.com"], key: [host, method], limit: 25/minute, algorithm: sliding_window_counter}
  - {name: guesses, match: POST /guess, key: [client_ip], limit: 5/minute, count: {status: [401]}}
  - {name: seen, key: ["cookie:s"], limit: 2/minute, shadow: true}
`

// gatewayRequest is a request, once as it is sent and once as a check describes it.
type gatewayRequest struct {
	method, target, host, client, body string
	fields                             []string // "Name: value"
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomRequest(r *rand.Rand) gatewayRequest {
	if r.IntN(2) == 0 { // one of the few whose counts fill up
		return gatewayRequest{method: "POST", target: pick(r, "/login", "/guess", "/"), host: "a.example.com", client: "192.0.2.1",
			fields: []string{pick(r, "X-API-Key: k-1", "X-Plan: pro")}, body: "username=alice"}
	}
	q := gatewayRequest{
		method: pick(r, "GET", "GET", "POST", "POST", "OPTIONS", "PUT", "CONNECT", "A(B"),
		target: pick(r, "/", "/health", "/login", "/login", "/guess", "/LOGIN", "//login", "/a/../login", "/%6cogin", "/login;x=1", "/files/a?user=1", "/files/b?user=2&user=3",
			"/files/c", "/files/%2e%2e?user=a%20b", "/files/d?user=\xc3\xa9", "/\xc3\xa9", "/a#b", "/%zz", "/?a=%zz", "*", "login", "/a\x01", "/a?b?c", "/a?", "/a\"<>`{}|^"),
		host:   pick(r, "example.com", "a.example.com", "B.Example.com:8080", "a..example.com", "[2001:db8::1]:80", "[fe80::1%25x]", "a:80:80", "127.0.0.1"),
		client: pick(r, "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "10.0.0.1", "203.0.113.5", "::ffff:192.0.2.1"),
	}
	for _, f := range []string{"X-API-Key: k-1", "X-API-Key:  k-2\t", "authorization: Bearer k-1", "X-Plan: pro", "Cookie: s=1; t=2", "Accept: text/html, text/plain;q=0.5",
		"X-Forwarded-For: 192.0.2.9, 10.0.0.2", "Origin: https://app.example.com", "Access-Control-Request-Method: PUT", "X-Odd: \xc3\xbf", "X-Empty:"} {
		if r.IntN(5) == 0 {
			q.fields = append(q.fields, f)
		}
	}
	if q.method == "POST" {
		q.body = pick(r, "username=alice", "username=%C3%81lice", `{"username":"bob"}`, `{"username":"bob"`, "", "username=a&username=b", "\xff\xfe", strings.Repeat("x", 70<<10))
	}
	return q
}

// parse reads the request as a server does. It is nil if a server answers it by itself.
func (q *gatewayRequest) parse() *http.Request {
	head := q.method + " " + q.target + " HTTP/1.1\r\nHost: " + q.host + "\r\n" + strings.Join(append(q.fields, ""), "\r\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(q.body), q.body))))
	if err != nil {
		return nil
	}
	r.RemoteAddr = net.JoinHostPort(q.client, "1234")
	return r
}

func (q *gatewayRequest) describe() string {
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
	if q.method == "POST" { // rules that need none are asked first where there is one
		request["body_base64"] = []byte(q.body)
	}
	text, _ := json.Marshal(request)
	return string(text)
}

// The same history through the gateway's middleware and through the API: the same decisions, fields
// and bodies.
func TestSameAsGateway(t *testing.T) {
	seed := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		passed := 0 // the status of the handler, if the request has reached it
		handler := func(w http.ResponseWriter, _ *http.Request) {
			passed = pick(r, 200, 401)
			w.WriteHeader(passed)
		}
		gate := httplimit.Policy(policy.NewEngine(memory.New(), compile(t, historyRules)))(http.HandlerFunc(handler))
		api := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), compile(t, historyRules))})
		statuses := map[int]int{}
		for range 4000 {
			time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
			q := randomRequest(r)
			want := httptest.NewRecorder()
			passed = 0
			if parsed := q.parse(); parsed != nil {
				gate.ServeHTTP(want, parsed)
			} else {
				want.Code = http.StatusBadRequest
			}
			got := q.ask(t, api)
			statuses[got.Status]++
			if got.Allowed != (passed != 0) || !got.Allowed && got.Status != want.Code {
				t.Fatalf("%+v: %d, and by the gateway %d %s", q, got.Status, want.Code, want.Body)
			}
			if passed != 0 {
				q.settle(t, api, passed)
			}
			if body := want.Body.String(); want.Code == http.StatusBadRequest && !strings.Contains(body, "lacks") && !strings.Contains(body, "more than one way") {
				if got.Headers["Ratelimit"] != "" {
					t.Fatalf("%+v was counted, and a server refuses it unread: %+v", q, got)
				}
				continue
			}
			fields := map[string]string{}
			for name, values := range want.Header() {
				if name != "Content-Length" && name != "Connection" {
					fields[name] = strings.Join(values, ", ")
				}
			}
			if !maps.Equal(fields, got.Headers) || got.Body != want.Body.String() {
				t.Fatalf("%+v:\n%v\n%s\nand by the gateway\n%v\n%s", q, got.Headers, got.Body, fields, want.Body)
			}
		}
		for _, status := range []int{200, 400, 403, 429} {
			if statuses[status] < 30 {
				t.Errorf("of 4000 requests, %v: too few to tell", statuses)
			}
		}
	})
}

func (q *gatewayRequest) ask(t *testing.T, api http.Handler) (a answer) {
	t.Helper()
	if err := json.Unmarshal(call(t, api, "/v1/check", `{"request": `+q.describe()+"}"), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// answer is what the API says about a check.
type answer struct {
	Allowed bool
	Status  int
	Headers map[string]string
	Body    string
}

func (q *gatewayRequest) settle(t *testing.T, api http.Handler, status int) {
	t.Helper()
	call(t, api, "/v1/settle", fmt.Sprintf(`{"request": %s, "outcome": {"status": %d}}`, q.describe(), status))
}

func call(t *testing.T, api http.Handler, path, body string) []byte {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s %s: %d %s", path, body, w.Code, w.Body)
	}
	return w.Body.Bytes()
}
