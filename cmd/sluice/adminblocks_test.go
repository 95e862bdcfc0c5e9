package main

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// A block is one of a subject, however its key is written, and of no other.
func testBlocks(t *testing.T, database string) {
	i := newInstance(t, database)
	block := func(rule, part, value string) *reply {
		t.Helper()
		return i.do("POST", "/v1/subjects/block", `{"rule": "`+rule+`", "key": {"`+part+`": "`+value+`"}, "until": "2126-12-31"}`)
	}
	unblock := func(value string) *reply {
		t.Helper()
		return i.do("POST", "/v1/subjects/unblock", `{"rule": "per-address", "key": {"client_ip": "`+value+`"}}`)
	}
	// Whoever names himself "*" does not take everybody with him.
	block("per-key", "api_key", "*").want(422).says(`"pointer":"/key/api_key"`)
	if got := i.limitOf("k-1"); got != 3 {
		t.Errorf("the limit of somebody else is %d", got)
	}
	block("per-address", "client_ip", "2001:db8::1").want(200)
	block("per-address", "client_ip", "2001:0DB8::1").want(200).says(`"blocked":true`)
	unblock("2001:db8:0::/64").want(200).says(`"blocked":false`)
	i.do("GET", "/v1/overrides?rule=per-address", "").want(200).says(`{"items":[]}`)
	// One that everybody's override blocks is not unblocked alone.
	i.do("POST", "/v1/overrides", `{"rule": "per-address", "key": {"client_ip": "*"}, "block": true}`).want(201)
	unblock("192.0.2.7").want(409)
}

// Values of keys may be as long as tokens are, and so may reasons.
func testLongSubjects(t *testing.T, database string) {
	i := newInstance(t, database)
	long := strings.Repeat("x", 5000)
	i.do("POST", "/v1/subjects/reset", `{"rule": "per-key", "key": {"api_key": "`+long+`"}, "reason": "`+long+`"}`).want(200)
	i.auditIs("reset subject")
}

// Who charges somebody by a request that is only described leaves a trace, without the secrets in it.
func testTakesAreAudited(t *testing.T, database string) {
	i := newInstance(t, database)
	const body = `{"url": "/x?token=SECRET", "headers": {"X-API-Key": "SECRET"}, "cost": 2, "take": `
	i.do("POST", "/v1/check", body+`false}`).want(200)
	i.do("POST", "/v1/check", body+`true}`).want(200).says(`"taken":true`)
	i.auditIs("take request")
	if log := i.do("GET", "/v1/audit", "").want(200).says(`"path":"/x"`, `"cost":2`, `"from":"192.0.2.1"`); bytes.Contains(log.body, []byte("SECRET")) {
		t.Errorf("%s", log.body)
	}
}

// What a dry run of a block says is what comes of it.
func TestDryBlock(t *testing.T) {
	i := newInstance(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	const body = `{"rule": "per-key", "key": {"api_key": "k"}, "until": "2126-01-01", "reason": "abuse"}`
	foreseen := i.do("POST", "/v1/subjects/block?dry_run=true", body).want(200)
	is := i.do("POST", "/v1/subjects/block", body).want(200)
	if got, want := strings.Replace(string(foreseen.body), `"dry_run":true`, `"dry_run":false`, 1), string(is.body); got != want {
		t.Errorf("foreseen:\n%s\nis:\n%s", got, want)
	}
	i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-2"}, "limit": "9/day"}`).want(201)
	i.do("POST", "/v1/subjects/unblock?dry_run=true", strings.ReplaceAll(`{"rule": "per-key", "key": {"api_key": "k"}}`, `"k"`, `"k-2"`)).
		want(200).says(`"after":{"rule":"per-key","source":"file","key":{"api_key":"k-2"},"blocked":false,"override":{`)
}

// What somebody has spoiled by SQL is mended by the API, and lets nobody in.
func TestSpoiledRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.db")
	i := newInstance(t, "sqlite:"+file)
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	spoil := func(text string) {
		t.Helper()
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	old := i.do("POST", "/v1/rules", `{"name": "new", "key": ["client_ip"], "limit": "9/day"}`).want(201)
	i.spoiled.Store(true)
	spoil(`UPDATE sluice_rules SET document = '{"limt": 1}'`)
	i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "9/day"}`).want(422).says(`rule \"new\": it cannot be read`)
	const mended = `{"key": ["client_ip"], "limit": "8/day"}`
	i.do("PUT", "/v1/rules/new", mended, match(old.etag())).want(412)
	i.do("PUT", "/v1/rules/new", mended, match("*")).want(200)
	i.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "9/day"}`).want(201)

	spoil(`INSERT INTO sluice_tokens (name, hash, role, expires_at) VALUES ('ci', '` + strings.Repeat("ab", 32) + `', 'admin', 'soon')`)
	i.eventually("there is a token", func() bool { c := i.db.Known(); return c != nil && len(c.Tokens) > 0 })
	i.do("GET", "/v1/policy", "").want(401)
}

// A block is a change of the policy where there is a database, and the log says so as of any other;
// what is deleted has no version.
func TestBlocksAreLogged(t *testing.T) {
	i := newInstance(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	const subject = `{"rule": "per-key", "key": {"api_key": "k"}`
	logged := func(method, path, body, want string) {
		t.Helper()
		i.log.Reset()
		if i.do(method, path, body); strings.Count(i.log.String(), "changed the policy") != strings.Count(want, "changed the policy") || !strings.Contains(i.log.String(), want) {
			t.Errorf("%s %s: the log is %q, want %q", method, path, i.log, want)
		}
	}
	const block = subject + `, "until": "2126-12-31"}`
	logged("POST", "/v1/subjects/block?dry_run=true", block, "")
	logged("POST", "/v1/subjects/block", block, `msg="admin API changed the policy" actor=local kind=override deleted=false version=1`)
	logged("POST", "/v1/subjects/unblock?dry_run=true", subject+"}", "")
	logged("POST", "/v1/subjects/unblock", subject+"}", "msg=\"admin API changed the policy\" actor=local kind=override deleted=true\n")
}
