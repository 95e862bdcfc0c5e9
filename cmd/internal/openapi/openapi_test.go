package openapi

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// written has the parts of a document that tests read independently of the code under test.
type written struct {
	Paths      map[string]yaml.Node
	Components struct {
		PathItems map[string]yaml.Node `yaml:"pathItems"`
	}
}

// asked is a request of x-test, and the limits that must count it, by rule.
type asked struct {
	Method, URL string
	Headers     map[string]string
	Rules       map[string]string
}

// requests returns the requests in a document, with the methods of their operations.
func requests(t *testing.T, data []byte) (all []asked) {
	t.Helper()
	data = bytes.ReplaceAll(data, []byte(`\ud83d\ude00`), []byte("smile"))
	var doc written
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for _, items := range []map[string]yaml.Node{doc.Paths, doc.Components.PathItems} {
		for path, item := range items {
			var operations map[string]yaml.Node
			if err := item.Decode(&operations); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			for method, node := range operations {
				var operation struct {
					Test []asked `yaml:"x-test"`
				}
				if node.Decode(&operation) != nil {
					continue // parameters
				}
				for _, a := range operation.Test {
					if a.Method == "" {
						a.Method = strings.ToUpper(method)
					}
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// imported returns the policy of a document, read back from its text, and the text.
func imported(t *testing.T, name string, data []byte) (*policy.Policy, string) {
	t.Helper()
	d, err := Read(name, data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Policy()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Left) > 0 {
		t.Errorf("left out: %v", p.Left)
	}
	var text bytes.Buffer
	if err := p.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	rules, err := policyfile.Parse("policy.yaml", text.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	return rules, text.String()
}

// keysOf returns the keys of the rules in the text of a policy, joined.
func keysOf(t *testing.T, text string) map[string]string {
	t.Helper()
	doc, err := policyfile.Decode("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, r := range doc.Rules {
		keys[r.Name] = cmp.Or(strings.Join(r.Key, ", "), "nothing")
	}
	return keys
}

// Each request of a document is counted by the rules that it names, with their limits and, if given, their keys,
// and by no others.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, name := range documents(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rules, text := imported(t, name, data)
			engine := policy.NewEngine(memory.New(), rules)
			keys, all := keysOf(t, text), requests(t, data)
			if len(all) < 4 {
				t.Fatalf("%d requests in the document", len(all))
			}
			for _, a := range all {
				found := counted(t, engine, a)
				for name := range found {
					if strings.Contains(a.Rules[name], " by ") {
						found[name] += " by " + keys[name]
					}
				}
				if !maps.Equal(found, a.Rules) {
					t.Errorf("%s %s is counted by %v; want %v", a.Method, a.URL, found, a.Rules)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

func documents(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.[yj]*")
	if err != nil || len(names) < 8 {
		t.Fatalf("%d documents: %v", len(names), err)
	}
	return names
}

// counted returns the rules that count a request, and their limits.
func counted(t *testing.T, engine *policy.Engine, a asked) map[string]string {
	t.Helper()
	r, err := http.NewRequest(a.Method, a.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range a.Headers {
		r.Header.Set(name, value)
	}
	d := engine.Decide(t.Context(), &policy.Request{
		Method: r.Method, Host: r.URL.Host, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery,
		Header: r.Header, Peer: netip.MustParseAddr("192.0.2.1"),
	})
	found := map[string]string{}
	for _, r := range d.Results {
		limit := r.Plan.Limit
		if burst := limit.Burst; burst == limit.Count {
			limit.Burst = 0
		}
		text := strings.TrimSuffix(limit.String(), fmt.Sprintf(" burst %d", limit.Count))
		text = strings.Replace(text, "m0s", "m", 1)
		if found[r.Rule] != "" {
			text = found[r.Rule] + ", " + text
		}
		if r.Shadow && !strings.HasSuffix(text, "shadow") {
			text += " shadow"
		}
		if limit.Algorithm.String() == "leaky_bucket" {
			text += " leaky_bucket"
		}
		if r.Cost > 1 {
			text += fmt.Sprint(" cost ", r.Cost)
		}
		found[r.Rule] = text
	}
	return found
}

// A limit that operations share counts by their credentials if these are the same, and otherwise by address,
// because clients without credentials would share one count.
func TestSharedLimit(t *testing.T) {
	t.Parallel()
	const text = `openapi: 3.0.0
info: {title: a, version: 1}
x-ratelimit: 100/minute
paths:
  /a: {get: {security: [{key: []}]}}
  /b: {get: {%s}}
components: {securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}}
`
	for security, want := range map[string]string{"security: [{key: []}]": "header:X-Key", "": "client_ip", "security: []": "client_ip"} {
		_, policy := imported(t, "a.yaml", fmt.Appendf(nil, text, security))
		if key := keysOf(t, policy)["api"]; key != want {
			t.Errorf("%q: key %s; want %s", security, key, want)
		}
	}
}

// The comments of a rule list the settings that a policy cannot express.
func TestComments(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"petstore.yaml": {"# It also counts GET /pet/findByStatus, because all matching rules apply.", "# GET /pet/{petId} (line ", "# Each token of petstore_auth has a count of its own"},
		"kong.yaml":     {"# Extensions switch limits off for GET /health."},
		"kuadrant.yaml": {`# It has conditions in "when", which a policy does not support`},
		"endpoints.yaml": {
			"# Operations that cost 10 of the metric write-requests. From x-google-management.",
			"# Operations with another cost have a rule and a count of their own",
		},
		"products.yaml": {
			`# Not read from x-throttling-tier: the tier "Gold" is defined elsewhere.`,
			`# Not read from x-rate-limits: Sluice does not read "Enterprise, unlimited" as a limit.`,
			"# Sluice found no period in it; the rule uses a minute", "# Operations with this policy share a count",
		},
		"odd.yaml": {"# A wildcard in a pattern is a whole segment, but", "# A pattern ignores the query"},
	} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		_, text := imported(t, name, data)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no comment %q in\n%s", name, w, text)
			}
		}
	}
}

// In a large document, each operation is counted by the rule with its name, for any values of its parameters.
func TestManyOperations(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(31, 4))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var text strings.Builder
	text.WriteString("openapi: 3.0.0\ninfo: {title: Large, version: '1'}\nservers: [{url: 'https://api.example.com/v1'}]\npaths:\n")
	templates := map[string]string{} // by name of the operation
	for i := range 100 {
		path := fmt.Sprintf("/r%d", i%40)
		for range random.IntN(3) {
			path += pick("/{id}", "/{user-id}", "/items", "/{a}.json", "/{from}..{to}", "/x y", "/é")
		}
		path += fmt.Sprint("/n", i)
		fmt.Fprintf(&text, "  %q:\n", path)
		for _, method := range []string{pick("get", "head"), pick("post", "put", "delete")} {
			name := fmt.Sprintf("%s-%d", method, i)
			templates[name] = strings.ToUpper(method) + " /v1" + path
			fmt.Fprintf(&text, "    %s: {operationId: %s%s}\n", method, name, pick("", ", x-ratelimit: 7/hour", ", tags: [a, b], summary: 'Do: # it'"))
		}
	}
	rules, _ := imported(t, "large.yaml", []byte(text.String()))
	engine := policy.NewEngine(memory.New(), rules)
	if len(templates) != 200 {
		t.Fatalf("%d operations", len(templates))
	}
	for name, template := range templates {
		method, path, _ := strings.Cut(template, " ")
		for range 5 {
			url := strings.NewReplacer(" ", "%20", "{id}", pick("7", "a-b", "%C3%A9"), "{user-id}", pick("u_1", "00000000-0000-4000-8000-000000000000"),
				"{a}", pick("x", "q.r"), "{from}", pick("1", "z"), "{to}", pick("2", "9")).Replace(path)
			if found := counted(t, engine, asked{Method: method, URL: url}); found[name] == "" {
				t.Errorf("%s %s of %s is counted by %v", method, url, template, found)
			}
		}
	}
}

// An unreadable document is an error with its line.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"a.yaml", "", "a.yaml:1: the document is empty"},
		{"a.yaml", "# none\n\nrules: []\n", "a.yaml:3: this is not an OpenAPI document: the version is missing"},
		{"a.yaml", "- a\n", "a.yaml:1: this is not an OpenAPI document"},
		{"a.yaml", "info: {}\nopenapi: 4.0.0\npaths: {}\n", `a.yaml:2: version "4.0.0" of OpenAPI is not supported`},
		{"a.yaml", "swagger: 1.2\n", `a.yaml:1: version "1.2" of Swagger is not supported`},
		{"a.yaml", "openapi: 3.1.0\nwebhooks: {}\n", "a.yaml:1: the document has no paths"},
		{"a.yaml", "openapi: 3.1.0\n\npaths: [a]\n", "a.yaml:3: paths is not a mapping"},
		{"a.yaml", "openapi: 3.1.0\npaths:\n\t/a: {}\n", "a.yaml:3: this is not YAML"},
		{"a.json", "{\n\"openapi\": \"3.1.0\",\n\"paths\": {]\n}", "a.json:3: this is not JSON"},
	} {
		_, err := Read(c.name, []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v; want %s", c.text, err, c.want)
		}
	}
}

// Parts of a document that are missing from the policy are reported with their lines, and the rest is in the
// policy.
func TestLeft(t *testing.T) {
	t.Parallel()
	const text = `openapi: 3.0.0
info: {title: a, version: 1}
paths:
  /good: {get: {}}
  /away: {$ref: "paths/away.yaml"}
  /nowhere: {$ref: "#/components/pathItems/None"}
  /loop: {$ref: "#/paths/~1loop"}
  bad: {get: {}}
  /list: []
  /dots/../x: {get: {}}
  /method: {get: soon, post: {}}
`
	d, err := Read("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Policy()
	if err != nil {
		t.Fatal(err)
	}
	lines := map[int]bool{}
	for _, l := range p.Left {
		if l.File != "a.yaml" || l.Message == "" {
			t.Errorf("%+v", l)
		}
		lines[l.Line] = true
	}
	if want := map[int]bool{5: true, 6: true, 7: true, 8: true, 9: true, 10: true, 11: true}; !maps.Equal(lines, want) {
		t.Errorf("problems in lines %v: %v", slices.Sorted(maps.Keys(lines)), p.Left)
	}
	if r := p.Document.Rules; len(r) != 2 || r[0].Name != "get-good" || r[1].Name != "post-method" {
		t.Errorf("rules: %+v", r)
	}
}

// Coverage finds operations without a rule and rules without an operation, by servers, methods and hosts.
func TestCover(t *testing.T) {
	t.Parallel()
	d, err := Read("a.yaml", []byte(`openapi: 3.0.0
info: {title: a, version: 1}
servers: [{url: "https://api.example.com/v1"}]
paths:
  /users: {get: {}, post: {}}
  /users/{id}: {get: {}, delete: {servers: [{url: /internal}]}}
  /{lang}/docs: {get: {parameters: [{name: lang, in: path, schema: {enum: [en]}}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	rules := []policy.Rule{
		{Name: "read", Match: []string{"GET /v1/users", "GET api.example.com/v1/users/{id}"}, Limit: "1/second"},
		{Name: "other-host", Match: []string{"/v1/users"}, Hosts: []string{"www.example.com"}, Limit: "1/second"},
		{Name: "no-base", Match: []string{"POST /users"}, Headers: map[string]string{"X": "y"}, Limit: "1/second"},
		{Name: "docs", Match: []string{"/v1/en/docs"}, Exempt: true},
		{Name: "internal", Match: []string{"DELETE any.example.com/internal/users/7"}, Block: true},
	}
	check := func(rules []policy.Rule, unmet, general, idle string) {
		t.Helper()
		c, err := Cover(&policy.Document{Rules: rules}, d)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Unmet); got != unmet {
			t.Errorf("no rule for %s; want %s", got, unmet)
		}
		if got := fmt.Sprint(c.General); got != general {
			t.Errorf("only general rules for %s; want %s", got, general)
		}
		if got := fmt.Sprint(c.Idle); got != idle || c.Operations != 5 {
			t.Errorf("idle: %s of %d; want %s", got, c.Operations, idle)
		}
	}
	check(rules, "[POST /users DELETE /users/{id}]", "[]", "[other-host no-base internal]")
	rules[4].Match[0] = "DELETE any.example.com/internal/users/{id}" // the document names no host for it
	check(rules, "[POST /users]", "[]", "[other-host no-base]")
	check(append(rules, policy.Rule{Name: "all", Key: []string{"client_ip"}, Limit: "1/second"}), "[]", "[POST /users]", "[other-host no-base]")
}

// Rules that deny nothing, or only some requests, cover no operation by themselves.
func TestCoverFirm(t *testing.T) {
	t.Parallel()
	d, err := Read("a.yaml", []byte("openapi: 3.0.0\npaths: {/a: {get: {}}, /b: {get: {}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	all, limit := []string{"/a"}, "1/second"
	firm := policy.Rule{Name: "firm", Match: all, Limit: limit}
	for weak, rules := range map[string][]policy.Rule{
		"":      {firm},
		"/a":    {{Name: "s", Match: all, Limit: limit, Shadow: true}},
		" /a":   {{Name: "h", Match: all, Limit: limit, Headers: map[string]string{"X-Plan": "free"}}},
		"  /a":  {{Name: "c", Match: all, Limit: limit, Clients: []string{"10.0.0.0/8"}}, {Name: "e", Match: all, Exempt: true}},
		"/a/b ": {{Name: "m", Match: all, Limit: limit, Over: "mark"}, {Name: "n", Limit: limit, Over: "mark"}},
		"/a\t":  {{Name: "r", Match: all, Key: []string{"client_ip"}, Limit: limit, Enforce: "99.9%"}},
		" ":     {{Name: "r", Match: all, Key: []string{"client_ip"}, Limit: limit, Enforce: "100%"}},
		"/a\n":  {{Name: "o", Match: all, Class: "critical"}},
		"\t":    {{Name: "s", Match: all, Limit: limit, Shadow: true}, firm},
		"/a/b":  {{Name: "s", Limit: limit, Shadow: true}, {Name: "s-2", Match: all, Limit: limit, Shadow: true}},
	} {
		if got := weakPaths(t, &policy.Document{Rules: rules}, d); got != strings.TrimSpace(weak) {
			t.Errorf("%+v: %q, want %q", rules, got, weak)
		}
	}
	rules := []policy.Rule{firm, {Name: "firm-2", Limit: limit}}
	for shadow, weak := range map[string]string{"always": "/a/b", "2999-12-31": "/a/b", "2001-12-31": "", "": ""} {
		if got := weakPaths(t, &policy.Document{Rules: rules, Shadow: shadow}, d); got != weak {
			t.Errorf("shadow %q: %q, want %q", shadow, got, weak)
		}
	}
}

// weakPaths returns the paths of the operations to which only weak rules apply, joined.
func weakPaths(t *testing.T, rules *policy.Document, d *Document) (all string) {
	t.Helper()
	if _, err := policy.Compile(*rules); err != nil {
		t.Fatal(err)
	}
	c, err := Cover(rules, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.Weak {
		all += o.Path
	}
	return all
}

// Limits are read in the various forms in which people write them.
func TestTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"120/min": "[120/minute]", "60r/m": "[60/minute]", "10 req/s": "[10/second]", "5/h": "[5/hour]", "1/24h": "[1/day]",
		"1,000 requests per 15 minutes": "[1000/15m]", "3 per 2 hours": "[3/2h]", "7 calls every week": "[7/7d]", "100 a day": "[100/day]",
		"10000/month": "[10000/month]", "100/minute per user": "[100/minute]", "many": "[]", "5/parsec": "[]", "0/s": "[0/second]", "": "[]",
		"1/99999999999999999999 s": "[]", "9/99999999999 weeks": "[]",
	} {
		if got := fmt.Sprint(readText(text).texts); got != want {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"1m": "minute", "90s": "90s", "PT1H30M": "90m", "P1D": "day", "1 minute": "minute", "15 min": "15m", "2 weeks": "14d", "500ms": "500ms",
		"MINUTE": "minute", "month": "month", "year": "365d", "ip": "", "10": "", "9999999999d": "", "PT": "",
	} {
		if got := period(1, text); got != want {
			t.Errorf("period %q: %q; want %q", text, got, want)
		}
	}
}

// An unknown unit is not read as seconds.
func TestPeriods(t *testing.T) {
	t.Parallel()
	d := &Document{}
	for text, want := range map[string]string{
		"{limit: 10, period: 2, unit: fortnight}":          "[10/minute] shadow",
		"{limit: 10, period: 2, timeUnit: QUARTER}":        "[10/minute] shadow",
		"{limit: 10, period: 2, unit: months}":             "[10/minute] shadow",
		"{limit: 10, period: 1, unit: MONTHS}":             "[10/month]",
		"{limit: 10, period: 2, unit: hours}":              "[10/2h]",
		"{limit: 10, period: 60, unit: requests}":          "[10/minute]",
		"{limit: 10, windowSeconds: 60, unit: minute}":     "[10/minute]",
		"{limit: 10, window_ms: 500, per: user}":           "[10/500ms]",
		"{limit: 10, window: sliding, periodSeconds: 120}": "[10/2m]",
	} {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		l := d.readPlain(n.Content[0])[0]
		got := fmt.Sprint(l.texts)
		if l.shadow {
			got += " shadow"
		}
		if got != want || l.shadow && len(l.notes) == 0 {
			t.Errorf("%s: %s %q; want %s", text, got, l.notes, want)
		}
	}
}

// The time for references to references grows with the length of the document, not with the number of ways through
// it.
func TestChainedReferences(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("openapi: 3.0.0\npaths: {/x: {$ref: '#/L10'}}\nL0: {$ref: '#/F'}\nF:\n  get: {}\n  t0: {$ref: '#/L0'}\n")
	for i := range 10 {
		fmt.Fprintf(&text, "  t%d: {$ref: '#/L%d'}\n", i+1, i+1)
	}
	for i := range 10 {
		fmt.Fprintf(&text, "L%d: {$ref: '#/L%d%s'}\n", i+1, i, strings.Repeat(fmt.Sprintf("/t%d", i), 100))
	}
	d, err := Read("a.yaml", []byte(text.String()))
	if err != nil || len(d.Operations) != 1 {
		t.Errorf("%v, %v, %v", d.Operations, d.Left, err)
	}
}

// For any document, the written text is a valid policy, and rules apply to all operations but those that are reported.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"petstore.yaml", "kong.yaml", "kuadrant.yaml", "endpoints.yaml", "fastapi.json", "apigateway.json", "products.yaml", "odd.yaml"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("openapi: 3\npaths: &p {/a: *p, <<: *p}\nx-ratelimit: 9999999999999999/s\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Read("api.yaml", data)
		if err != nil {
			return
		}
		p, err := d.Policy()
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := p.WriteYAML(&text); err != nil {
			t.Fatal(err)
		}
		if _, err := policyfile.Parse("policy.yaml", text.Bytes()); err != nil {
			t.Fatalf("%v\n%s", err, &text)
		}
		c, err := Cover(&p.Document, d)
		if err != nil || len(c.Unmet) > len(p.Left)+len(p.unlimited) {
			t.Fatalf("%v: no rule applies to %v in\n%s", err, c.Unmet, &text)
		}
	})
}
