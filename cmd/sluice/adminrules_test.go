package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// adminSuite is what holds over every database, each test with the URL of an empty one.
var adminSuite = map[string]func(t *testing.T, database string){
	"override life":   testOverrideLife,
	"other lives":     testOtherLives,
	"hostile texts":   testHostileTexts,
	"writers":         testParallelWriters,
	"unheard":         testUnheardOverrides,
	"subjects":        testSubjectsAreAudited,
	"database tokens": testDatabaseTokens,
	"blocks":          testBlocks,
	"long subjects":   testLongSubjects,
	"takes":           testTakesAreAudited,
}

func TestAdminOverSQLite(t *testing.T) {
	t.Parallel()
	for name, test := range adminSuite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
		})
	}
}

func TestAdminOverPostgres(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	t.Run("suite", func(t *testing.T) {
		for name, test := range adminSuite {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, server.Database())
			})
		}
	})
	testDatabaseAway(t, server)
}

// An override is created, read, replaced and deleted, is in force as soon as the reply is there,
// and leaves its traces.
func testOverrideLife(t *testing.T, database string) {
	i := newInstance(t, database)
	a := i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "50/day", "until": "2126-12-31", "by": "somebody else"}`).want(201)
	a.says(`"by":"local"`)
	path := a.header.Get("Location")
	if got := i.limitOf("k-1"); got != 50 {
		t.Errorf("the limit is %d, and not the 50 of the override", got)
	}
	read := i.do("GET", path, "").want(200).says(`"until":"2126-12-31"`)
	if read.etag() != a.etag() || a.etag() == "" {
		t.Errorf("the ETag is %s, and was %s", read.etag(), a.etag())
	}
	i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "60/day"}`).want(409).says(path)
	// What was read can be sent back.
	changed := strings.Replace(string(read.body), "50/day", "60/day", 1)
	i.do("PUT", path, changed).want(428)
	i.do("PUT", path, changed, match(`"1000000"`)).want(412)
	i.do("PUT", path, changed, match("W/"+read.etag())).want(412)
	i.do("PUT", path, changed, "If-None-Match: *").want(412)
	b := i.do("PUT", path, changed, match(read.etag())).want(200)
	if got := i.limitOf("k-1"); got != 60 || b.etag() == a.etag() {
		t.Errorf("the limit is %d, the ETag %s", got, b.etag())
	}
	i.do("PUT", path, changed, match(a.etag())).want(412)
	i.do("GET", "/v1/overrides?rule=per-key&key.api_key=k-1", "").want(200).says(`"source":"database"`, `"updated_by":"local"`)
	i.do("DELETE", path, "").want(428)
	i.do("DELETE", path, "", match(a.etag())).want(412)
	i.do("DELETE", path, "", match(b.etag())).want(204)
	if got := i.limitOf("k-1"); got != 3 {
		t.Errorf("the limit is %d after the override was deleted", got)
	}
	i.do("GET", path, "").want(404)
	i.do("DELETE", path, "", match(b.etag())).want(404)
	i.auditIs("delete override", "replace override", "create override")
}

// auditIs fails unless the latest entries of the audit log are these, the newest first.
func (i *instance) auditIs(want ...string) {
	i.t.Helper()
	var got []string
	for path := "/v1/audit?limit=2"; ; {
		var page struct {
			Items []source.Entry
			Next  string
		}
		if err := json.Unmarshal(i.do("GET", path, "").want(200).body, &page); err != nil {
			i.t.Fatal(err)
		}
		for _, e := range page.Items {
			got = append(got, e.Action+" "+e.Kind)
			if e.Actor == "" || time.Since(e.At) > time.Hour {
				i.t.Errorf("%+v", e)
			}
		}
		if page.Next == "" {
			break
		}
		path = "/v1/audit?limit=2&cursor=" + page.Next
	}
	if !slices.Equal(got, want) {
		i.t.Errorf("the audit log has %q, want %q", got, want)
	}
}

