package adminapi_test

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/policy"
)

type subjectState struct {
	Rule, Source string
	Key          map[string]string
	Blocked      bool
	BlockedUntil *time.Time `json:"blocked_until"`
	Override     *struct {
		ID       string
		Document policy.Override
	}
	Limits []struct {
		Name, Limit, From, Source string
		Capacity, Used, Remaining int64
		FullAt                    *time.Time `json:"full_at"`
	}
}

type subjectLimits struct{ Rules []subjectState }

type subjectChange struct {
	DryRun        bool `json:"dry_run"`
	Before, After subjectState
}

// take sends n requests from an address through the policy, and returns how many passed.
func (s *server) take(n int, from string, key string) (passed int) {
	for range n {
		r := &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr(from), Header: map[string][]string{}}
		if key != "" {
			r.Header.Set("X-API-Key", key)
		}
		if s.engine.Decide(context.Background(), r).Allowed {
			passed++
		}
	}
	return passed
}

// used returns what is used of the limits of a subject, by their names.
func (s *server) used(query string) map[string]int64 {
	s.t.Helper()
	var got subjectLimits
	s.do("GET", "/v1/subjects?"+query, "").want(200).into(&got)
	used := map[string]int64{}
	for _, r := range got.Rules {
		for _, l := range r.Limits {
			used[l.Name+" "+l.From] = l.Used
		}
	}
	return used
}

func TestSubjectLimits(t *testing.T) {
	s := start(t, nil)
	before := time.Now()
	s.take(3, "192.0.2.7", "k-1")
	var got subjectLimits
	s.do("GET", "/v1/subjects?key.client_ip=192.0.2.7", "").want(200).into(&got)
	if len(got.Rules) != 1 || got.Rules[0].Rule != "per-address" || got.Rules[0].Source != "file" || got.Rules[0].Blocked {
		t.Fatalf("%+v", got)
	}
	l := got.Rules[0].Limits[0]
	if l.Name != "per-address" || l.Limit != "200/hour burst 200" || l.From != "rule" || l.Source != "file" || l.Capacity != 200 || l.Used != 3 || l.Remaining != 197 {
		t.Errorf("%+v", l)
	}
	// Three of 200 an hour drain in 54 s.
	if l.FullAt == nil || l.FullAt.Before(before.Add(53*time.Second)) || l.FullAt.After(time.Now().Add(55*time.Second)) {
		t.Errorf("full at %v, asked at %v", l.FullAt, before)
	}
	for query, want := range map[string]string{
		"key.api_key=k-1":  "rule",     // its own
		"key.api_key=k-7":  "tier:pro", // by the table of subjects
		"key.api_key=k-42": "override",
	} {
		s.do("GET", "/v1/subjects?rule=per-key&"+query, "").want(200).into(&got)
		if len(got.Rules) != 1 {
			t.Fatalf("%s: %+v", query, got)
		}
		found := false
		for _, l := range got.Rules[0].Limits {
			found = found || l.From == want
		}
		if !found || want == "override" && (got.Rules[0].Override == nil || got.Rules[0].Override.Document.Reason != "a launch") {
			t.Errorf("%s: %+v, want %s", query, got, want)
		}
	}
	// All the rules whose parts are given.
	if got := s.used("key.client_ip=192.0.2.7&key.body:username=alice"); len(got) != 3 || got["per-address rule"] != 3 || got["login-1m rule"] != 0 {
		t.Errorf("%v", got)
	}
	// A rule without a key has one count.
	if got := s.used("rule=all"); len(got) != 1 || got["all rule"] < 1 {
		t.Errorf("%v", got)
	}
}

