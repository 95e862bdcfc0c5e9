package checkapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/apitest"
	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const testRules = `
version: 1
trusted_proxies: [10.0.0.0/8]
cors: {origins: ["https://app.example.com"]}
lists:
  bad: [203.0.113.0/24]
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: spam, clients: [bad], block: true}
  - {name: per-address, key: [client_ip], limit: 200/day}
  - {name: per-key, key: [api_key], missing: skip, limit: 100/day burst 20}
  - {name: login, match: POST /login, key: [client_ip, "body:username"], limits: [5/minute, 20/hour], algorithm: fixed_window}
  - {name: files, match: /files/, key: ["query:user"], missing: refuse, limit: 10/minute}
  - {name: turns, match: /queue, limit: 60/minute, algorithm: leaky_bucket}
  - {name: plan, attributes: {plan: trial}, key: ["attr:user"], limit: 3/hour}
  - {name: guesses, match: POST /guess, key: [client_ip], limit: 3/hour, count: {status: [401]}}
  - {name: seen, key: [host], limit: 1/day, shadow: true}
overrides:
  - {rule: per-key, key: {api_key: k-vip}, limit: 5000/minute, until: 2127-01-31}
`

func compile(t testing.TB, text string) *policy.Policy {
	t.Helper()
	doc, err := policyfile.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// server is an API whose every answer is held to the OpenAPI document.
type server struct {
	t      *testing.T
	url    string
	engine *policy.Engine
}

// start serves a policy, with what change makes of the configuration.
func start(t *testing.T, rules string, change func(*checkapi.Config)) *server {
	t.Helper()
	s := &server{t: t, engine: policy.NewEngine(memory.New(), compile(t, rules))}
	config := checkapi.Config{Engine: s.engine}
	if change != nil {
		change(&config)
	}
	h := httptest.NewServer(checkapi.Handler(config))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

var document = func() *apitest.Document {
	r := httptest.NewRecorder()
	checkapi.Handler(checkapi.Config{}).ServeHTTP(r, httptest.NewRequest("GET", "/v1/openapi.json", nil))
	doc, err := apitest.Load(r.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return doc
}()

// reply is what the API has said.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// answer is what it says about a check.
type answer struct {
	Allowed     bool
	Status      int
	RetryAfter  int64 `json:"retry_after"`
	Delay       float64
	Exempt      bool
	Unavailable bool
	Repeated    bool
	Degraded    bool
	Missing     string
	Blocked     string
	At          time.Time
	Results     []result
	Headers     map[string]string
	Body        string
	Place       string
}

type result struct {
	Rule, Name, From string
	Allowed, Shadow  bool
	Cost             int64
	Limit, Remaining *int64
	Reset            int64
	RetryAfter       int64 `json:"retry_after"`
}

// do sends a request, with a body if that is not empty, and fields as "Name: value".
func (s *server) do(method, path, body string, fields ...string) *reply {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := &reply{s.t, response.StatusCode, response.Header, data}
	if err := document.Check(r, body, a.status, a.header, a.body); err != nil {
		s.t.Errorf("%v\n%s", err, a.body)
	}
	return a
}

// ask sends a check that the API understands.
func (s *server) ask(path, body string) answer {
	s.t.Helper()
	return s.do("POST", path, body).want(200).answer()
}

// want fails unless the status is that.
func (a *reply) want(status int) *reply {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// says fails unless the body has all of texts.
func (a *reply) says(texts ...string) *reply {
	a.t.Helper()
	for _, text := range texts {
		if !bytes.Contains(a.body, []byte(text)) {
			a.t.Errorf("%s\nhas no %s", a.body, text)
		}
	}
	return a
}

func (a *reply) into(v any) {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
}

func (a *reply) answer() (out answer) {
	a.t.Helper()
	a.into(&out)
	return out
}

func (a *reply) answers() []answer {
	a.t.Helper()
	var out struct{ Answers []answer }
	a.into(&out)
	return out.Answers
}

// remaining is what a rule has left.
func (a answer) remaining(rule string) int64 {
	for _, r := range a.Results {
		if r.Rule == rule && r.Remaining != nil {
			return *r.Remaining
		}
	}
	return -1
}

const login = `{"request": {"method": "POST", "path": "/login", "client": "192.0.2.7", "body": "username=alice"}`

func TestCheck(t *testing.T) {
	s := start(t, testRules, nil)
	for range 5 {
		a := s.ask("/v1/check", login+"}")
		if !a.Allowed || a.Status != 200 || a.RetryAfter != 0 || a.Body != "" {
			t.Fatalf("%+v", a)
		}
	}
	refused := s.do("POST", "/v1/check", login+"}").want(200)
	a := refused.answer()
	names := []string{}
	for _, r := range a.Results {
		names = append(names, r.Name)
	}
	if want := []string{"per-address", "login-1m", "login-1h", "seen"}; !slices.Equal(names, want) {
		t.Errorf("results %q, want %q", names, want)
	}
	if a.Allowed || a.Status != 429 || a.RetryAfter < 1 || a.RetryAfter > 60 || fmt.Sprint(a.RetryAfter) != a.Headers["Retry-After"] {
		t.Errorf("%+v", a)
	}
	if r := a.Results[1]; r.Allowed || r.RetryAfter != a.RetryAfter || *r.Limit != 5 || *r.Remaining != 0 || r.From != "rule" || r.Cost != 1 {
		t.Errorf("%+v", r)
	}
	if a.remaining("per-address") != 195 {
		t.Errorf("what is refused was charged: %d are left", a.remaining("per-address"))
	}
	for name, value := range a.Headers {
		if own := refused.header.Get(name); own != value && name != "Content-Type" && name != "Vary" {
			t.Errorf("the response has %s: %q, and the answer %q", name, own, value)
		}
	}
	if !strings.Contains(a.Body, `"status":429`) || a.Headers["Content-Type"] != "application/problem+json" {
		t.Errorf("%+v", a)
	}
	s.do("POST", "/v1/check?status=1", login+"}").want(429).says(`"allowed":false`)
}

func TestEachKindOfAnswer(t *testing.T) {
	s := start(t, testRules, nil)
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"exempt", `{"request": {"path": "/health"}}`, 200, `"exempt":true,"results":[]`},
		{"blocked", `{"request": {"path": "/", "client": "203.0.113.9"}}`, 403, `"blocked":"spam"`},
		{"lacking", `{"request": {"path": "/files/a"}}`, 400, `"missing":"query:user"`},
		{"with it", `{"request": {"path": "/files/a?user=b"}}`, 200, `"rule":"files"`},
		{"client with a port", `{"request": {"path": "/", "client": "[2001:db8::9]:443"}}`, 200, `"remaining":199`},
		{"the same network", `{"request": {"path": "/", "client": "2001:db8::8"}}`, 200, `"remaining":198`},
		{"behind a proxy", `{"request": {"path": "/", "client": "10.1.2.3", "headers": {"X-Forwarded-For": "203.0.113.9"}}}`, 403, `"blocked"`},
		{"forged", `{"request": {"path": "/", "client": "192.0.2.8", "headers": {"X-Forwarded-For": "203.0.113.9"}}}`, 200, `"remaining":199`},
		{"attribute", `{"request": {"path": "/", "attributes": {"plan": "trial", "user": "u"}}}`, 200, `"rule":"plan","name":"plan","from":"rule","allowed":true,"shadow":false,"cost":1,"limit":3,"remaining":2`},
		{"cost", `{"request": {"path": "/", "client": "192.0.2.9"}, "cost": 10}`, 200, `"cost":10,"limit":200,"remaining":190`},
		{"never", `{"request": {"path": "/", "client": "192.0.2.9"}, "cost": 201}`, 429, `more than it ever allows at once`},
		{"rule", `{"rule": "per-key", "key": {"api_key": "k-1"}}`, 200, `"limit":100,"remaining":19,"reset"`},
		{"override", `{"rule": "per-key", "key": {"api_key": "k-vip"}, "cost": 7}`, 200, `"from":"override"`},
		{"host in the head", `{"request": {"path": "/", "headers": {"host": "a.example"}}}`, 200, `"seen"`},
		{"two hosts", `{"request": {"path": "/", "host": "b.example", "headers": {"host": "a.example"}}}`, 400, "two hosts"},
		{"no path", `{"request": {"path": "login"}}`, 400, `must begin with \\\"/\\\"`},
		{"broken escape", `{"request": {"path": "/%zz"}}`, 400, "escaped"},
		{"no host", `{"request": {"path": "/", "host": "a:80:80"}}`, 400, "The Host must be"},
		{"no method", `{"request": {"path": "/", "method": "A B"}}`, 400, "The method"},
		{"no field", `{"request": {"path": "/", "headers": {"a b": "c"}}}`, 400, "a field that none can have"},
		{"line break in a field", `{"request": {"path": "/", "headers": {"a": "c\nd"}}}`, 400, "a field that none can have"},
		{"page of an origin", `{"request": {"path": "/%zz", "headers": {"Origin": "https://app.example.com"}}}`, 400, `"Access-Control-Allow-Origin":"https://app.example.com"`},
		{"plain text", `{"request": {"path": "/%zz", "headers": {"Accept": ["text/html", "text/plain"]}}}`, 400, `"Content-Type":"text/plain`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.t = t
			a := s.do("POST", "/v1/peek", c.body).want(200).answer()
			if a.Status != c.status || a.Allowed != (c.status == 200) {
				t.Errorf("to be %d: %+v", c.status, a)
			}
			s.do("POST", "/v1/check?status=1", c.body).want(c.status).says(c.says)
		})
	}
}

// A queue lets pass later, and the API does not hold.
func TestDelay(t *testing.T) {
	s := start(t, testRules, nil)
	const queued = `{"request": {"path": "/queue"}}`
	began := time.Now()
	for range 4 {
		s.ask("/v1/check", queued)
	}
	a := s.ask("/v1/check", queued)
	if took := time.Since(began).Seconds(); a.Delay <= 4-took-0.1 || a.Delay > 4 || !a.Allowed {
		t.Errorf("the fifth of one a second has a delay of %v", a.Delay)
	}
}

// What is asked about a rule and about a request is one count.
func TestRuleAndRequestAreOneCount(t *testing.T) {
	s := start(t, testRules, nil)
	s.ask("/v1/check", `{"rule": "per-key", "key": {"api_key": "k-1"}, "cost": 5}`)
	a := s.ask("/v1/check", `{"request": {"path": "/", "headers": {"Authorization": "Bearer k-1"}}}`)
	if a.remaining("per-key") != 14 {
		t.Errorf("%d of 20 are left, want 14", a.remaining("per-key"))
	}
}

func TestBatch(t *testing.T) {
	s := start(t, testRules, nil)
	body := `{"checks": [` + login + `, "peek": true}, {"rule": "per-key", "key": {"api_key": "k-1"}, "cost": 3},
		{"request": {"path": "/%zz"}}, ` + login + `}, {"request": {"path": "/health"}}]}`
	all := s.do("POST", "/v1/check", body).want(200).answers()
	if len(all) != 5 || !all[0].Allowed || all[0].remaining("per-address") != 200 || all[1].remaining("per-key") != 17 ||
		all[2].Status != 400 || all[3].remaining("per-address") != 199 || !all[4].Exempt {
		t.Errorf("%+v", all)
	}
	for i, a := range all {
		if limited := i == 0 || i == 1 || i == 3; limited != (a.Headers["X-Ratelimit-Limit"] != "") {
			t.Errorf("answer %d has the fields %v", i, a.Headers)
		}
	}
}

func TestLargestBatch(t *testing.T) {
	s := start(t, testRules, nil)
	one := `{"rule": "per-address", "key": {"client_ip": "192.0.2.%d"}}`
	checks := make([]string, 1000)
	for i := range checks {
		checks[i] = fmt.Sprintf(one, i%4)
	}
	all := s.do("POST", "/v1/check", `{"checks":[`+strings.Join(checks, ",")+`]}`).want(200).answers()
	allowed := 0
	for _, a := range all {
		if a.Allowed {
			allowed++
		}
	}
	if len(all) != 1000 || allowed != 800 {
		t.Errorf("%d of %d pass, and four addresses have 200 a day each", allowed, len(all))
	}
	checks = append(checks, checks[0])
	s.do("POST", "/v1/check", `{"checks":[`+strings.Join(checks, ",")+`]}`).want(400).says(`"/checks/1000"`, "at most 1000")
}

// Whatever is wrong is told with a pointer, and nothing of the call is charged.
func TestWrongQuestions(t *testing.T) {
	s := start(t, testRules, nil)
	deep := strings.Repeat(`{"request":`, 100_000)
	many := strings.TrimSuffix(strings.Repeat(`"1",`, 257), ",")
	for _, c := range []struct{ name, path, check, pointer, says string }{
		{"unknown member", "check", `{"request": {"path": "/"}, "costs": 1}`, "/costs", "request, rule, key, cost, id, checks, peek"},
		{"unknown in the request", "check", `{"request": {"path": "/", "url": "/"}}`, "/request/url", "method, host, path"},
		{"other case", "check", `{"Request": {"path": "/"}}`, "/Request", "no such member"},
		{"duplicate", "check", `{"rule": "login", "rule": "per-key"}`, "/rule", "twice"},
		{"duplicate by an escape", "check", `{"rule": "login", "r\u0075le": "per-key"}`, "/rule", "twice"},
		{"duplicate key", "check", `{"rule": "login", "key": {"client_ip": "192.0.2.1", "client_ip": "192.0.2.2"}}`, "/key/client_ip", "twice"},
		{"duplicate field", "check", `{"request": {"path": "/", "headers": {"X-Api-Key": "1", "x-api-key": "2"}}}`, "/request/headers/x-api-key", "twice"},
		{"type of the request", "check", `{"request": "/"}`, "/request", "must be an object"},
		{"type of a text", "check", `{"request": {"path": 1}}`, "/request/path", "must be text"},
		{"null", "check", `{"request": {"path": "/", "client": null}}`, "/request/client", "must be text"},
		{"type of a field", "check", `{"request": {"path": "/", "headers": {"a~/b": [1]}}}`, "/request/headers/a~0~1b/0", "must be text"},
		{"many fields", "check", `{"request": {"path": "/", "headers": {"a": [` + many + `]}}}`, "/request/headers/a/256", "more than 256"},
		{"type of peek", "check", `{"rule": "login", "peek": 1}`, "/peek", "true or false"},
		{"bytes that are not UTF-8", "check", "{\"rule\": \"per-key\", \"key\": {\"api_key\": \"\xff\"}}", "/key/api_key", "not UTF-8"},
		{"half a character", "check", `{"rule": "per-key", "key": {"api_key": "\ud800"}}`, "/key/api_key", "surrogate"},
		{"half a character in a name", "check", `{"rule": "per-key", "key": {"\udc00": ""}}`, "/key", "surrogate"},
		{"huge number", "check", `{"rule": "login", "cost": 1` + strings.Repeat("0", 5000) + `}`, "/cost", "from 1 to 1125899906842624"},
		{"fraction", "check", `{"rule": "login", "cost": 1.5}`, "/cost", "whole number"},
		{"exponent", "check", `{"rule": "login", "cost": 1e1}`, "/cost", "whole number"},
		{"nothing", "check", `{"rule": "login", "cost": 0}`, "/cost", "from 1"},
		{"negative", "check", `{"rule": "login", "cost": -1}`, "/cost", "from 1"},
		{"deep", "check", deep, "/request/request", "no such member"},
		{"deep list", "check", strings.Repeat("[", 100_000), "", "must be an object"},
		{"not JSON", "check", `{"rule": "login"`, "", "this is not JSON"},
		{"two values", "check", `{"rule": "login"} {}`, "", "something follows"},
		{"empty", "check", ``, "", "must be an object"},
		{"neither", "check", `{"cost": 1}`, "", `\"rule\" and \"key\"`},
		{"both", "check", `{"rule": "login", "request": {"path": "/"}}`, "", `\"rule\" and \"key\"`},
		{"key without a rule", "check", `{"request": {"path": "/"}, "key": {}}`, "", `\"rule\", too`},
		{"no path", "check", `{"request": {"method": "GET"}}`, "/request", `\"path\"`},
		{"no client", "check", `{"request": {"path": "/", "client": "unknown"}}`, "/request/client", "192.0.2.1"},
		{"two bodies", "check", `{"request": {"path": "/", "body": "", "body_base64": ""}}`, "/request", "not both"},
		{"no base64", "check", `{"request": {"path": "/", "body_base64": "_-"}}`, "/request/body_base64", "base64"},
		{"no rule", "check", `{"rule": "per-kye"}`, "", "per-key"},
		{"no part of the key", "check", `{"rule": "per-key", "key": {"client_ip": "192.0.2.1"}}`, "", "api_key"},
		{"exempt rule", "check", `{"rule": "health"}`, "", "counts nothing"},
		{"empty id", "check", `{"rule": "per-key", "id": ""}`, "/id", "from 1 to 256"},
		{"long id", "check", `{"rule": "per-key", "id": "` + strings.Repeat("x", 257) + `"}`, "/id", "from 1 to 256"},
		{"peek in a peek", "peek", `{"rule": "login", "peek": true}`, "/peek", "no such member"},
		{"outcome in a refund", "refund", `{"rule": "login", "outcome": {}}`, "/outcome", "no such member"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.t = t
			quoted, _ := json.Marshal(c.pointer)
			s.do("POST", "/v1/"+c.path, c.check).want(400).says(`"pointer":`+string(quoted), c.says)
			before := `{"checks": [{"rule": "per-key", "key": {"api_key": "kept"}}, {"request": {"path": "/"}}, `
			r := s.do("POST", "/v1/"+c.path, before+c.check+"]}").want(400)
			if c.check != "" && c.name != "not JSON" && c.name != "two values" {
				quoted, _ = json.Marshal("/checks/2" + c.pointer)
				r.says(`"pointer":` + string(quoted))
			}
		})
	}
	if left := s.ask("/v1/peek", `{"rule": "per-key", "key": {"api_key": "kept"}}`).remaining("per-key"); left != 20 {
		t.Errorf("batches with a mistake have charged: %d of 20 are left", left)
	}
}

