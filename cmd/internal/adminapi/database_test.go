package adminapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/apitest"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// playAPI runs each section of testdata/database as a test of the admin API over an empty database, except the file
// unavailable.txt, because its test needs a database server of its own.
func playAPI(t *testing.T, empty func(testing.TB) string) {
	for file, sections := range apitest.Sections(t, "testdata/database/*.txt") {
		for _, s := range sections {
			if file != "unavailable" {
				t.Run(file+"/"+s.Title, func(t *testing.T) {
					t.Parallel()
					apitest.NewInstance(t, empty(t)).Play(s)
				})
			}
		}
	}
}

func TestAdminAPI(t *testing.T) {
	t.Parallel()
	playAPI(t, apitest.SQLite)
}

func TestAdminAPIOverPostgres(t *testing.T) {
	t.Parallel()
	playAPI(t, func(t testing.TB) string { return postgrestest.Database(t) })
	t.Run("writers", func(t *testing.T) {
		t.Parallel()
		testParallelWriters(t, postgrestest.Database(t), 100, 20, 20)
	})
	t.Run("unavailable", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Start(t)
		i := apitest.NewInstance(t, server.Database())
		i.Vars["address"] = server.Addr
		i.Commands["kill"] = func(apitest.Step) { server.Kill() }
		i.Commands["restart"] = func(apitest.Step) { server.Restart() }
		i.Play(apitest.Sections(t, "testdata/database/unavailable.txt")["unavailable"][0])
	})
}

func TestParallelWritersOverSQLite(t *testing.T) {
	t.Parallel()
	testParallelWriters(t, apitest.SQLite(t), 40)
}

// If several writers have read the same version, one of them succeeds and the others get 412.
func testParallelWriters(t *testing.T, database string, rounds ...int) {
	one, two := apitest.NewInstance(t, database), apitest.NewInstance(t, database)
	seen := one.Do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "4/day"}`)
	path := seen.Header.Get("Location")
	for round, writers := range rounds {
		// Always a new limit, because a write that changes nothing stores no new version.
		limit := func(n int) int { return 1000*(round+1) + n }
		replies := make([]*apitest.Answer, writers)
		var all sync.WaitGroup
		for n := range writers {
			all.Go(func() {
				i := []*apitest.Instance{one, two}[n%2]
				body := fmt.Sprintf(`{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "%d/day"}`, limit(n))
				replies[n] = i.Do("PUT", path, body, "If-Match: "+seen.Header.Get("ETag"))
			})
		}
		all.Wait()
		won := -1
		for n, r := range replies {
			switch {
			case r.Status == 200 && won < 0:
				won = n
			case r.Status != 412:
				t.Errorf("writer %d: status %d; the winner is %d", n, r.Status, won)
			}
		}
		if won < 0 {
			t.Fatal("no writer succeeded")
		}
		seen = replies[won]
		for _, i := range []*apitest.Instance{one, two} {
			i.Eventually("the winner's limit is in force", func() bool { return i.LimitOf("k-1") == int64(limit(won)) })
		}
	}
	want := append(slices.Repeat([]string{"replace override"}, len(rounds)), "create override")
	if got := one.Audited(); !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

// If several callers restore the previous policy at the same time, one of them succeeds.
func TestGoBackTogether(t *testing.T) {
	t.Parallel()
	i := apitest.NewInstance(t, apitest.SQLite(t))
	i.Script("POST /v1/rules {\"name\": \"own\", \"key\": [\"client_ip\"], \"limit\": \"2/day\"} => 201")
	var all sync.WaitGroup
	var statuses [4]int
	var last struct{ Entry int64 }
	if err := json.Unmarshal([]byte(i.Get("/v1/policy/previous")), &last); err != nil {
		t.Fatal(err)
	}
	for n := range statuses {
		all.Go(func() {
			statuses[n] = i.Do("POST", "/v1/policy/previous", fmt.Sprintf(`{"entry": %d}`, last.Entry)).Status
		})
	}
	all.Wait()
	if slices.Sort(statuses[:]); statuses != [4]int{200, 409, 409, 409} {
		t.Errorf("the statuses are %v", statuses)
	}
}

// hostile contains texts that have broken programs.
var hostile = []string{
	"'; DROP TABLE sluice_rules; --", `" OR "1"="1`, "x' OR 'x'='x", "Robert'); DELETE FROM sluice_overrides WHERE ('1'='1", "$1", "?",
	":name", "%s%n", "\\", `\'`, "..", ".", "../../etc/passwd", "a/b", "/", "//", "a//b", "%2e%2e", "%2F", "%00", "a\u0000b", "\uFFFD",
	"é", "e\u0301", "💥", "\u202e", " ", "a b", "a\nb", "{id}", "#", "?x=1", ";", "<script>alert(1)</script>", "null", "true", "-1",
	"9223372036854775808", "NaN", strings.Repeat("x", 3000), strings.Repeat("é", 70_000),
}