// Rules, tiers and subjects have the same life.
func testOtherLives(t *testing.T, database string) {
	i := newInstance(t, database)
	for _, life := range []struct{ path, create, replace, has string }{
		{"/v1/rules/new", `{"name": "new", "match": ["GET /new"], "key": ["client_ip"], "limit": "7/day"}`, `{"limit": "8/day", "description": "for all"}`, `"limit":"8/day"`},
		{"/v1/tiers/gold", `{"name": "gold", "limits": {"per-key": "70/day"}}`, `{"limits": {"per-key": ["80/day", "9/second"]}, "description": "for some"}`, `["80/day","9/second"]`},
		{"/v1/subjects/k-9", `{"subject": "k-9", "tier": "pro"}`, `{"tier": "pro", "until": "2126-12-31", "reason": "a trial"}`, `"reason":"a trial"`},
	} {
		list := life.path[:strings.LastIndex(life.path, "/")]
		a := i.do("POST", list, life.create).want(201)
		if a.header.Get("Location") != life.path {
			t.Errorf("%s is at %s", life.path, a.header.Get("Location"))
		}
		i.do("POST", list, life.create).want(409)
		b := i.do("PUT", life.path, life.replace, match(a.etag())).want(200).says(life.has)
		i.do("GET", list, "").want(200).says(life.has)
		i.do("DELETE", life.path, "", match(b.etag())).want(204)
		c := i.do("PUT", life.path, life.replace, "If-None-Match: *").want(201)
		i.do("PUT", life.path, life.replace, match(b.etag())).want(412)
		if b.etag() == c.etag() {
			t.Errorf("%s was deleted and created again with the same ETag", life.path)
		}
	}
	if got := i.limitOf("k-9"); got != 10 {
		t.Errorf("the limit of a subject of the tier is %d", got)
	}
}

