package answer

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func mustParse(t *testing.T, document string) *policy.Policy {
	t.Helper()
	p, err := policyfile.Parse("test.yaml", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answered returns the answer to a decision where the policy has some of its own.
func answered(p *policy.Policy, d *policy.Decision, request http.Header) (status int, h http.Header, body string) {
	var e Encoder
	var a Answer
	h = http.Header{}
	e.Encode(&a, h, d, Client{Header: request, CORS: p.CORS(), Answers: p.Answers()})
	return a.Status, h, string(a.Body())
}

// Accept chooses among what the policy has and what is built in.
func TestOwnAnswerByAccept(t *testing.T) {
	const (
		page   = "{type: text/html, body: <p>}"
		object = "{type: application/json, body: '{}'}"
		soap   = "{type: text/xml, body: <fault/>}"
		line   = "{type: text/plain, body: own}"
	)
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for _, test := range []struct{ bodies, accept, want string }{
		{page, "", "application/problem+json"},
		{page, "*/*", "application/problem+json"},
		{page, browser, "text/html; charset=utf-8"},
		{page, "text/html", "text/html; charset=utf-8"},
		{page, "text/*", "text/plain"}, // the page is for those who name it
		{page, "text/html;q=0.5, text/plain", "text/plain"},
		{page, "text/html;q=0", "application/problem+json"},
		{page, "image/png", "application/problem+json"},
		{page, "application/json", "application/json"},
		{page, strings.Repeat("a/b,", 300) + "text/html", "application/problem+json"}, // more than is looked at
		{object, "", "own application/json"},
		{object, "*/*", "own application/json"},
		{object, "application/json", "own application/json"},
		{object, "application/*", "own application/json"},
		{object, "application/problem+json", "application/problem+json"},
		{object, "application/problem+json, application/json", "own application/json"},
		{object, "text/plain", "text/plain"},
		{object, "image/png", "application/problem+json"},
		{object, browser, "own application/json"},
		{soap, "", "text/xml; charset=utf-8"},
		{soap, "text/xml, multipart/related", "text/xml; charset=utf-8"},
		{line, "text/plain", "text/plain; charset=utf-8"},
		{line, "application/json, text/plain, */*", "text/plain; charset=utf-8"},
		{page + ", " + soap, "*/*", "text/xml; charset=utf-8"},
		{page + ", " + soap, browser, "text/html; charset=utf-8"},
		{page + ", " + object + ", " + line, "*/*", "own application/json"},
		{page + ", " + object + ", " + line, "text/plain;q=0.9, application/json;q=0.8", "text/plain; charset=utf-8"},
	} {
		p := mustParse(t, "version: 1\nrules: []\nanswers: {429: {bodies: ["+test.bodies+"]}}")
		request := http.Header{}
		if test.accept != "" {
			request.Set("Accept", test.accept)
		}
		_, h, body := answered(p, &policy.Decision{RetryAfter: time.Second}, request)
		got := h.Get("Content-Type")
		if got == "application/json" && body == "{}" {
			got = "own " + got
		}
		if got != test.want || h.Get("Vary") != "Accept" {
			t.Errorf("%s, Accept %.50q: %s, want %s; Vary is %q", test.bodies, test.accept, got, test.want, h.Get("Vary"))
		}
		if length := h.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
			t.Errorf("%s: Content-Length %s of %q", test.bodies, length, body)
		}
	}
}

// refusing refuses in every way: the first request to / passes.
const refusing = `version: 1
cors: {origins: [https://app.example.com]}
rules:
  - {name: abusers, clients: [192.0.2.66], block: true}
  - {name: signed, match: /signed, key: [header:X-API-Key], missing: refuse, limit: 9/hour}
  - {name: login, match: /login, limit: 1/hour, on_error: deny}
  - {name: costly, match: /costly, limits: [2/hour, 50/day], cost: {header: X-Cost, max: 10}}
  - {name: api, match: '/{$}', key: [client_ip], limits: [1/minute, 2/day]}
`

// A template has what the client is told anyway.
func TestOwnAnswerValues(t *testing.T) {
	document := refusing + "answers:\n"
	for _, status := range []string{"400", "403", "429", "503"} {
		document += "  " + status + ": {status: 420, type: application/x.all+json, body: '{{json .}}'}\n"
	}
	p := mustParse(t, document)
	synctest.Test(t, func(t *testing.T) {
		counted := policy.NewEngine(memory.New(), p)
		away := policy.NewEngine(awayStore{}, p)
		decide := func(e *policy.Engine, path, cost, from string) policy.Decision {
			return e.Decide(t.Context(), &policy.Request{Path: path, Header: http.Header{"X-Cost": {cost}}, Peer: netip.MustParseAddr(from)})
		}
		decide(counted, "/", "", "192.0.2.1")
		time.Sleep(10 * time.Second)
		for name, test := range map[string]struct {
			d    policy.Decision
			want policy.AnswerValues
		}{
			"limit": {decide(counted, "/", "", "192.0.2.1"), policy.AnswerValues{Type: quotaType, Title: "Too Many Requests", Error: "rate_limit_exceeded",
				Detail: "Limit api-1m: 1 per 60s. Retry in 50 s.", ViolatedPolicies: []string{"api-1m"}, RetryAfter: 50, Rule: "api", Limit: 1}},
			"never": {decide(counted, "/costly", "3", "192.0.2.1"), policy.AnswerValues{Type: quotaType, Title: "Too Many Requests", Error: "rate_limit_exceeded",
				Detail:           "Limit costly-1h: 2 per 3600s. The request asks for 3, more than it ever allows at once.",
				ViolatedPolicies: []string{"costly-1h"}, Rule: "costly", Limit: 2, Remaining: 2}},
			"block":   {decide(counted, "/", "", "192.0.2.66"), policy.AnswerValues{Type: "about:blank", Title: "Forbidden", Error: "blocked", Detail: "Rule abusers blocks the request.", Rule: "abusers"}},
			"missing": {decide(counted, "/signed", "", "192.0.2.1"), policy.AnswerValues{Type: "about:blank", Title: "Bad Request", Error: "missing_key", Detail: "The request lacks header:X-API-Key."}},
			"away": {decide(away, "/login", "", "192.0.2.1"), policy.AnswerValues{Type: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", Title: "Service Unavailable",
				Error: "temporary_reduced_capacity", Detail: "The request cannot be taken at the moment. Retry in 1 s.", RetryAfter: 1, Rule: "login"}},
		} {
			status, h, body := answered(p, &test.d, nil)
			var got policy.AnswerValues
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%s: %v: %s", name, err, body)
			}
			// The fields say the same.
			if retry := h.Get("Retry-After"); retry != "" && retry != strconv.FormatInt(got.RetryAfter, 10) || retry == "" && got.RetryAfter != 0 {
				t.Errorf("%s: Retry-After is %q, and the body says %d", name, retry, got.RetryAfter)
			}
			if reset := h.Get("X-RateLimit-Reset"); reset != "" && (reset != strconv.FormatInt(got.Reset.Unix(), 10) || h.Get("X-RateLimit-Remaining") != strconv.FormatInt(got.Remaining, 10)) {
				t.Errorf("%s: X-RateLimit has %v, and the body says %+v", name, h, got)
			}
			if again := time.Now().Add(time.Duration(got.RetryAfter) * time.Second); got.RetryAfter > 0 && (got.Reset.Before(again) || got.Reset.After(again.Add(time.Second))) {
				t.Errorf("%s: the reset is at %v, want %v", name, got.Reset, again)
			}
			test.want.Status, test.want.Reset = 420, got.Reset
			if test.want.Title = "Refused"; status != 420 || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s: %d %+v\nwant %+v", name, status, got, test.want)
			}
		}
	})
}