// hostileBodies contains requests by path. Each text of hostile replaces every "T".
var hostileBodies = map[string][]string{
	"/v1/rules": {
		`{"name": T, "limit": "1/day"}`, `{"name": "r", "limit": T}`, `{"name": "r", "limit": "1/day", "key": [T]}`,
		`{"name": "r", "limit": "1/day", "match": [T]}`, `{"name": "rN", "limit": "1/day", "match": "GET /d", "description": T}`,
		`{"name": "r", "limit": "1/day", "headers": {T: T}}`, `{"name": "r", "limit": "1/day", "tiers": {T: "1/day"}}`,
	},
	"/v1/tiers": {
		`{"name": T, "limits": {"per-key": "8/day"}}`, `{"name": "tN", "description": T}`, `{"name": "t", "limits": {T: "1/day"}}`,
		`{"name": "t", "limits": {"per-key": T}}`,
	},
	"/v1/subjects": {`{"subject": T, "tier": "pro", "reason": T}`, `{"subject": "s", "tier": T, "until": T}`},
	"/v1/overrides": {
		`{"rule": "per-key", "key": {"api_key": T}, "limit": "9/day", "reason": T, "by": T}`,
		`{"rule": T, "key": {"api_key": "k"}, "limit": "9/day"}`, `{"rule": "per-key", "key": {T: "k"}, "limit": "9/day"}`,
		`{"rule": "per-key", "key": {"api_key": "k"}, "limit": T}`, `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "9/day", "until": T}`,
	},
	"/v1/subjects/reset": {`{"rule": "per-key", "key": {"api_key": T}, "reason": T}`},
	"/v1/check":          {`{"url": "/", "method": T, "headers": {"X-API-Key": T}, "body": T}`},
}

// Texts that contain SQL or paths are stored unchanged or refused, and nothing else changes. This test sends each text
// in one or two bodies to each path. testStrings of cmd/internal/source tries such texts in more fields.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	i := apitest.NewInstance(t, apitest.SQLite(t))
	kept := map[string]string{} // the stored documents by path
	for n, text := range hostile {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for path, bodies := range hostileBodies {
			for _, body := range slices.Compact([]string{bodies[0], bodies[n%len(bodies)]}) {
				body = strings.NewReplacer("T", string(quoted), "N", fmt.Sprint(n)).Replace(body)
				a := i.Do("POST", path, body)
				switch a.Status {
				case 201:
					kept[a.Header.Get("Location")] = string(a.Body)
				case 200, 400, 409, 422:
				default:
					t.Errorf("POST %s %.200s: %d %s", path, body, a.Status, a.Body)
				}
			}
		}
		query, segment := url.QueryEscape(text), url.PathEscape(text)
		for _, path := range []string{
			"/v1/rules/" + segment, "/v1/subjects/" + segment, "/v1/overrides/" + segment, "/v1/tiers/" + segment, "/v1/" + segment,
			"/v1/overrides?rule=" + query, "/v1/overrides?key.api_key=" + query, "/v1/overrides?key." + query + "=x",
			"/v1/overrides?cursor=" + query, "/v1/audit?cursor=" + query, "/v1/rules?limit=" + query,
			"/v1/subjects?rule=" + query, "/v1/subjects?rule=per-key&key.api_key=" + query, "/v1/subjects?" + query + "=1",
		} {
			if len(path) > 60_000 {
				continue // servers refuse such a long head
			}
			if a := i.Do("GET", path, ""); a.Status >= 500 {
				t.Errorf("GET %.200s: %d %s", path, a.Status, a.Body)
			}
		}
	}
	if len(kept) < 60 {
		t.Errorf("only %d texts were stored", len(kept))
	}
	for path, want := range kept {
		if path == "/v1/subjects/.." || path == "/v1/subjects/." {
			path = strings.ReplaceAll(path, ".", "%2E") // otherwise the client normalizes the path
		}
		if a := i.Do("GET", path, ""); a.Status != 200 || string(a.Body) != want {
			t.Errorf("GET %s: %d %s, want %s", path, a.Status, a.Body, want)
		}
	}
	if got := i.LimitOf("k-1"); got != 3 {
		t.Errorf("the limit of another key is %d", got)
	}
}