func TestSubjectMistakes(t *testing.T) {
	s := start(t, nil)
	for path, want := range map[string]string{
		"/v1/subjects?rule=nowhere&key.client_ip=192.0.2.7":             "404 there is no rule",
		"/v1/subjects?rule=nowhere":                                     "404 there is no rule",
		"/v1/subjects?key.body:username=alice":                          "404 no rule counts by body:username alone",
		"/v1/subjects?rule=login&key.client_ip=192.0.2.7":               "400 which body:username?",
		"/v1/subjects?rule=per-address&key.client_ip=300.0.0.1":         "400 is not an address",
		"/v1/subjects?rule=per-address&key.clientip=192.0.2.7":          "400 is not a part of its key",
		"/v1/subjects?rule=health&key.client_ip=192.0.2.7":              "400 exempt",
		"/v1/subjects?key.client_ip=192.0.2.7&key.client_ip=192.0.2.8":  "400 there twice",
		"/v1/subjects?rule=per-address&key.client_ip=192.0.2.7&units=1": "400 no such parameter",
		"/v1/subjects?rule=per-address&key.client_ip=192.0.2.7&%zz":     "400 cannot be read",
		"/v1/subjects?rule=per-address&key.client_ip=192.0.2.7;limit=1": "400 cannot be read",
		"/v1/subjects?rule=per-address&key.client_ip=192.0.2.7%00":      "400 is not an address",
		"/v1/subjects?rule=per-address&key.client_ip=203.0.113.0/24":    "400 is a network",
		"/v1/subjects?limit=0":                                          "400 use a number from 1 to 1000",
		"/v1/subjects?cursor=***":                                       "400 none of those that this API gave",
		"/v1/policy?key.client_ip=192.0.2.7":                            "400 no such parameter",
		"/v1/rules?rule=login":                                          "400 no such parameter",
		"/v1/rules/nowhere":                                             "404 there is no rule",
		"/v1/nowhere":                                                   "404 no such path",
		"/v1/":                                                          "404 no such path",
		"/v1/rules/per-key/x":                                           "404 no such path",
		"/v1/rules/":                                                    "404 no such path",
		"/v1/audit":                                                     "409 --rules",
	} {
		status, text, _ := strings.Cut(want, " ")
		a := s.do("GET", path, "").says(text)
		if got := a.header.Get("Content-Type"); got != "application/problem+json" || status != strconv.Itoa(a.status) {
			t.Errorf("%s: %d %s, want %s", path, a.status, got, want)
		}
	}
}

func TestReset(t *testing.T) {
	s := start(t, nil)
	s.take(30, "192.0.2.7", "k-1") // ten are refused by per-key
	if s.take(1, "192.0.2.7", "k-1") != 0 {
		t.Fatal("the limit of 20 at once is not used up")
	}
	const body = `{"rule": "per-key", "key": {"api_key": "k-1"}, "reason": "a support case"}`
	var got subjectChange
	s.do("POST", "/v1/subjects/reset?dry_run=true", body).want(200).into(&got)
	if !got.DryRun || got.Before.Limits[0].Used != 20 || got.After.Limits[0].Used != 0 || got.After.Limits[0].Remaining != 20 {
		t.Errorf("%+v", got)
	}
	if s.take(1, "192.0.2.7", "k-1") != 0 {
		t.Error("a dry run has reset")
	}
	s.do("POST", "/v1/subjects/reset", body).want(200).into(&got)
	if got.DryRun || got.Before.Limits[0].Used != 20 || got.After.Limits[0].Used != 0 {
		t.Errorf("%+v", got)
	}
	if s.take(1, "192.0.2.7", "k-1") != 1 {
		t.Error("refused after a reset")
	}
	log := s.log.String()
	if !strings.Contains(log, "action=reset") || !strings.Contains(log, "actor=local") || strings.Contains(log, "k-1") {
		t.Errorf("the log has to say what was done, and no API key: %s", log)
	}
}

