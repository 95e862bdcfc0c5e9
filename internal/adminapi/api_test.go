package adminapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/apitest"
	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const testPolicy = `
version: 1
tiers: {subject: api_key, from: header:X-Plan}
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: per-address, key: [client_ip], limit: 200/hour}
  - name: per-key
    key: [api_key]
    missing: skip
    limit: 100/minute burst 20
    tiers: {pro: 1000/minute}
  - name: login
    match: POST /login
    key: [client_ip, "body:username"]
    limits: [5/minute, 20/hour]
    algorithm: fixed_window
  - {name: all, limit: 100000/day}
overrides:
  - {rule: per-key, key: {api_key: k-42}, limit: 5000/minute, until: 2127-01-31, reason: a launch}
  - {rule: per-address, key: {client_ip: 203.0.113.0/24}, block: true}
subjects:
  - {subject: k-7, tier: pro}
`

// server is an API whose every answer is held to the OpenAPI document.
type server struct {
	t      *testing.T
	url    string
	engine *policy.Engine
	log    *bytes.Buffer
	token  string
	config adminapi.Config
}

// start serves a policy, with what change makes of the configuration.
func start(t *testing.T, change func(*adminapi.Config)) *server {
	t.Helper()
	s := prepare(t, change)
	h := httptest.NewServer(adminapi.New(s.config))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

// prepare is start without a network.
func prepare(t *testing.T, change func(*adminapi.Config)) *server {
	t.Helper()
	doc, err := policyfile.Decode("test.yaml", []byte(testPolicy))
	if err != nil {
		t.Fatal(err)
	}
	for i := range doc.Rules {
		doc.Rules[i].Source = "file"
	}
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, engine: policy.NewEngine(memory.New(), p), log: new(bytes.Buffer)}
	current := &control.Current{Document: &doc, File: &doc}
	s.config = adminapi.Config{
		Engine:  s.engine,
		Current: func() *control.Current { return current },
		Tokens:  func() ([]control.Token, error) { return nil, nil },
		Local:   true,
		Logger:  slog.New(slog.NewTextHandler(s.log, nil)),
	}
	if change != nil {
		change(&s.config)
	}
	return s
}

var document = func() *apitest.Document {
	r := httptest.NewRecorder()
	adminapi.New(adminapi.Config{Local: true, Tokens: none}).ServeHTTP(r, localRequest("GET", "/v1/openapi.json"))
	doc, err := apitest.Load(r.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return doc
}()

func localRequest(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	return r
}

// answer is what the API has said.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// do sends a request, with a body if that is not empty, and fields as "Name: value".
func (s *server) do(method, path, body string, fields ...string) *answer {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	return s.send(r, body)
}

func (s *server) send(r *http.Request, sent string) *answer {
	s.t.Helper()
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(firstEvent(response))
	if err != nil {
		s.t.Fatal(err)
	}
	a := &answer{s.t, response.StatusCode, response.Header, data}
	if err := document.Check(r, sent, a.status, a.header, a.body); err != nil {
		s.t.Errorf("%v\n%s", err, a.body)
	}
	return a
}

// firstEvent is the body of a response, of a stream only the first event.
func firstEvent(r *http.Response) io.Reader {
	if r.Header.Get("Content-Type") != "text/event-stream" {
		return r.Body
	}
	var event strings.Builder
	for lines := bufio.NewScanner(r.Body); lines.Scan() && lines.Text() != ""; {
		event.WriteString(lines.Text() + "\n")
	}
	return strings.NewReader(event.String())
}

// want fails unless the status is that.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// says fails unless the body has all of texts.
func (a *answer) says(texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if !bytes.Contains(a.body, []byte(text)) {
			a.t.Errorf("%s\nhas no %s", a.body, text)
		}
	}
	return a
}

// into reads the body.
func (a *answer) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
}
