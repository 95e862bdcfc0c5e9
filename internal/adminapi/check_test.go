package adminapi_test

import (
	"testing"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/internal/source"
)

type verdict struct {
	Allowed, Exempt, Taken   bool
	Missing, Blocked, Client string
	RetryAfter               int64 `json:"retry_after"`
	Rules                    []struct {
		Rule, Source, Why, Key string
		Applies                bool
		Limits                 []struct {
			Name            string
			Used, Remaining int64
			Allowed         bool
		}
	}
}

func TestCheck(t *testing.T) {
	s := start(t, nil)
	check := func(body string) (v verdict) {
		t.Helper()
		s.do("POST", "/v1/check", body).want(200).into(&v)
		return v
	}
	if v := check(`{"url": "/health"}`); !v.Allowed || !v.Exempt || v.Client != "192.0.2.1" {
		t.Errorf("%+v", v)
	}
	if v := check(`{"url": "/", "from": "203.0.113.5"}`); v.Allowed || v.Blocked != "per-address" {
		t.Errorf("%+v", v)
	}
	const login = `{"method": "POST", "url": "/login", "headers": {"content-type": "application/json"}, "body": "{\"username\": \"alice\"}"`
	for range 7 { // nothing is taken
		if v := check(login + "}"); !v.Allowed || v.Taken {
			t.Fatalf("%+v", v)
		}
	}
	for i := range 7 {
		v := check(login + `, "take": true}`)
		if v.Allowed != (i < 5) || v.Taken != (i < 5) {
			t.Errorf("take %d: %+v", i, v)
		}
	}
	v := check(login + "}")
	if v.Allowed || v.RetryAfter < 1 || v.RetryAfter > 60 {
		t.Errorf("%+v", v)
	}
	for _, r := range v.Rules {
		if r.Rule == "login" && (!r.Applies || r.Source != "file" || r.Limits[0].Name != "login-1m" || r.Limits[0].Allowed || r.Limits[0].Used != 5 || r.Limits[1].Used != 5) {
			t.Errorf("%+v", r)
		}
	}
	if used := s.used("rule=login&key.client_ip=192.0.2.1&key.body:username=ALICE")["login-1m rule"]; used != 5 {
		t.Errorf("%d are used, 5 were taken", used)
	}
}

func TestCheckMistakes(t *testing.T) {
	s := start(t, nil)
	for body, want := range map[string]string{
		`{}`:                                `"pointer":"/url"`,
		`{"url": "users"}`:                  `"pointer":"/url"`,
		`{"url": "mailto:x"}`:               `"pointer":"/url"`,
		`{"url": "%zz"}`:                    `"pointer":"/url"`,
		`{"url": "/", "from": "home"}`:      `"pointer":"/from"`,
		`{"url": "/", "from": "fe80::1%e"}`: `"pointer":"/from"`,
		`{"url": "/", "cost": -1}`:          `"pointer":"/cost"`,
		`{"url": "/", "headers": []}`:       `"pointer":"/headers"`,
		`{"url": "/", "header": {}}`:        `"pointer":"/header"`,
	} {
		s.do("POST", "/v1/check", body).want(422).says(want)
	}
	s.do("POST", "/v1/check", `{"url": `).want(400).says("not JSON")
	s.do("POST", "/v1/check", `{"url": "/"} {}`).want(400).says("not JSON")
	s.do("POST", "/v1/check", `{"url": "/"}`, "Content-Type: text/plain").want(415)
	s.do("GET", "/v1/check", "").want(405)
}

// A viewer may ask what would happen, and not make it happen.
func TestCheckTakeNeedsOperator(t *testing.T) {
	s := start(t, func(c *adminapi.Config) {
		c.Tokens = func() ([]control.Token, error) {
			return []control.Token{{Name: "v", Hash: control.HashToken("viewer"), Role: source.Viewer}, {Name: "o", Hash: control.HashToken("operator"), Role: source.Operator}}, nil
		}
	})
	for token, status := range map[string]int{"viewer": 403, "operator": 200} {
		s.token = token
		s.do("POST", "/v1/check", `{"url": "/"}`).want(200)
		s.do("POST", "/v1/check", `{"url": "/", "take": true}`).want(status)
	}
}