func TestWrongSettlements(t *testing.T) {
	s := start(t, testRules, nil)
	for body, says := range map[string]string{
		`{"rule": "guesses"}`:                                                                     `\"outcome\"`,
		`{"rule": "guesses", "outcome": 401}`:                                                     `"/outcome"`,
		`{"rule": "guesses", "outcome": {"status": 99}}`:                                          `"/outcome/status"`,
		`{"rule": "guesses", "outcome": {"status": 401, "bytes": -1}}`:                            `"/outcome/bytes"`,
		`{"rule": "guesses", "outcome": {"cost": 1.5}}`:                                           `"/outcome/cost"`,
		`{"rule": "guesses", "outcome": {"counts": "yes"}}`:                                       `"/outcome/counts"`,
		`{"rule": "guesses", "outcome": {}, "at": "yesterday"}`:                                   `"/at"`,
		`{"rule": "guesses", "outcome": {}, "peek": true}`:                                        `"/peek"`,
		`{"checks": [{"rule": "guesses", "outcome": {}}]}`:                                        `"/checks"`,
		`{"request": {"path": "/%zz"}, "outcome": {}}`:                                            `"/request"`,
		`{"rule": "guesses", "outcome": {"headers": {"a": []}}}`:                                  `"/outcome/headers/a"`,
		`{"rule": "guesses", "outcome": {"status": 401, "status": 402}}`:                          `"/outcome/status"`,
		`{"rule": "guesses", "key": {"client_ip": "192.0.2.1"}, "outcome": {}, "at": 1795347858}`: `"/at"`,
	} {
		s.do("POST", "/v1/settle", body).want(400).says(says)
	}
}

