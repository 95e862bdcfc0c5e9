package answer

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// answered returns the answer to a decision under a policy that may have its own answers.
func answered(p *policy.Policy, d *policy.Decision, request http.Header) (status int, h http.Header, body string) {
	var e Encoder
	var a Answer
	h = http.Header{}
	e.Encode(&a, h, d, Client{Header: request, CORS: p.CORS(), Answers: p.Answers()})
	return a.Status, h, string(a.Body())
}

// refusing is a policy with all kinds of denials. It allows the first request to /.
const refusing = `version: 1
cors: {origins: [https://app.example.com]}
rules:
  - {name: abusers, clients: [192.0.2.66], block: true}
  - {name: signed, match: /signed, key: [header:X-API-Key], missing: refuse, limit: 9/hour}
  - {name: login, match: /login, limit: 1/hour, on_error: deny}
  - {name: costly, match: /costly, limits: [2/hour, 50/day], cost: {header: X-Cost, max: 10}}
  - {name: api, match: '/{$}', key: [client_ip], limits: [1/minute, 2/day]}
`

// A reused Answer keeps nothing of a previous answer from the policy.
func TestOwnAnswerIsUsedAgain(t *testing.T) {
	t.Parallel()
	p := policytest.Parse(t, "rules: []\nanswers: {403: {status: 404, type: text/plain, body: own}}")
	var e Encoder
	var a Answer
	for i, want := range []string{"own", "", "Limit", "own", "The request", "own"} {
		d := policy.Decision{Blocked: "abusers", RetryAfter: sluice.Never}
		c := Client{Header: http.Header{"Accept": {"text/plain"}}, Answers: p.Answers()}
		h := http.Header{}
		switch want {
		case "":
			d = policy.Decision{Allowed: true}
		case "Limit":
			limiter := policytest.Limiter(t, memory.New(), "1/hour")
			Take(t.Context(), limiter, "one", "k", 2, &d)
		case "The request":
			d = policy.Decision{Missing: "header:X-A"}
		}
		e.Encode(&a, h, &d, c)
		if !strings.HasPrefix(string(a.Body()), want) || want == "own" && a.Status != 404 || want == "" && a.Status != 200 {
			t.Errorf("%d: %d %v %q, want %q", i, a.Status, h, a.Body(), want)
		}
	}
}

// An answer contains no text from the request, whatever the template writes.
func TestOwnAnswerHasNothingOfTheRequest(t *testing.T) {
	t.Parallel()
	document := refusing
	document += "  - {name: everything, match: /all, key: ['header:X-Marker', 'cookie:marker', 'query:marker', 'body:marker', host], limit: 1/hour, ambiguous: charge}\nanswers:\n"
	for _, status := range []string{"400", "403", "429", "503"} {
		document += "  " + status + `: {type: text/html, body: '{{.}} {{printf "%#v" .}}<script>{{.}}</script>'}` + "\n"
	}
	p := policytest.Parse(t, document)
	const marker = "m4rk3r"
	hostile := `"><script>` + marker + "\r\nX-" + marker + ": 1"
	refused := 0
	for _, store := range []sluice.Store{memory.New(), unavailableStore{}} {
		e := policy.NewEngine(store, p)
		for _, path := range []string{"/", "/", "/signed", "/login", "/login", "/costly", "/all", "/all", "/signed/../" + marker, "/all;" + marker} {
			r := &policy.Request{
				Method: marker, Host: marker + ".example.com", Path: path, RawQuery: "marker=" + url.QueryEscape(hostile), Peer: netip.MustParseAddr("192.0.2.1"),
				Header: http.Header{"X-Marker": {hostile}, "Cookie": {"marker=" + marker}, "X-Cost": {"9"}, "Accept": {"text/html;x=" + marker}, "User-Agent": {hostile}, "Origin": {"https://" + marker}},
				Body:   func(int64) ([]byte, error) { return []byte(`{"marker": "` + marker + `"}`), nil },
			}
			d := e.Decide(t.Context(), r)
			if d.Allowed {
				continue
			}
			refused++
			_, h, body := answered(p, &d, r.Header)
			for name, values := range h {
				body += name + ": " + strings.Join(values, ", ") + "\n"
			}
			if strings.Contains(body, marker) || !strings.Contains(body, "<script>") {
				t.Errorf("%s: %s", path, body)
			}
		}
	}
	if refused < 6 {
		t.Errorf("premise: %d are denied", refused)
	}
}

// An answer of a policy cannot set a field that an encoder sets.
func TestOwnHeadersAreNoneOfOurs(t *testing.T) {
	t.Parallel()
	p := policytest.Parse(t, refusing+"answers: {429: {type: text/html, body: no}}")
	names := map[string]bool{}
	for dialect := range NoRateLimit + 1 {
		e := Encoder{Dialect: dialect, DegradedField: true}
		for _, engine := range []*policy.Engine{policy.NewEngine(memory.New(), p), policy.NewEngine(unavailableStore{}, p)} {
			for range 2 {
				d := engine.Decide(t.Context(), &policy.Request{Path: "/login"})
				h := http.Header{}
				e.Encode(new(Answer), h, &d, Client{CORS: p.CORS(), Answers: p.Answers(), Header: http.Header{"Accept": {"text/html"}, "Origin": {"https://app.example.com"}}})
				for name := range h {
					names[name] = true
				}
			}
		}
	}
	for _, name := range StateFields {
		names[name] = true
	}
	if len(names) < 15 {
		t.Errorf("premise: only %v", names)
	}
	for name := range names {
		_, err := policy.Compile(policy.Document{Answers: map[string]policy.Answer{"429": {Headers: map[string]string{strings.ToLower(name): "1"}}}})
		if err == nil || !strings.Contains(err.Error(), "is set by Sluice") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Pages of other origins may read the ID of a denial.
func TestPagesReadTheID(t *testing.T) {
	t.Parallel()
	p := policytest.Parse(t, refusing)
	engine := policy.NewEngine(memory.New(), p)
	engine.NameRefusals()
	engine.Observe(func(context.Context, *policy.Observation) {})
	d := engine.Decide(t.Context(), &policy.Request{Path: "/signed"})
	_, h, _ := answered(p, &d, http.Header{"Origin": {"https://app.example.com"}})
	if exposed := strings.Split(h.Get("Access-Control-Expose-Headers"), ", "); len(h["X-Request-Id"]) != 1 || !slices.Contains(exposed, "X-Request-Id") {
		t.Errorf("the ID is %q, and %q are exposed", h["X-Request-Id"], exposed)
	}
}
