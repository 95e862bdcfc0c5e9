package server

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/apitest"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const filePolicy = `version: 1
tiers: {subject: api_key}
rules:
  - {name: per-key, key: [api_key], missing: skip, limit: 3/day, tiers: {pro: 10/day}}
  - {name: per-address, key: [client_ip], limit: 1000/minute}
overrides:
  - {rule: per-key, key: {api_key: k-file}, limit: 5/day, reason: the file says so}
`

// instance is a gateway's engine and admin API over a database of rules. It plays scripts.
type instance struct {
	apitest.Player
	t        *testing.T
	database string
	engine   *policy.Engine
	db       *source.Database
	over     control.Config
	api      *adminapi.API
	stack    *source.Stack
	log      *testkit.Log
	secrets  map[string]string // tokens, by their names
	other    *instance

	spoiled atomic.Bool // the database may have no valid policy
}

// sqliteURL returns the URL of a database for the test.
func sqliteURL(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "rules.db") }

// newInstance starts an instance with filePolicy over a database, which only this machine reaches.
func newInstance(t *testing.T, database string) *instance {
	t.Helper()
	i := &instance{t: t, database: database, log: new(testkit.Log), secrets: map[string]string{}}
	log := slog.New(slog.NewTextHandler(i.log, nil))
	var err error
	if i.db, err = source.Open(database, log); err != nil {
		t.Fatal(err)
	}
	if _, err := i.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.engine = policy.NewEngine(memory.New(), nil)
	i.stack = &source.Stack{Name: i.db.String(), Swap: i.engine.Swap}
	i.db.Check = i.stack.Check
	i.useFile(filePolicy)
	contents, err := i.db.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.stack.Contents(contents); err != nil {
		t.Fatal(err)
	}
	i.over = control.Config{Engine: i.engine, Stack: i.stack, Database: i.db, Logger: log}
	i.serve()
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		i.db.Watch(ctx, func(c *source.Contents) {
			if err := i.stack.Contents(c); err != nil && !i.spoiled.Load() {
				t.Errorf("the database has no valid policy: %v", err)
			}
		})
	})
	t.Cleanup(func() {
		stop()
		following.Wait()
		if err := i.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// localAPI returns an API that only this machine reaches.
func localAPI(over control.Config) *adminapi.API {
	tokens := func() ([]control.Token, error) { return control.Tokens(over.Database) }
	return adminapi.New(adminapi.Config{Control: control.New(over), Access: &access.Access{Tokens: tokens, Local: true}, Logger: over.Logger})
}

// serve serves the API, and has the player hold it to its document.
func (i *instance) serve() {
	i.api = localAPI(i.over)
	server := httptest.NewServer(i.api)
	i.t.Cleanup(server.Close)
	i.Player = apitest.Player{
		T: i.t, URL: server.URL, Document: document(), Commands: i.commands(),
		Vars: map[string]string{"long": strings.Repeat("x", 5000), "hash": strings.Repeat("ab", 32)},
		Client: &http.Client{
			Transport:     &http.Transport{MaxConnsPerHost: 32},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// document returns the OpenAPI document of the API.
var document = sync.OnceValue(func() *apitest.Document {
	api := localAPI(control.Config{})
	r := httptest.NewRequest("GET", "/v1/openapi.json", nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	doc, err := apitest.Load(w.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return doc
})

// useFile puts a policy file into force.
func (i *instance) useFile(text string) {
	i.t.Helper()
	doc, err := policyfile.Decode("policy.yaml", []byte(text))
	if err == nil {
		_, err = i.stack.File(doc, nil)
	}
	if err == nil {
		err = i.stack.UseFile()
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// commands are the steps of scripts besides requests: see testdata/api.
func (i *instance) commands() map[string]func(apitest.Step) {
	return map[string]func(apitest.Step){
		"limit": func(s apitest.Step) {
			key, want, _ := strings.Cut(s.Rest, " ")
			if got := strconv.FormatInt(i.limitOf(key), 10); got != want {
				i.t.Errorf("%s: the limit of %s is %s, want %s", s.Where, key, got, want)
			}
		},
		"another": func(apitest.Step) { i.other = newInstance(i.t, i.database) },
		"elsewhere": func(s apitest.Step) {
			key, want, _ := strings.Cut(s.Rest, " ")
			i.eventually(s.Where+": the other instance has the limit "+want, func() bool {
				return strconv.FormatInt(i.other.limitOf(key), 10) == want
			})
		},
		"audit": func(s apitest.Step) {
			if got := strings.Join(i.audited(), ", "); got != s.Rest {
				i.t.Errorf("%s: the audit log has %s, want %s", s.Where, got, s.Rest)
			}
		},
		"logged": func(s apitest.Step) {
			const change = "policy changed"
			log := i.log.Take()
			if s.Rest == "-" && strings.Contains(log, change) ||
				s.Rest != "-" && (strings.Count(log, change) != 1 || !strings.Contains(log, s.Rest)) {
				i.t.Errorf("%s: the log is %s", s.Where, log)
			}
		},
		"file": func(s apitest.Step) {
			was, is, _ := strings.Cut(s.Rest, " -> ")
			i.useFile(strings.Join(append(s.More, strings.Replace(filePolicy, was, is, 1)), "\n"))
		},
		"spoiled": func(apitest.Step) { i.spoiled.Store(true) },
		"sql":     func(s apitest.Step) { i.sql(s.Rest) },
		"token": func(s apitest.Step) {
			name, role, _ := strings.Cut(s.Rest, " = ")
			role, until, _ := strings.Cut(role, " ")
			i.change(func(tx *source.Tx) (err error) {
				i.secrets[name], _, err = tx.CreateToken(name, source.Role(role), until)
				return err
			})
		},
		"revoke": func(s apitest.Step) {
			i.change(func(tx *source.Tx) error { return tx.DeleteToken(s.Rest, source.Any) })
		},
		"as": func(s apitest.Step) { i.Token = i.secrets[s.Rest] },
		"secrets": func(s apitest.Step) {
			texts := i.log.Take() + string(i.Do("GET", "/v1/audit", "").Body)
			for name, secret := range i.secrets {
				if strings.Contains(texts, secret) || strings.Contains(texts, control.HashToken(secret)) {
					i.t.Errorf("%s: the token %s is in the log or the audit log", s.Where, name)
				}
			}
		},
	}
}

func (i *instance) change(do func(*source.Tx) error) {
	i.t.Helper()
	if _, err := i.db.Change(i.t.Context(), "test", do); err != nil {
		i.t.Fatal(err)
	}
}

// sql executes a text in the database.
func (i *instance) sql(text string) {
	i.t.Helper()
	driver, dsn := "pgx", i.database
	if file, ok := strings.CutPrefix(i.database, "sqlite:"); ok {
		driver, dsn = "sqlite", "file:"+file
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		i.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		i.t.Fatal(err)
	}
}

// audited returns the entries of the audit log as "action kind", the newest first, read by pages.
func (i *instance) audited() (all []string) {
	i.t.Helper()
	for next := "/v1/audit?limit=2"; next != ""; {
		var page struct {
			Items []source.Entry
			Next  string
		}
		if err := json.Unmarshal(i.Do("GET", next, "").Body, &page); err != nil {
			i.t.Fatal(err)
		}
		for _, e := range page.Items {
			all = append(all, e.Action+" "+e.Kind)
			if e.Actor == "" || time.Since(e.At) > time.Hour {
				i.t.Errorf("the audit log has %+v", e)
			}
		}
		if next = ""; page.Next != "" {
			next = "/v1/audit?limit=2&cursor=" + page.Next
		}
	}
	return all
}

// play plays a script as a test may have it in its source.
func (i *instance) play(script string) {
	i.t.Helper()
	for _, s := range apitest.Script(i.t, i.t.Name(), "== \n"+script) {
		i.Play(s)
	}
}

// get returns the body of a resource.
func (i *instance) get(path string) string {
	i.t.Helper()
	a := i.Do("GET", path, "")
	if a.Status != http.StatusOK {
		i.t.Fatalf("GET %s: %d %s", path, a.Status, a.Body)
	}
	return string(a.Body)
}

// request is one with an API key, from 192.0.2.7.
func request(key string) *policy.Request {
	return &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{"X-Api-Key": {key}}}
}

// limitOf returns the count of the limit that the engine holds a request with that key to.
func (i *instance) limitOf(key string) int64 {
	results := i.engine.Explain(context.Background(), request(key)).Decision.Results
	if n := slices.IndexFunc(results, isPerKey); n >= 0 {
		return results[n].Plan.Limit.Count
	}
	return -1
}

func isPerKey(r policy.Result) bool { return r.Rule == "per-key" && r.Plan != nil }

// eventually waits for a condition that is sure to come.
func (i *instance) eventually(what string, holds func() bool) {
	i.t.Helper()
	testkit.Await(i.t, what, holds)
}