const quotaType = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Another status stands in the built-in bodies, too, and all else stays.
func TestOwnStatus(t *testing.T) {
	plain, other := mustParse(t, refusing), mustParse(t, refusing+"answers: {429: {status: 503, headers: {x-support: here, X-A: b}}, 403: {status: 404}}")
	origin := http.Header{"Origin": {"https://app.example.com"}}
	d := policy.NewEngine(memory.New(), other).Decide(t.Context(), &policy.Request{Path: "/costly", Header: http.Header{"X-Cost": {"3"}}})
	_, want, wantBody := answered(plain, &d, origin)
	status, got, body := answered(other, &d, origin)
	if want := strings.NewReplacer(`"Too Many Requests"`, `"Service Unavailable"`, "429", "503").Replace(wantBody); status != 503 || body != want {
		t.Errorf("%d %s\nwant %s", status, body, want)
	}
	if exposed := strings.Join(got["Access-Control-Expose-Headers"], ", "); !strings.HasSuffix(exposed, "X-RateLimit-Reset, X-A, X-Support") {
		t.Errorf("pages may read %s", exposed)
	}
	if got.Get("X-Support") != "here" || got.Get("X-A") != "b" {
		t.Errorf("%v", got)
	}
	for _, name := range []string{"X-A", "X-Support", "Access-Control-Expose-Headers"} {
		delete(got, name)
		delete(want, name)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	status, got, body = answered(other, &policy.Decision{Blocked: "abusers", RetryAfter: sluice.Never}, http.Header{"Accept": {"application/json"}})
	if status != 404 || got.Get("X-A") != "" || body != `{"error":"blocked","message":"Rule abusers blocks the request."}`+"\n" {
		t.Errorf("%d %v %s", status, got, body)
	}
}

// A page of another origin reads the own body, and both Accept and Origin are told to vary.
func TestOwnAnswerWithCORS(t *testing.T) {
	p := mustParse(t, refusing+"answers: {429: {type: text/plain, body: no}}")
	_, h, body := answered(p, &policy.Decision{RetryAfter: time.Second}, http.Header{"Origin": {"https://app.example.com"}})
	if body != "no" || h.Get("Access-Control-Allow-Origin") != "https://app.example.com" || strings.Join(h["Vary"], ", ") != "Origin, Accept" {
		t.Errorf("%v %s", h, body)
	}
}

// What can be made of the samples and not of this refusal is answered with what is built in.
func TestOwnAnswerThatFails(t *testing.T) {
	p := mustParse(t, "version: 1\nrules: []\nanswers: {403: {status: 404, type: text/plain, body: 'x{{if eq .Rule \"abusers\"}}{{index .ViolatedPolicies 7}}{{end}}'}}")
	for rule, want := range map[string]string{"abusers": "Rule abusers blocks the request.\n", "others": "x"} {
		status, h, body := answered(p, &policy.Decision{Blocked: rule, RetryAfter: sluice.Never}, http.Header{"Accept": {"text/plain"}})
		if length := h.Get("Content-Length"); status != 404 || body != want || (length != "") != (want == "x") {
			t.Errorf("%d %v %q, want %q", status, h, body, want)
		}
	}
}

// An answer that is used again has nothing of the policy's own of the last one.
func TestOwnAnswerIsUsedAgain(t *testing.T) {
	p := mustParse(t, "version: 1\nrules: []\nanswers: {403: {status: 404, type: text/plain, body: own}}")
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
			limiter := mustLimiter(t, memory.New(), "1/hour", sluice.TokenBucket)
			TakeCost(t.Context(), limiter, "one", "k", 2, &d)
		case "The request":
			d = policy.Decision{Missing: "header:X-A"}
		}
		e.Encode(&a, h, &d, c)
		if !strings.HasPrefix(string(a.Body()), want) || want == "own" && a.Status != 404 || want == "" && a.Status != 200 {
			t.Errorf("%d: %d %v %q, want %q", i, a.Status, h, a.Body(), want)
		}
	}
}

