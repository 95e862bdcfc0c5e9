package adminapi_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/apitest"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const testPolicy = `
version: 1
tiers: {subject: api_key, from: header:X-Plan}
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: per-address, key: [client_ip], limit: 200/day}
  - name: per-key
    key: [api_key]
    missing: skip
    limit: 100/day burst 20
    tiers: {pro: 1000/day}
  - name: login
    match: POST /login
    key: [client_ip, "body:username"]
    limits: [5/day, 20/7d]
    algorithm: fixed_window
  - {name: all, limit: 1000/7d}
overrides:
  - {rule: per-key, key: {api_key: k-42}, limit: 5000/minute, until: 2127-01-31, reason: a launch}
  - {rule: per-address, key: {client_ip: 203.0.113.0/24}, block: true}
subjects:
  - {subject: k-7, tier: pro}
`

// server is an API that checks all its answers against the OpenAPI document.
type server struct {
	*apitest.Player
	t      *testing.T
	engine *policy.Engine
	log    *bytes.Buffer
	config setup
}

// setup is the configuration of an API.
type setup struct {
	control.Config
	access.Access
	Done <-chan struct{}
}

func (s *setup) api() *adminapi.API {
	return adminapi.New(adminapi.Config{Control: control.New(s.Config), Access: &s.Access, Done: s.Done, Logger: s.Logger})
}

// start serves testPolicy. The function change, unless nil, adapts the configuration.
func start(t *testing.T, change func(*setup)) *server {
	t.Helper()
	s := prepare(t, change)
	h := httptest.NewServer(s.config.api())
	t.Cleanup(h.Close)
	s.Player = s.player(h.URL)
	return s
}

// inForce returns a stack in which doc is in force as the policy file.
func inForce(t *testing.T, doc policy.Document) (*source.Stack, *policy.Policy) {
	t.Helper()
	stack := &source.Stack{Swap: func(*policy.Policy) {}}
	p, err := stack.File(doc, nil)
	if err == nil {
		err = stack.UseFile()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stack, p
}

// prepare does the same as start, but does not serve the API.
func prepare(t *testing.T, change func(*setup)) *server {
	t.Helper()
	doc, err := policyfile.Decode("test.yaml", []byte(testPolicy))
	if err != nil {
		t.Fatal(err)
	}
	stack, p := inForce(t, doc)
	s := &server{t: t, engine: policy.NewEngine(memory.New(), p), log: new(bytes.Buffer)}
	s.config = setup{
		Config: control.Config{Engine: s.engine, Stack: stack, Logger: slog.New(slog.NewTextHandler(s.log, nil))},
		Access: access.Access{Tokens: none, Local: true},
	}
	inForce := func() *policy.Document { doc, _ := stack.Document(); return doc }
	s.config.Recent = recent.NewFleet(recent.Watch(s.engine, recent.LeastBytes), nil, inForce, s.config.Logger)
	if change != nil {
		change(&s.config)
	}
	return s
}

var document = func() *apitest.Document {
	r := httptest.NewRecorder()
	(&setup{Access: access.Access{Local: true, Tokens: none}}).api().ServeHTTP(r, localRequest("GET", "/v1/openapi.json"))
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

// Each section of testdata is a test. If its steps contain "as", the API has a token of each role.
func TestScripts(t *testing.T) {
	t.Parallel()
	for file, sections := range apitest.Sections(t, "testdata/*.txt") {
		for _, section := range sections {
			t.Run(file+"/"+section.Title, func(t *testing.T) {
				t.Parallel()
				with := func(c *setup) {
					if slices.ContainsFunc(section.Steps, func(s apitest.Step) bool { return s.Verb == "as" }) {
						c.Tokens, c.Local = roles, false
					}
				}
				if file == "watched" {
					watched(t, with).Play(section)
					return
				}
				start(t, func(c *setup) {
					with(c)
					c.Telemetry = &counted{find: func(string) (string, bool) { return "per-key/k-42", true }}
				}).Play(section)
			})
		}
	}
}

// player returns a player for the scripts of testdata.
func (s *server) player(url string) *apitest.Player {
	const login = `{"method": "POST", "url": "/login", "headers": {"content-type": "application/json"}, "body": "{\"username\": \"alice\"}"`
	p := &apitest.Player{
		T: s.t, URL: url, Document: document,
		Client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Vars: map[string]string{
			"host": strings.TrimPrefix(url, "http://"), "deep": strings.Repeat("[", 101) + strings.Repeat("]", 101), "notutf": "{\"url\": \"/\xff\"}",
			"until": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "login": login + "}", "takelogin": login + `, "take": true}`,
		},
	}
	p.Commands = map[string]func(apitest.Step){
		"as": func(step apitest.Step) { p.Token = step.Rest },
		"take": func(step apitest.Step) {
			n, from, key, want := 0, "", "", ""
			if _, err := fmt.Sscanf(step.Rest, "%d %s %s = %s", &n, &from, &key, &want); err != nil {
				s.t.Fatalf("%s: %v", step.Where, err)
			}
			if passed := s.take(n, from, strings.TrimPrefix(key, "-")); want != "?" && strconv.Itoa(passed) != want {
				s.t.Errorf("%s: %d of %d requests were allowed, want %s", step.Where, passed, n, want)
			}
		},
		"logged": func(step apitest.Step) {
			text, lacks := strings.CutPrefix(step.Rest, "! ")
			if strings.Contains(s.log.String(), text) == lacks {
				s.t.Errorf("%s: the log is %s", step.Where, s.log)
			}
		},
	}
	return p
}

// take makes n requests from an address and returns the number of allowed ones.
func (s *server) take(n int, from string, key string) (passed int) {
	for range n {
		r := &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr(from), Header: map[string][]string{}}
		if key != "" {
			r.Header.Set("X-API-Key", key)
		}
		if s.engine.Decide(s.t.Context(), r).Allowed {
			passed++
		}
	}
	return passed
}

// Each limit of a subject contains the time at which it will be full again.
func TestSubjectFullAt(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	before := time.Now()
	s.take(3, "192.0.2.7", "k-1")
	var got struct {
		Rules []struct {
			Limits []struct {
				FullAt time.Time `json:"full_at"`
			}
		}
	}
	s.Do("GET", "/v1/subjects?key.client_ip=192.0.2.7", "").Want(200).Into(&got)
	// At 200 a day, the bucket refills three units in 1296 s.
	if at := got.Rules[0].Limits[0].FullAt; at.Before(before.Add(1295*time.Second)) || at.After(time.Now().Add(1297*time.Second)) {
		t.Errorf("full at %v; three units were taken at %v", at, before)
	}
}