func TestRefund(t *testing.T) {
	s := start(t, nil)
	s.take(20, "192.0.2.7", "k-1")
	var got subjectChange
	s.do("POST", "/v1/subjects/refund?dry_run=true", `{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 5}`).want(200).into(&got)
	if got.After.Limits[0].Used != 15 || s.used("rule=per-key&key.api_key=k-1")["per-key rule"] != 20 {
		t.Errorf("dry: %+v", got)
	}
	s.do("POST", "/v1/subjects/refund", `{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 5}`).want(200).into(&got)
	if got.After.Limits[0].Used != 15 {
		t.Errorf("%+v", got)
	}
	if passed := s.take(9, "192.0.2.7", "k-1"); passed < 5 || passed > 6 { // one may have drained
		t.Errorf("%d passed, 5 were given back", passed)
	}
	for body, pointer := range map[string]string{
		`{"rule": "per-key", "key": {"api_key": "k-1"}}`:                               "/units",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 0}`:                   "/units",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "units": -1}`:                  "/units",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 1.5}`:                 "/units",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "units": "5"}`:                 "/units",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 9223372036854775807}`: "/units",
		`{"rule": "per-key", "key": {"api_key": 5}, "units": 1}`:                       "/key",
		`{"rule": "per-key", "key": {"apikey": "k-1"}, "units": 1}`:                    "/key",
		`{"rule": "per-kee", "key": {"api_key": "k-1"}, "units": 1}`:                   "/rule",
		`{"key": {"api_key": "k-1"}, "units": 1}`:                                      "/rule",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "units": 1, "unit": 1}`:        "/unit",
	} {
		s.do("POST", "/v1/subjects/refund", body).want(422).says(`"pointer":"` + pointer)
	}
}

// What parsers would read in different ways is refused.
func TestNamesTwice(t *testing.T) {
	s := start(t, nil)
	for body, pointer := range map[string]string{
		`{"rule": "per-key", "rule": "login", "key": {"api_key": "k-1"}}`:                 "/rule",
		`{"rule": "per-key", "RULE": "login", "key": {"api_key": "k-1"}}`:                 "/RULE",
		`{"rule": "per-key", "key": {"api_key": "k-1"}, "rea\u017fon": "", "reason": ""}`: "/reason",
		`{"rule": "per-key", "key": {"api_key": "k-1", "api_key": "k-2"}}`:                "/key/api_key",
		`{"rule": "per-key", "key": [{"a/b": {"c": 1, "c": 2}}]}`:                         "/key/a~1b/c",
		`["rule"]`: "",
	} {
		s.do("POST", "/v1/subjects/reset", body).want(422).says(`"pointer":"` + pointer + `"`)
	}
	// Names of parts are told apart by case.
	s.do("POST", "/v1/subjects/reset", `{"rule": "per-key", "key": {"api_key": "k-1", "API_KEY": "k-2"}}`).want(422).says("API_KEY", "is not a part of its key")
}

func TestBlockHere(t *testing.T) {
	s := start(t, nil)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	body := `{"rule": "per-key", "key": {"api_key": "k-1"}, "until": "` + until.Format(time.RFC3339) + `"}`
	var got subjectChange
	s.do("POST", "/v1/subjects/block?dry_run=true", body).want(200).into(&got)
	if !got.After.Blocked || s.take(1, "192.0.2.7", "k-1") != 1 {
		t.Errorf("dry: %+v", got)
	}
	s.do("POST", "/v1/subjects/block", body).want(200).into(&got)
	if !got.After.Blocked || !got.After.BlockedUntil.Equal(until) || got.Before.Blocked {
		t.Errorf("%+v", got)
	}
	if s.take(1, "192.0.2.7", "k-1") != 0 || s.take(1, "192.0.2.7", "k-2") != 1 {
		t.Error("k-1 has to be blocked, and nobody else")
	}
	s.do("GET", "/v1/policy", "").want(200).says(`"subject":"per-key/k-1"`)
	s.do("POST", "/v1/subjects/unblock", `{"rule": "per-key", "key": {"api_key": "k-1"}}`).want(200).into(&got)
	if !got.Before.Blocked || got.After.Blocked || s.take(1, "192.0.2.7", "k-1") != 1 {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "tomorrow", "2020-01-01", "2020-01-01T00:00:00Z"} {
		s.do("POST", "/v1/subjects/block", `{"rule": "per-key", "key": {"api_key": "k-1"}, "until": "`+text+`"}`).want(422).says(`"pointer":"/until"`)
	}
	// The override of the file blocks a network.
	s.do("POST", "/v1/subjects/unblock", `{"rule": "per-address", "key": {"client_ip": "203.0.113.9"}}`).want(409).says("policy file")
}