// Nothing that a request brings is in an answer to it, whatever the template writes.
func TestOwnAnswerHasNothingOfTheRequest(t *testing.T) {
	document := refusing
	document += "  - {name: everything, match: /all, key: ['header:X-Marker', 'cookie:marker', 'query:marker', 'body:marker', host], limit: 1/hour, ambiguous: charge}\nanswers:\n"
	for _, status := range []string{"400", "403", "429", "503"} {
		document += "  " + status + `: {type: text/html, body: '{{.}} {{printf "%#v" .}}<script>{{.}}</script>'}` + "\n"
	}
	p := mustParse(t, document)
	const marker = "m4rk3r"
	hostile := `"><script>` + marker + "\r\nX-" + marker + ": 1"
	refused := 0
	for _, store := range []sluice.Store{memory.New(), awayStore{}} {
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
		t.Errorf("premise: %d are refused", refused)
	}
}

// No answer can set a field that an encoder sets.
func TestOwnHeadersAreNoneOfOurs(t *testing.T) {
	p := mustParse(t, refusing+"answers: {429: {type: text/html, body: no}}")
	names := map[string]bool{}
	for dialect := range NoRateLimit + 1 {
		e := Encoder{Dialect: dialect, DegradedField: true}
		for _, engine := range []*policy.Engine{policy.NewEngine(memory.New(), p), policy.NewEngine(awayStore{}, p)} {
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

// BenchmarkOwnAnswer is what a refusal costs with a body of the policy's own, beside the built-in one.
func BenchmarkOwnAnswer(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"built-in", ""},
		{"fixed", "Slow down."},
		{"text", "{{.Rule}}: come back in {{.RetryAfter}} seconds."},
		{"html", `<!doctype html><title>Slow down</title><p title="{{.Rule}}">Come back in {{.Wait}}, at {{.Reset.Format "15:04"}}.`},
	} {
		b.Run(c.name, func(b *testing.B) {
			media := "text/plain"
			if c.name == "html" {
				media = "text/html"
			}
			doc := policy.Document{Rules: []policy.Rule{{Name: "api", Limit: "1/hour"}}}
			if c.body != "" {
				doc.Answers = map[string]policy.Answer{"429": {Body: policy.Body{Type: media, Text: c.body}}}
			}
			p, err := policy.Compile(doc)
			if err != nil {
				b.Fatal(err)
			}
			engine := policy.NewEngine(memory.New(), p)
			engine.Decide(b.Context(), &policy.Request{Path: "/"})
			d := engine.Decide(b.Context(), &policy.Request{Path: "/"})
			var e Encoder
			var a Answer
			client := Client{Header: http.Header{"Accept": {media}}, Answers: p.Answers()}
			for b.Loop() {
				e.Encode(&a, http.Header{}, &d, client)
				if a.Status != 429 || len(a.Body()) == 0 {
					b.Fatal(a.Status)
				}
			}
		})
	}
}