// An override that another instance has changed is deleted by its version in the database, not by the version that this
// instance has loaded.
func TestUnheardOverrides(t *testing.T) {
	t.Parallel()
	database := apitest.SQLite(t)
	writer := apitest.NewInstance(t, database)
	db, err := source.Open(database, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.Check = func(*source.Contents) error { return nil } // the rule is in the policy file of the other instance
	deaf := control.New(control.Config{
		Engine: policy.NewEngine(memory.New(), nil), Stack: &source.Stack{Swap: func(*policy.Policy) {}}, Database: db, Logger: slog.New(slog.DiscardHandler),
	})
	tester := control.Caller{Name: "tester", Role: source.Operator}
	override := source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: map[string]string{"api_key": "k-1"}, Limit: "9/day"}}
	id := source.OverrideName(override.Rule, override.Key)
	create := func() (version int64) {
		t.Helper()
		writer.Change(func(tx *source.Tx) error {
			r, err := tx.PutOverride(override, source.Absent)
			version = r.Version
			return err
		})
		return version
	}
	remove := func(what string, version int64, status int) {
		t.Helper()
		_, err := deaf.Delete(t.Context(), tester, control.Overrides, id, control.Change{Match: strconv.Quote(strconv.FormatInt(version, 10))})
		if p := control.AsProblem(err); (p != nil || status != 0) && (p == nil || p.Status != status) {
			t.Errorf("%s: %v", what, err)
		}
	}
	remove("made elsewhere", create(), 0)
	remove("made again elsewhere, in another row", create(), 0)
	remove("gone", 1, http.StatusNotFound)
	version := create()
	remove("made after it was seen", version-1, http.StatusPreconditionFailed)
	remove("seen", version, 0)
}

// The database's shadow mode of the whole policy ends by itself. If the file sets no shadow mode, the end changes the
// ETag; otherwise the file's shadow mode stays in force.
func TestShadowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stack := &source.Stack{Name: "db"}
		engine := policy.NewEngine(memory.New(), nil)
		stack.Swap = engine.Swap
		api := apitest.LocalAPI(control.Config{Engine: engine, Stack: stack, Logger: slog.New(slog.DiscardHandler)})
		etag := func() string {
			r := httptest.NewRequest("GET", "/v1/policy/shadow", nil)
			r.RemoteAddr = "127.0.0.1:1"
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return w.Header().Get("ETag")
		}
		for file, want := range map[string]bool{"always": true, "": false} {
			doc := policy.Document{Shadow: file, Rules: []policy.Rule{{Name: "a", Limit: "1/day"}}}
			if _, err := stack.File(doc, nil); err != nil {
				t.Fatal(err)
			}
			contents := &source.Contents{}
			contents.Settings.Document.Shadow = time.Now().Add(5 * time.Second).UTC().Format(time.RFC3339)
			if err := errors.Join(stack.UseFile(), stack.Contents(contents)); err != nil {
				t.Fatal(err)
			}
			before := etag()
			if !engine.Policy().WatchOnly() {
				t.Errorf("file %q: the database's shadow mode is not in force", file)
			}
			time.Sleep(6 * time.Second)
			if got := engine.Policy().WatchOnly(); got != want {
				t.Errorf("file %q: shadow mode after the end of the database's shadow mode: %v", file, got)
			}
			if after := etag(); (after == before) != want {
				t.Errorf("file %q: the ETag was %s before and is %s after", file, before, after)
			}
		}
	})
}
