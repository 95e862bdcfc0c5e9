package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Of two who go back at once one does, and what the file does not allow any more does not come back.
func TestGoBackTogether(t *testing.T) {
	i := newInstance(t, "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	file := func(lists map[string]policy.List) {
		t.Helper()
		doc, err := policyfile.Decode("policy.yaml", []byte(filePolicy))
		if err != nil {
			t.Fatal(err)
		}
		doc.Lists = lists
		if _, err = i.stack.File(doc, nil); err == nil {
			err = i.stack.UseFile()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	last := func() (entry int64) {
		t.Helper()
		var p struct{ Entry int64 }
		if err := json.Unmarshal(i.do("GET", "/v1/policy/previous", "").want(200).body, &p); err != nil {
			t.Fatal(err)
		}
		return p.Entry
	}
	back := func(entry int64) *reply {
		return i.do("POST", "/v1/policy/previous", fmt.Sprintf(`{"entry": %d}`, entry))
	}
	file(map[string]policy.List{"office": {Networks: []string{"192.0.2.0/24"}}})
	i.do("POST", "/v1/rules", `{"name": "own", "key": ["client_ip"], "clients": ["office"], "limit": "2/day"}`).want(201)
	i.do("PUT", "/v1/rules/own", `{"key": ["client_ip"], "limit": "7/day"}`, match("*")).want(200)

	entry, statuses := last(), [4]int{}
	var all sync.WaitGroup
	for n := range statuses {
		all.Go(func() { statuses[n] = back(entry).status })
	}
	all.Wait()
	count := map[int]int{}
	for _, s := range statuses {
		count[s]++
	}
	if count[200] != 1 || count[409] != 3 {
		t.Errorf("of four at once: %v", statuses)
	}
	i.do("GET", "/v1/rules/own", "").want(200).says("office")

	back(last()).want(200)
	file(nil)
	back(last()).want(422).says("what was there before makes no policy any more", "office")
	i.do("GET", "/v1/rules/own", "").want(200).says("7/day")
}