// What is no question at all.
func TestWrongCalls(t *testing.T) {
	s := start(t, testRules, nil)
	const one = `{"rule": "per-key", "key": {"api_key": "k"}}`
	s.do("GET", "/v1/check", "").want(405).says("use POST")
	s.do("POST", "/v1/openapi.json", one).want(405).says("use GET")
	s.do("POST", "/v1/checks", one).want(404)
	s.do("POST", "/v1/check/", one).want(404)
	s.do("POST", "/v1/check", one, "Content-Type: text/plain").want(415)
	s.do("POST", "/v1/check", one, "Content-Type: application/json; charset=utf-8").want(200)
	s.do("POST", "/v1/check", one, "Content-Encoding: gzip").want(415)
	s.do("POST", "/v1/check?status=2", one).want(400).says(`"parameter":"status"`)
	s.do("POST", "/v1/check?status=1", `{"checks": [`+one+`]}`).want(400).says("several")
	s.do("POST", "/v1/check", one, "Origin: https://evil.example").want(403).says("browser")
	s.do("POST", "/v1/check", one, "Sec-Fetch-Site: cross-site").want(403)
	if left := s.ask("/v1/peek", one).remaining("per-key"); left != 19 {
		t.Errorf("%d of 20 are left, and one call was right", left)
	}
}

