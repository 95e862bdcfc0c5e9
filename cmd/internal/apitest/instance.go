package apitest

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
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// FilePolicy is the policy file of an [Instance].
const FilePolicy = `version: 1
tiers: {subject: api_key}
rules:
  - {name: per-key, key: [api_key], missing: skip, limit: 3/day, tiers: {pro: 10/day}}
  - {name: per-address, key: [client_ip], limit: 1000/minute}
overrides:
  - {rule: per-key, key: {api_key: k-file}, limit: 5/day, reason: the file says so}
`

// Instance has a gateway's engine and admin API, and uses a database of rules. It plays scripts.
type Instance struct {
	Player
	Engine  *policy.Engine
	Stack   *source.Stack
	Over    control.Config // the configuration of the API's control.Control
	API     *adminapi.API
	Log     *testkit.Log
	Secrets map[string]string // tokens by name
	Other   *Instance         // a second Instance with the same database, if a script has started one

	database string // the URL of the database
	db       *source.Database

	spoiled atomic.Bool // the database may have no valid policy
}

// SQLite returns the URL of a database for the test.
func SQLite(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "rules.db") }

// NewInstance starts an Instance with FilePolicy and a database. It accepts requests only from this machine.
func NewInstance(t testing.TB, database string) *Instance {
	t.Helper()
	i := &Instance{Player: Player{T: t}, database: database, Log: new(testkit.Log), Secrets: map[string]string{}}
	log := slog.New(slog.NewTextHandler(i.Log, nil))
	var err error
	if i.db, err = source.Open(database, log); err != nil {
		t.Fatal(err)
	}
	if _, err := i.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.Engine = policy.NewEngine(memory.New(), nil)
	i.Stack = &source.Stack{Name: i.db.String(), Swap: i.Engine.Swap}
	i.db.Check = i.Stack.Check
	i.UseFile(FilePolicy)
	contents, err := i.db.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Stack.Contents(contents); err != nil {
		t.Fatal(err)
	}
	i.Over = control.Config{Engine: i.Engine, Stack: i.Stack, Database: i.db, Logger: log}
	i.Serve()
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		i.db.Watch(ctx, func(c *source.Contents) {
			if err := i.Stack.Contents(c); err != nil && !i.spoiled.Load() {
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

// LocalAPI returns an API that accepts requests without a token from this machine.
func LocalAPI(over control.Config) *adminapi.API {
	callers := &access.Access{Tokens: over.Database.Tokens, Local: true}
	return adminapi.New(adminapi.Config{Control: control.New(over), Access: callers, Logger: over.Logger})
}

// Serve starts a server for the API, and a player that checks every exchange against the OpenAPI document.
func (i *Instance) Serve() {
	i.API = LocalAPI(i.Over)
	server := httptest.NewServer(i.API)
	i.T.Cleanup(server.Close)
	i.Player = Player{
		T: i.T, URL: server.URL, Document: document(), Commands: i.commands(),
		Vars: map[string]string{"long": strings.Repeat("x", 5000), "hash": strings.Repeat("ab", 32)},
		Client: &http.Client{
			Transport:     &http.Transport{MaxConnsPerHost: 32},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// document returns the OpenAPI document of the API.
var document = sync.OnceValue(func() *Document {
	api := LocalAPI(control.Config{})
	r := httptest.NewRequest("GET", "/v1/openapi.json", nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	doc, err := Load(w.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return doc
})

// UseFile puts a policy file into force.
func (i *Instance) UseFile(text string) {
	i.T.Helper()
	doc, err := policyfile.Decode("policy.yaml", []byte(text))
	if err == nil {
		_, err = i.Stack.File(doc, nil)
	}
	if err == nil {
		err = i.Stack.UseFile()
	}
	if err != nil {
		i.T.Fatal(err)
	}
}

// commands returns the steps of scripts that are not requests: see [Section].
func (i *Instance) commands() map[string]func(Step) {
	return map[string]func(Step){
		"limit": func(s Step) {
			key, want, _ := strings.Cut(s.Rest, " ")
			if got := strconv.FormatInt(i.LimitOf(key), 10); got != want {
				i.T.Errorf("%s: the limit of %s is %s, want %s", s.Where, key, got, want)
			}
		},
		"another": func(Step) { i.Other = NewInstance(i.T, i.database) },
		"elsewhere": func(s Step) {
			key, want, _ := strings.Cut(s.Rest, " ")
			i.Eventually(s.Where+": the other Instance has the limit "+want, func() bool {
				return strconv.FormatInt(i.Other.LimitOf(key), 10) == want
			})
		},
		"audit": func(s Step) {
			if got := strings.Join(i.Audited(), ", "); got != s.Rest {
				i.T.Errorf("%s: the audit log has %s, want %s", s.Where, got, s.Rest)
			}
		},
		"logged": func(s Step) {
			const change = "policy changed"
			log := i.Log.Take()
			if s.Rest == "-" && strings.Contains(log, change) ||
				s.Rest != "-" && (strings.Count(log, change) != 1 || !strings.Contains(log, s.Rest)) {
				i.T.Errorf("%s: the log is %s", s.Where, log)
			}
		},
		"file": func(s Step) {
			was, is, _ := strings.Cut(s.Rest, " -> ")
			i.UseFile(strings.Join(append(s.More, strings.Replace(FilePolicy, was, is, 1)), "\n"))
		},
		// "refused" waits until the file or the database is refused. "disabled" waits until a rule is disabled.
		"refused": func(s Step) {
			i.Eventually(s.Where, func() bool {
				file, database := i.Stack.Refused()
				return map[string]error{"file": file, "database": database}[s.Rest] != nil
			})
		},
		"disabled": func(s Step) {
			i.Eventually(s.Where, func() bool {
				_, contents := i.Stack.Document()
				return slices.Contains(contents.Disabled(), s.Rest)
			})
		},
		"spoiled": func(Step) { i.spoiled.Store(true) },
		"sql":     func(s Step) { i.sql(s.Rest) },
		"token": func(s Step) {
			name, role, _ := strings.Cut(s.Rest, " = ")
			role, until, _ := strings.Cut(role, " ")
			i.Change(func(tx *source.Tx) (err error) {
				i.Secrets[name], _, err = tx.CreateToken(name, source.Role(role), until)
				return err
			})
		},
		"revoke": func(s Step) {
			i.Change(func(tx *source.Tx) error { return tx.DeleteToken(s.Rest, source.Any) })
		},
		"as": func(s Step) { i.Token = i.Secrets[s.Rest] },
		"secrets": func(s Step) {
			texts := i.Log.Take() + string(i.Do("GET", "/v1/audit", "").Body)
			for name, secret := range i.Secrets {
				if strings.Contains(texts, secret) || strings.Contains(texts, source.HashToken(secret).String()) {
					i.T.Errorf("%s: the token %s is in the log or the audit log", s.Where, name)
				}
			}
		},
	}
}

// Change changes the database without the API.
func (i *Instance) Change(do func(*source.Tx) error) {
	i.T.Helper()
	if _, err := i.db.Change(i.T.Context(), "test", do); err != nil {
		i.T.Fatal(err)
	}
}

// sql executes SQL in the database.
func (i *Instance) sql(text string) {
	i.T.Helper()
	driver, dsn := "pgx", i.database
	if file, ok := strings.CutPrefix(i.database, "sqlite:"); ok {
		driver, dsn = "sqlite", "file:"+file
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		i.T.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Exec(text); err != nil {
		i.T.Fatal(err)
	}
}

// Audited reads all pages of the audit log, and returns the entries as "action kind", the newest first.
func (i *Instance) Audited() (all []string) {
	i.T.Helper()
	for next := "/v1/audit?limit=2"; next != ""; {
		var page struct {
			Items []source.Entry
			Next  string
		}
		if err := json.Unmarshal(i.Do("GET", next, "").Body, &page); err != nil {
			i.T.Fatal(err)
		}
		for _, e := range page.Items {
			all = append(all, e.Action+" "+e.Kind)
			if e.Actor == "" || time.Since(e.At) > time.Hour {
				i.T.Errorf("the audit log has %+v", e)
			}
		}
		if next = ""; page.Next != "" {
			next = "/v1/audit?limit=2&cursor=" + page.Next
		}
	}
	return all
}

// Script plays a script from the source of a test.
func (i *Instance) Script(script string) {
	i.T.Helper()
	for _, s := range Script(i.T, i.T.Name(), "== \n"+script) {
		i.Play(s)
	}
}

// Get returns the body of a resource.
func (i *Instance) Get(path string) string {
	i.T.Helper()
	a := i.Do("GET", path, "")
	if a.Status != http.StatusOK {
		i.T.Fatalf("GET %s: %d %s", path, a.Status, a.Body)
	}
	return string(a.Body)
}

// Request returns a request with an API key from the address 192.0.2.7.
func Request(key string) *policy.Request {
	return &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{"X-Api-Key": {key}}}
}

// LimitOf returns the count of the limit that the rule per-key has for an API key, or -1 if no limit of this rule
// applies.
func (i *Instance) LimitOf(key string) int64 {
	results := i.Engine.Explain(context.Background(), Request(key)).Decision.Results
	if n := slices.IndexFunc(results, IsPerKey); n >= 0 {
		return results[n].Plan.Limit.Count
	}
	return -1
}

// IsPerKey reports whether a result is of the rule per-key and has a limit.
func IsPerKey(r policy.Result) bool { return r.Rule == "per-key" && r.Plan != nil }

// Eventually waits until holds() is true. The test fails if that takes too long.
func (i *Instance) Eventually(what string, holds func() bool) {
	i.T.Helper()
	testkit.Await(i.T, what, holds)
}
