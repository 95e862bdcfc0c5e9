package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/apitest"
	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const filePolicy = `
version: 1
tiers: {subject: api_key}
rules:
  - {name: per-key, key: [api_key], missing: skip, limit: 3/day, tiers: {pro: 10/day}}
  - {name: per-address, key: [client_ip], limit: 1000/minute}
overrides:
  - {rule: per-key, key: {api_key: k-file}, limit: 5/day, reason: the file says so}
`

// instance is a gateway's engine and admin API over a database of rules.
type instance struct {
	t      *testing.T
	url    string
	engine *policy.Engine
	db     *source.Database
	api    *adminapi.API
	stack  *source.Stack
	doc    *apitest.Document
	log    *bytes.Buffer
	token  string
	client *http.Client

	spoiled atomic.Bool // what is in the database may be no policy
}

// newInstance starts an instance with a file, on an address that only this machine reaches.
func newInstance(t *testing.T, database string) *instance { return newInstanceAs(t, database, "") }

// newInstanceAs is newInstance for whoever has a token of that database.
func newInstanceAs(t *testing.T, database, token string) *instance {
	t.Helper()
	i := &instance{t: t, log: new(bytes.Buffer), token: token, client: &http.Client{
		Transport:     &http.Transport{MaxConnsPerHost: 32},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	log := slog.New(slog.NewTextHandler(i.log, nil))
	var err error
	if i.db, err = source.Open(database, log); err != nil {
		t.Fatal(err)
	}
	if _, err := i.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc, err := policyfile.Decode("policy.yaml", []byte(filePolicy))
	if err != nil {
		t.Fatal(err)
	}
	i.engine = policy.NewEngine(memory.New(), nil)
	stack := &source.Stack{Name: i.db.String(), Swap: i.engine.Swap}
	i.db.Check, i.stack = stack.Check, stack
	if _, err := stack.File(doc, nil); err != nil {
		t.Fatal(err)
	}
	if err := stack.UseFile(); err != nil {
		t.Fatal(err)
	}
	contents, err := i.db.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stack.Contents(contents); err != nil {
		t.Fatal(err)
	}
	rules := &control.Policy{Stack: stack, Database: i.db}
	i.api = adminapi.New(adminapi.Config{
		Engine: i.engine, Policy: rules, Tokens: rules.Tokens, Local: true, Logger: log,
	})
	server := httptest.NewServer(i.api)
	i.url = server.URL
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		i.db.Watch(ctx, func(c *source.Contents) {
			if err := stack.Contents(c); err != nil && !i.spoiled.Load() {
				t.Errorf("what came of the database is no policy: %v", err)
			}
		})
	})
	t.Cleanup(func() {
		server.Close()
		stop()
		following.Wait()
		if err := i.db.Close(); err != nil {
			t.Error(err)
		}
	})
	if i.doc, err = apitest.Load(i.do("GET", "/v1/openapi.json", "").body); err != nil {
		t.Fatal(err)
	}
	return i
}

// reply is what the API has said.
type reply struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   []byte
}

// do sends a request with fields as "Name: value", and holds the reply to the document.
func (i *instance) do(method, path, body string, fields ...string) *reply {
	i.t.Helper()
	r, err := http.NewRequest(method, i.url+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if i.token != "" {
		r.Header.Set("Authorization", "Bearer "+i.token)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	response, err := i.client.Do(r)
	if err != nil {
		i.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	a := &reply{i.t, method + " " + path, response.StatusCode, response.Header, data}
	if i.doc != nil {
		if err := i.doc.Check(r, body, a.status, a.header, a.body); err != nil {
			i.t.Errorf("%v\n%s", err, a.body)
		}
	}
	return a
}

func (a *reply) want(status int) *reply {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d: %s", a.what, a.status, status, a.body)
	}
	return a
}

func (a *reply) says(texts ...string) *reply {
	a.t.Helper()
	for _, text := range texts {
		if !bytes.Contains(a.body, []byte(text)) {
			a.t.Errorf("%s: %s\nhas no %s", a.what, a.body, text)
		}
	}
	return a
}

func (a *reply) etag() string { return a.header.Get("ETag") }

// match is what a request sends of what it has seen.
func match(etag string) string { return "If-Match: " + etag }

// limitOf returns the count of the limit that the engine holds a request with that key to.
func (i *instance) limitOf(key string) int64 {
	r := &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{"X-Api-Key": {key}}}
	for _, result := range i.engine.Explain(context.Background(), r).Decision.Results {
		if result.Rule == "per-key" && result.Plan != nil {
			return result.Plan.Limit.Count
		}
	}
	return -1
}

// eventually waits for what is sure to come.
func (i *instance) eventually(what string, holds func() bool) {
	i.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			i.t.Fatalf("it never came that %s", what)
		}
	}
}