// The file is the floor: what the database has of it takes its place, and goes again.
func TestOnTopOfFile(t *testing.T) {
	i := newInstance(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	file := i.do("GET", "/v1/rules/per-key", "").want(200)
	i.do("GET", "/v1/policy", "").want(200).says(`{"name":"per-key","source":"file"}`, `"database":true`)
	i.do("DELETE", "/v1/rules/per-key", "", match(file.etag())).want(409).says("in the file")
	i.do("POST", "/v1/rules", string(file.body)).want(409)
	changed := strings.Replace(string(file.body), "3/day", "4/day", 1)
	i.do("PUT", "/v1/rules/per-key", changed, match(`"file-0000000000000000"`)).want(412)
	a := i.do("PUT", "/v1/rules/per-key", changed, match(file.etag())).want(200)
	i.do("GET", "/v1/policy", "").want(200).says(`{"name":"per-key","source":"database"}`)
	if got := i.limitOf("k-1"); got != 4 {
		t.Errorf("the limit is %d, and 4 in the database", got)
	}
	i.do("DELETE", "/v1/rules/per-key?dry_run=true", "", match(a.etag())).want(200).says(`"limit":"4/day"`, `"limit":"3/day"`)
	i.do("DELETE", "/v1/rules/per-key", "", match(a.etag())).want(204)
	if got := i.limitOf("k-1"); got != 3 {
		t.Errorf("the limit is %d, and 3 in the file", got)
	}
	if again := i.do("GET", "/v1/rules/per-key", "").want(200); again.etag() != file.etag() {
		t.Errorf("the ETag of the file's rule was %s and is %s", file.etag(), again.etag())
	}
	override := "/v1/overrides/" + control.OverrideID("per-key", map[string]string{"api_key": "k-file"})
	etag := i.do("GET", override, "").want(200).etag()
	i.do("DELETE", override, "", match("*")).want(409)
	i.do("PUT", override, `{"rule": "per-key", "key": {"api_key": "k-file"}, "exempt": true}`, match(etag)).want(200)
	if got := i.limitOf("k-file"); got != -1 {
		t.Errorf("an exempt subject has the limit %d", got)
	}
	i.do("DELETE", "/v1/tiers/pro", "", match("*")).want(409).says("in the rules")
}

// Nothing is changed by what is dry.
func TestDryRuns(t *testing.T) {
	i := newInstance(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	before := i.do("GET", "/v1/policy", "").want(200).etag()
	etag := i.do("GET", "/v1/rules/per-key", "").want(200).etag()
	i.do("PUT", "/v1/rules/per-key?dry_run=true", `{"key": ["api_key"], "limit": "9/hour"}`, match(etag)).want(200).
		says(`"dry_run":true`, `"before":{"name":"per-key"`, `"begins_anew":[{"rule":"per-key","from":"rule","was":"3/day`)
	i.do("POST", "/v1/rules?dry_run=true", `{"name": "new", "key": ["client_ip"], "limit": "1/day"}`).want(200).says(`"before":null`, `"after":{"name":"new"`, `"begins_anew":[]`)
	i.do("POST", "/v1/overrides?dry_run=true", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "1/day", "until": "2020-01-01"}`).want(200).says(`"warnings":["`, "ended")
	i.do("POST", "/v1/subjects/block?dry_run=true", `{"rule": "per-key", "key": {"api_key": "k"}, "until": "2126-01-01"}`).want(200).says(`"blocked":true`)
	i.do("POST", "/v1/subjects/reset?dry_run=true", `{"rule": "per-key", "key": {"api_key": "k"}}`).want(200)
	i.do("PUT", "/v1/rules/per-key?dry_run=yes", `{"limit": "9/hour"}`, match(etag)).want(400).says(`"parameter":"dry_run"`)
	// What would be refused is refused.
	i.do("POST", "/v1/rules?dry_run=true", `{"name": "per-key", "limit": "1/day"}`).want(409)
	i.do("PUT", "/v1/rules/per-key?dry_run=true", `{"limit": "9/hour"}`).want(428)
	i.do("POST", "/v1/rules?dry_run=true", `{"name": "new", "limit": "1/fortnight"}`).want(422)
	if after := i.do("GET", "/v1/policy", "").want(200).etag(); after != before {
		t.Errorf("the policy has changed from %s to %s", before, after)
	}
	i.auditIs()
}

// What is wrong is told with the field.
func TestPointers(t *testing.T) {
	i := newInstance(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	for _, wrong := range []struct{ path, body, pointer string }{
		{"/v1/rules", `{"name": "a", "limit": "1/fortnight"}`, "/limit"},
		{"/v1/rules", `{"name": "a", "limits": ["1/day", "x"]}`, "/limits/1"},
		{"/v1/rules", `{"name": "a", "limt": "1/day"}`, "/limt"},
		{"/v1/rules", `{"name": "A B", "limit": "1/day"}`, "/name"},
		{"/v1/rules", `{"name": "a", "limit": "1/day", "key": ["client_ip", "nothing"]}`, "/key/1"},
		{"/v1/rules", `{"name": "a", "limit": "1/day", "headers": {"X~A/B": ""}}`, "/headers/X~0A~1B"},
		{"/v1/rules", `{"name": "a", "limit": "1/day", "tiers": {"pro": "x"}}`, "/tiers/pro"},
		{"/v1/rules", `{"name": "a", "limit": "1/day", "limit": "2/day"}`, "/limit"},
		{"/v1/rules", `[]`, ""},
		{"/v1/rules", `null`, ""},
		{"/v1/rules", `"x"`, ""},
		{"/v1/tiers", `{"name": "t", "limits": {"per-key": "x"}}`, "/limits/per-key"},
		{"/v1/tiers", `{"name": "t", "limits": {"per-address": "1/day", "nowhere": "1/day"}}`, "/limits/nowhere"},
		{"/v1/tiers", `{"name": "t", "limit": {}}`, "/limit"},
		{"/v1/tiers", `{"name": 5}`, "/name"},
		{"/v1/subjects", `{"subject": "k", "tier": "pro", "until": "soon"}`, "/until"},
		{"/v1/subjects", `{"subject": "k", "teir": "pro"}`, "/teir"},
		{"/v1/overrides", `{"rule": "per-kee", "key": {"api_key": "k"}, "limit": "1/day"}`, "/rule"},
		{"/v1/overrides", `{"rule": "per-key", "key": {"apikey": "k"}, "limit": "1/day"}`, "/key/apikey"},
		{"/v1/overrides", `{"rule": "per-address", "key": {"client_ip": "10.1.2.3/8"}, "limit": "1/day"}`, "/key/client_ip"},
		{"/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "x"}`, "/limit"},
		{"/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "1/day", "until": "31.12.2026"}`, "/until"},
		{"/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}}`, ""},
		{"/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "1/day", "block": true}`, ""},
	} {
		a := i.do("POST", wrong.path, wrong.body)
		var p struct{ Errors []struct{ Pointer *string } }
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != 422 || len(p.Errors) == 0 || p.Errors[0].Pointer == nil {
			t.Errorf("%s %s: %d %s", wrong.path, wrong.body, a.status, a.body)
			continue
		}
		found := false
		for _, e := range p.Errors {
			found = found || e.Pointer != nil && *e.Pointer == wrong.pointer
		}
		if !found {
			t.Errorf("%s %s: want the pointer %q: %s", wrong.path, wrong.body, wrong.pointer, a.body)
		}
	}
	i.do("PUT", "/v1/rules/a", `{"name": "b", "limit": "1/day"}`, "If-None-Match: *").want(422).says(`"pointer":"/name"`)
	i.do("PUT", "/v1/overrides/0000", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "1/day"}`, "If-None-Match: *").want(422).says(`"pointer":"/key"`)
	// A rule whose overrides need it stays.
	i.do("PUT", "/v1/rules/per-key", `{"limit": "1/day"}`, match("*")).want(422).says("no key")
	i.auditIs()
}

// hostile are texts that have broken programs.
var hostile = []string{
	"'; DROP TABLE sluice_rules; --", `" OR "1"="1`, "x' OR 'x'='x", "Robert'); DELETE FROM sluice_overrides WHERE ('1'='1", "$1", "?", ":name", "%s%n", "\\", `\'`,
	"..", ".", "../../etc/passwd", "a/b", "/", "//", "a//b", "%2e%2e", "%2F", "%00", "a\u0000b", "\uFFFD", "é", "e\u0301", "💥", "\u202e", " ", "a b", "a\nb", "{id}", "#", "?x=1", ";",
	"<script>alert(1)</script>", "null", "true", "-1", "9223372036854775808", "NaN", strings.Repeat("x", 3000), strings.Repeat("é", 70_000),
}

// SQL and paths in every text are text: they are kept as they are, or refused, and nothing else
// changes.
func testHostileTexts(t *testing.T, database string) {
	i := newInstance(t, database)
	quote := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	kept := map[string]string{} // what is read at a path
	for _, text := range hostile {
		q := quote(text)
		for path, bodies := range map[string][]string{
			"/v1/rules": {`{"name": ` + q + `, "limit": "1/day"}`, `{"name": "r", "limit": ` + q + `}`, `{"name": "r", "limit": "1/day", "key": [` + q + `]}`, `{"name": "r", "limit": "1/day", "match": [` + q + `]}`,
				`{"name": "d` + fmt.Sprint(len(kept)) + `", "limit": "1/day", "match": "GET /d", "description": ` + q + `}`, `{"name": "r", "limit": "1/day", "headers": {` + q + `: ` + q + `}}`, `{"name": "r", "limit": "1/day", "tiers": {` + q + `: "1/day"}}`},
			"/v1/tiers":    {`{"name": ` + q + `, "limits": {"per-key": "8/day"}}`, `{"name": "t` + fmt.Sprint(len(kept)) + `", "description": ` + q + `}`, `{"name": "t", "limits": {` + q + `: "1/day"}}`, `{"name": "t", "limits": {"per-key": ` + q + `}}`},
			"/v1/subjects": {`{"subject": ` + q + `, "tier": "pro", "reason": ` + q + `}`, `{"subject": "s", "tier": ` + q + `, "until": ` + q + `}`},
			"/v1/overrides": {`{"rule": "per-key", "key": {"api_key": ` + q + `}, "limit": "9/day", "reason": ` + q + `, "by": ` + q + `}`, `{"rule": ` + q + `, "key": {"api_key": "k"}, "limit": "9/day"}`,
				`{"rule": "per-key", "key": {` + q + `: "k"}, "limit": "9/day"}`, `{"rule": "per-key", "key": {"api_key": "k"}, "limit": ` + q + `}`, `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "9/day", "until": ` + q + `}`},
		} {
			for _, body := range bodies {
				a := i.do("POST", path, body)
				switch a.status {
				case 201:
					kept[a.header.Get("Location")] = string(a.body)
				case 400, 409, 422:
				default:
					t.Errorf("POST %s %.200s: %d %s", path, body, a.status, a.body)
				}
			}
		}
		if strings.HasPrefix(database, "postgres") {
			continue // what follows is the same over every database
		}
		escaped := url.QueryEscape(text)
		for _, path := range []string{
			"/v1/rules/" + url.PathEscape(text), "/v1/subjects/" + url.PathEscape(text), "/v1/overrides/" + url.PathEscape(text), "/v1/tiers/" + url.PathEscape(text),
			"/v1/overrides?rule=" + escaped, "/v1/overrides?key.api_key=" + escaped, "/v1/overrides?key." + escaped + "=x", "/v1/overrides?cursor=" + escaped, "/v1/audit?cursor=" + escaped, "/v1/rules?limit=" + escaped,
			"/v1/subjects?rule=" + escaped, "/v1/subjects?rule=per-key&key.api_key=" + escaped, "/v1/subjects?" + escaped + "=1", "/v1/" + url.PathEscape(text),
		} {
			if len(path) > 60_000 {
				continue // no server reads such a head
			}
			if a := i.do("GET", path, ""); a.status >= 500 {
				t.Errorf("GET %.200s: %d %s", path, a.status, a.body)
			}
		}
		for path, body := range map[string]string{
			"/v1/subjects/reset": `{"rule": "per-key", "key": {"api_key": ` + q + `}, "reason": ` + q + `}`,
			"/v1/check":          `{"url": "/", "method": ` + q + `, "headers": {"X-API-Key": ` + q + `}, "body": ` + q + `}`,
		} {
			if a := i.do("POST", path, body); a.status >= 500 {
				t.Errorf("POST %s %.200s: %d %s", path, body, a.status, a.body)
			}
		}
	}
	if len(kept) < 60 {
		t.Errorf("only %d were kept", len(kept))
	}
	for path, want := range kept {
		if path == "/v1/subjects/.." || path == "/v1/subjects/." {
			path = strings.ReplaceAll(path, ".", "%2E") // or a client makes it another path
		}
		if a := i.do("GET", path, ""); a.status != 200 || string(a.body) != want {
			t.Errorf("GET %s: %d %s, and %s was created", path, a.status, a.body, want)
		}
	}
	if got := i.limitOf("k-1"); got != 3 {
		t.Errorf("the limit of somebody else is %d", got)
	}
}

// Of writers who have all seen the same, one wins, and the others are told so.
func testParallelWriters(t *testing.T, database string) {
	one, two := newInstance(t, database), newInstance(t, database)
	seen := one.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "4/day"}`).want(201)
	path := seen.header.Get("Location")
	rounds := []int{100}
	if strings.HasPrefix(database, "postgres") {
		rounds = []int{300, 60, 60} // each of the version that the one before has left
	}
	for round, writers := range rounds {
		limit := func(n int) int { return 1000*(round+1) + n } // another one than it is: who changes nothing does not win
		replies := make([]*reply, writers)
		var all sync.WaitGroup
		for n := range writers {
			all.Go(func() {
				i := []*instance{one, two}[n%2]
				body := fmt.Sprintf(`{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "%d/day"}`, limit(n))
				replies[n] = i.do("PUT", path, body, match(seen.etag()))
			})
		}
		all.Wait()
		won := -1
		for n, r := range replies {
			switch {
			case r.status == 200 && won < 0:
				won = n
			case r.status != 412:
				t.Errorf("writer %d: %d, and %d has won", n, r.status, won)
			}
		}
		if won < 0 {
			t.Fatal("nobody has won")
		}
		seen = replies[won]
		for _, i := range []*instance{one, two} {
			i.eventually("what has won is in force", func() bool { return i.limitOf("k-1") == int64(limit(won)) })
		}
		one.do("GET", path, "").want(200).says(fmt.Sprintf(`"%d/day"`, limit(won)))
	}
	one.auditIs(append(slices.Repeat([]string{"replace override"}, len(rounds)), "create override")...)
}

// What another instance has done to an override counts at once, and not what is known of it here.
func testUnheardOverrides(t *testing.T, database string) {
	writer, deaf := newInstance(t, database).db, &control.Policy{Stack: &source.Stack{Swap: func(*policy.Policy) {}}}
	var err error
	if deaf.db, err = source.Open(database, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer deaf.db.Close()
	key := map[string]string{"api_key": "k-1"}
	id := control.OverrideID("per-key", key)
	create := func() (version int64) {
		t.Helper()
		_, err := writer.Change(t.Context(), "writer", func(tx *source.Tx) error {
			r, err := tx.PutOverride(source.OverrideRow{Override: policy.Override{Rule: "per-key", Key: key, Limit: "9/day"}}, source.Absent)
			version = r.Version
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	remove := func(match int64) error {
		return deaf.Delete(t.Context(), "tester", control.Overrides, id, match, false)
	}
	deaf.db.Check = func(*source.Contents) error { return nil } // the file beneath has the rule
	if err := remove(create()); err != nil {
		t.Errorf("one that was made elsewhere: %v", err)
	}
	if err := remove(create()); err != nil { // the same, in another row
		t.Errorf("one that was made again elsewhere: %v", err)
	}
	if err := remove(1); !errors.Is(err, source.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
	version := create()
	if err := remove(version - 1); !errors.Is(err, adminapi.ErrConflict) {
		t.Errorf("one that was made after what was seen: %v", err)
	}
	if err := remove(version); err != nil {
		t.Error(err)
	}
}

// What changes no row is in the audit log, too, and a block is an override that others see.
func testSubjectsAreAudited(t *testing.T, database string) {
	one, two := newInstance(t, database), newInstance(t, database)
	one.do("POST", "/v1/subjects/reset", `{"rule": "per-key", "key": {"api_key": "k-1"}, "reason": "a case"}`).want(200)
	one.do("POST", "/v1/subjects/refund", `{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 2}`).want(200)
	const body = `{"rule": "per-key", "key": {"api_key": "k-1"}, "until": "2126-12-31", "reason": "abuse"}`
	one.do("POST", "/v1/subjects/block", body).want(200).says(`"blocked":true`, `"blocked_until":"2127-01-01T00:00:00Z"`)
	two.eventually("the other instance blocks", func() bool { return two.limitOf("k-1") == -1 })
	one.do("POST", "/v1/subjects/block", body).want(200) // again
	one.do("POST", "/v1/subjects/unblock", `{"rule": "per-key", "key": {"api_key": "k-1"}}`).want(200).says(`"blocked":false`)
	two.eventually("the other instance lifts the block", func() bool { return two.limitOf("k-1") == 3 })
	one.do("POST", "/v1/subjects/unblock", `{"rule": "per-key", "key": {"api_key": "k-1"}}`).want(200)
	one.auditIs("unblock subject", "delete override", "create override", "refund subject", "reset subject")
	one.do("GET", "/v1/audit", "").want(200).says(`"after":{"key":{"api_key":"k-1"},"reason":"a case"}`, `"units":2`)

	// A limit that somebody has agreed on is not lost to a block.
	one.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-2"}, "limit": "9/day"}`).want(201)
	one.do("POST", "/v1/subjects/block", strings.ReplaceAll(body, "k-1", "k-2")).want(409).says("override")
	// And a block for others is not lifted for one.
	one.do("POST", "/v1/overrides", `{"rule": "per-address", "key": {"client_ip": "203.0.113.0/24"}, "block": true}`).want(201)
	one.do("POST", "/v1/subjects/unblock", `{"rule": "per-address", "key": {"client_ip": "203.0.113.9"}}`).want(409).says(control.OverrideID("per-address", map[string]string{"client_ip": "203.0.113.0/24"}))
	// Not even if the one has had a block of its own.
	one.do("POST", "/v1/overrides", `{"rule": "per-address", "key": {"client_ip": "203.0.113.9"}, "block": true, "until": "2020-01-01"}`).want(201)
	one.do("POST", "/v1/subjects/unblock", `{"rule": "per-address", "key": {"client_ip": "203.0.113.9"}}`).want(409)
}

// Tokens of the database say who may do what, on all instances.
func testDatabaseTokens(t *testing.T, database string) {
	one, two := newInstance(t, database), newInstance(t, database)
	secrets := map[source.Role]string{}
	if _, err := one.db.Change(t.Context(), "test", func(tx *source.Tx) (err error) {
		for _, role := range []source.Role{source.Viewer, source.Operator, source.Admin} {
			if secrets[role], _, err = tx.CreateToken("the "+string(role), role, ""); err != nil {
				return err
			}
		}
		secrets["late"], _, err = tx.CreateToken("late", source.Admin, "2020-01-01")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	two.eventually("strangers are refused", func() bool { return two.do("GET", "/v1/policy", "").status == 401 })
	for role, status := range map[source.Role][2]int{source.Viewer: {200, 403}, source.Operator: {200, 403}, source.Admin: {200, 422}, "late": {401, 401}} {
		two.token = secrets[role]
		two.do("GET", "/v1/policy", "").want(status[0])
		two.do("POST", "/v1/rules", "{}").want(status[1])
	}
	two.token = secrets[source.Operator]
	two.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "9/day"}`).want(201).says(`"by":"the operator"`)
	if _, err := one.db.Change(t.Context(), "test", func(tx *source.Tx) error { return tx.DeleteToken("the operator", source.Any) }); err != nil {
		t.Fatal(err)
	}
	two.eventually("the token is refused", func() bool { return two.do("GET", "/v1/policy", "").status == 401 })
	for role, secret := range secrets {
		if strings.Contains(one.log.String()+two.log.String(), secret) {
			t.Errorf("the secret of %s is in a log", role)
		}
	}
	two.token = secrets[source.Viewer]
	if log := two.do("GET", "/v1/audit", "").want(200); bytes.Contains(log.body, []byte(secrets[source.Admin])) || bytes.Contains(log.body, []byte(control.HashToken(secrets[source.Admin]))) {
		t.Error("the audit log has a secret, or its hash")
	}
}

// While the database is away, everything can be read, and changes say when to try again.
func testDatabaseAway(t *testing.T, server *postgrestest.Server) {
	i := newInstance(t, server.Database())
	path := i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "9/day"}`).want(201).header.Get("Location")
	shadow := i.do("PUT", "/v1/policy/shadow", `{"until": "2126-01-01"}`).want(200).etag()
	server.Kill()
	var a *reply
	i.eventually("what the server has started has ended, too", func() bool {
		a = i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-2"}, "limit": "9/day"}`)
		return a.status == 503
	})
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if strings.Contains(string(a.body), server.Addr) {
		t.Errorf("the reply tells where the database is: %s", a.body)
	}
	i.do("DELETE", path, "", match("*")).want(503)
	i.do("POST", "/v1/subjects/reset", `{"rule": "per-key", "key": {"api_key": "k-1"}}`).want(503)
	i.do("GET", "/v1/audit", "").want(503)
	i.do("GET", "/v1/policy/shadow", "").want(200).says(`"on":true`)
	i.do("PUT", "/v1/policy/shadow", `{"until": ""}`, match(shadow)).want(503)
	i.do("GET", "/v1/policy/previous", "").want(503)
	i.do("POST", "/v1/policy/previous", `{"entry": 1}`).want(503)
	i.do("GET", path, "").want(200).says("9/day")
	i.do("GET", "/v1/subjects?rule=per-key&key.api_key=k-1", "").want(200).says("9/day")
	i.do("POST", "/v1/check", `{"url": "/"}`).want(200)
	server.Restart()
	i.eventually("changes are taken again", func() bool {
		return i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-2"}, "limit": "9/day"}`).status != 503
	})
	i.do("GET", path, "").want(200).says("9/day")
	if !i.engine.Policy().WatchOnly() {
		t.Error("what could not be kept has ended the shadow")
	}
	i.do("PUT", "/v1/policy/shadow", `{"until": ""}`, match(shadow)).want(200)
}

// A database whose disk is full is told as such.
func TestDatabaseFull(t *testing.T) {
	t.Parallel()
	err := apiError(fmt.Errorf("sqlite:rules.db: %w", source.ErrFull))
	if !errors.Is(err, source.ErrFull) || !errors.Is(err, source.ErrAway) {
		t.Errorf("the admin API is told %v", err)
	}
}
