package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicehq/sluice/policyfile"
)

// The whole policy is a shadow as long as the file or the database says so: neither enforces what the
// other does not, and its end changes the ETag.
func TestShadowOfFileAndDatabase(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "rules.db")
	i := newInstance(t, database)
	const path = "/v1/policy/shadow"
	put := func(until string, fields ...string) *reply {
		t.Helper()
		return i.do("PUT", path, `{"until": "`+until+`"}`, fields...)
	}
	says := func(shadow string) {
		t.Helper()
		doc, err := policyfile.Decode("policy.yaml", []byte(filePolicy))
		if err != nil {
			t.Fatal(err)
		}
		doc.Shadow = shadow
		if _, err = i.stack.File(doc, nil); err == nil {
			err = i.stack.UseFile()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := i.do("GET", path, "").want(200).says(`"on":false`)
	says("2126-01-01")
	i.do("GET", path, "", "If-None-Match: "+before.etag()).want(200).says(`"on":true`, `"from":"file"`)
	put("2127-01-01", match(before.etag())).want(412)
	put("").want(409).says("the policy file says")
	put("2125-01-01").want(409).says("or shorten")
	put("always", match("*")).want(200).says(`"from":"database"`)
	i.do("PUT", path+"?dry_run=true", `{"until": ""}`).want(200).says(`"after":{"on":true,"until":"2126-01-01"`, `"from":"file"`)
	put("").want(200).says(`"after":{"on":true,"until":"2126-01-01"`)
	put("").want(409)

	// What the database says ends first, and the file's holds.
	says("")
	soon := time.Now().Add(5 * time.Second)
	put(soon.UTC().Format(time.RFC3339Nano)).want(200).says(`"on":true`)
	says("always")
	if time.Sleep(time.Until(soon)); !i.engine.Policy().WatchOnly() {
		t.Error("the end of the database's has ended the file's")
	}
	says("")
	i.do("GET", path, "").want(200).says(`"on":false`)

	// It ends on all instances, and whoever asks whether it is as they have read it is told so.
	other := newInstanceAs(t, database, i.token)
	soon = time.Now().Add(5 * time.Second)
	held := put(soon.UTC().Format(time.RFC3339Nano)).want(200).says(`"on":true`).etag()
	other.eventually("the other instance refuses nothing", func() bool { return other.engine.Policy().WatchOnly() || time.Now().After(soon) })
	time.Sleep(time.Until(soon))
	for _, one := range []*instance{i, other} {
		if one.engine.Policy().WatchOnly() {
			t.Error("an instance refuses nothing after the end")
		}
	}
	i.do("GET", path, "", "If-None-Match: "+held).want(200).says(`"on":false`)
	put("", match(held)).want(412)
}