// A date is the end of its day in UTC.
func TestBlockUntilDate(t *testing.T) {
	s := start(t, nil)
	var got subjectChange
	s.do("POST", "/v1/subjects/block", `{"rule": "per-key", "key": {"api_key": "k-1"}, "until": "2126-12-31"}`).want(200).into(&got)
	if want := time.Date(2127, 1, 1, 0, 0, 0, 0, time.UTC); !got.After.BlockedUntil.Equal(want) {
		t.Errorf("blocked until %v, want %v", got.After.BlockedUntil, want)
	}
}

// Without a database everything can be read, and changes of the policy say what is needed.
func TestWithoutDatabase(t *testing.T) {
	s := start(t, nil)
	s.do("GET", "/v1/rules", "").want(200).says(`"id":"per-key","source":"file"`, `"limit":"100/minute burst 20"`)
	s.do("GET", "/v1/tiers", "").want(200).says(`{"name":"pro","limits":{"per-key":"1000/minute"}}`)
	s.do("GET", "/v1/subjects", "").want(200).says(`{"subject":"k-7","tier":"pro"}`)
	s.do("GET", "/v1/overrides?rule=per-key", "").want(200).says(`"reason":"a launch"`, adminapi.control.OverrideID("per-key", map[string]string{"api_key": "k-42"}))
	a := s.do("GET", "/v1/rules/per-key", "").want(200).says(`"name":"per-key"`)
	etag := a.header.Get("ETag")
	for _, change := range [][3]string{
		{"POST", "/v1/rules", `{"name": "new", "limit": "1/second"}`},
		{"PUT", "/v1/rules/per-key", `{"limit": "1/second"}`},
		{"DELETE", "/v1/rules/per-key", ""},
		{"POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k"}, "limit": "1/second"}`},
		{"POST", "/v1/subjects", `{"subject": "k", "tier": "pro"}`},
		{"PUT", "/v1/tiers/pro", `{"limits": {"per-key": "1/second"}}`},
	} {
		s.do(change[0], change[1], change[2], "If-Match: "+etag).want(409).says("--rules")
	}
	s.do("GET", "/v1/rules/per-key", "", "If-None-Match: "+etag).want(304)
}

func TestPolicy(t *testing.T) {
	s := start(t, nil)
	a := s.do("GET", "/v1/policy", "").want(200).says(`"rules":[{"name":"health","source":"file"}`, `"overrides":2`, `"subjects":1`, `"database":false`)
	s.do("GET", "/v1/policy", "", "If-None-Match: "+a.header.Get("ETag")).want(304)
	s.do("GET", "/v1/policy", "", `If-None-Match: "other"`).want(200)
}

// Pages have every item once, in order.
func TestPages(t *testing.T) {
	s := start(t, nil)
	var ids []string
	for path := "/v1/rules?limit=2"; ; {
		var got struct {
			Items []struct{ ID string }
			Next  string
		}
		s.do("GET", path, "").want(200).into(&got)
		for _, i := range got.Items {
			ids = append(ids, i.ID)
		}
		if got.Next == "" {
			break
		}
		if len(got.Items) != 2 {
			t.Fatalf("a page of %d with another behind it", len(got.Items))
		}
		path = "/v1/rules?limit=2&cursor=" + got.Next
	}
	if got := strings.Join(ids, " "); got != "all health login per-address per-key" {
		t.Error(got)
	}
}
