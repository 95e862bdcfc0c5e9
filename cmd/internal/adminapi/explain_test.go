package adminapi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

func TestExplain(t *testing.T) {
	s := start(t, func(c *setup) { c.Tokens = roles })
	s.Token = "operator"
	explain := func(query string) (got control.Explanation) {
		t.Helper()
		s.Do("GET", "/v1/explain?"+query, "").Want(200).Into(&got)
		return got
	}
	words := func(e control.Explanation) (all []string) {
		for _, r := range e.Rules {
			text := fmt.Sprint(r.Rule, " ", r.Applies, " ", r.Key)
			for _, l := range r.Limits {
				text += fmt.Sprintf(" %s %s %d-%d/%d→%d", l.Name, l.From, l.Cost, l.Before.Used, l.Capacity, l.After.Used)
			}
			all = append(all, text)
		}
		return all
	}
	s.take(2, "192.0.2.7", "k-7")
	got := explain("url=/&from=192.0.2.7&header.X-API-Key=k-7")
	if got := words(got); !slices.Equal(got, []string{
		"health false ", "per-address true per-address/192.0.2.7 per-address rule 1-2/200→3",
		"per-key true per-key/k-7 per-key tier:pro 1-2/1000→3", "login false ", "all true all/ all rule 1-2/1000→3",
	}) {
		t.Errorf("%q", got)
	}
	if got.Tier == nil || got.Tier.Name != "pro" || got.Client != "192.0.2.7" || got.Method != "GET" || got.URL != "/" || got.Rules[1].OnError != "allow" {
		t.Errorf("%+v", got)
	}
	s.Token = "viewer" // viewers see keys as the rule's show_key sets
	if got := explain("url=/&header.X-API-Key=k-42&from=192.0.2.7"); got.Rules[2].Key != "…" || got.Rules[1].Key != "192.0.2.7" {
		t.Errorf("%+v", got.Rules)
	}
	s.Token = "operator"
	if got := explain("url=/&header.X-API-Key=k-42"); got.Rules[2].Override == nil || got.Rules[2].Limits[0].From != "override" {
		t.Errorf("%+v", got.Rules[2])
	}
	got = explain("url=/&from=203.0.113.9")
	if got.Allowed || got.Blocked != "per-address" || got.Response.Status != 403 || got.RetryAfter >= 0 {
		t.Errorf("%+v", got)
	}
	if got := explain("url=/health"); !got.Exempt || len(got.Response.Header) != 0 {
		t.Errorf("%+v", got)
	}
	// The body of the request is read for the key, and nothing is charged.
	const login = `{"method": "POST", "url": "/login", "headers": {"Content-Type": "application/x-www-form-urlencoded"}, "body": "username=alice", "from": "192.0.2.7"}`
	for range 7 {
		s.Do("POST", "/v1/explain", login).Want(200).Into(&got)
	}
	if l := got.Rules[3].Limits; len(l) != 2 || l[0].Before.Used != 0 || l[0].After.Used != 1 || got.Rules[3].Key != "login/192.0.2.7/alice" {
		t.Errorf("%+v", got.Rules[3])
	}
}