func TestAuthorize(t *testing.T) {
	s := start(t, testRules, func(c *checkapi.Config) {
		c.Authorize = func(from, token string) error {
			switch {
			case !strings.HasPrefix(from, "127.0.0.1:"):
				t.Errorf("from %q", from)
			case token == "many":
				return tooMany{}
			case token != "secret":
				return errors.New("another token")
			}
			return nil
		}
	})
	const one = `{"rule": "per-key", "key": {"api_key": "k"}}`
	for _, field := range []string{"X: y", "Authorization: Bearer", "Authorization: Bearer other", "Authorization: Basic secret", "Authorization: secret"} {
		if r := s.do("POST", "/v1/check", one, field).want(401); r.header.Get("WWW-Authenticate") != `Bearer realm="sluice"` {
			t.Errorf("%q: %v", field, r.header)
		}
	}
	s.do("GET", "/v1/openapi.json", "").want(401)
	if r := s.do("POST", "/v1/check", one, "Authorization: Bearer many").want(429); r.header.Get("Retry-After") != "5" {
		t.Errorf("%v", r.header)
	}
	s.do("POST", "/v1/check", one, "Authorization: bearer secret").want(200).says(`"remaining":19`)
}

type tooMany struct{}

func (tooMany) Error() string     { return "too many" }
func (tooMany) RetrySeconds() int { return 5 }
