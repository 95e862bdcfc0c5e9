package console_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	xhtml "golang.org/x/net/html"

	"github.com/sluicehq/sluice/cmd/internal/apitest"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Pages show keys from requests as plain text.
func TestConsoleHostileKeys(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	keys := []string{
		`<img src=x onerror=alert(1)>`, `"><script>alert(1)</script>`, `' onmouseover='alert(1)`, "javascript:alert(1)", "a\u202Eb", `{{.}}`,
		`k/../../x?y#z`,
	}
	for _, key := range keys {
		for range 9 {
			c.Engine.Decide(t.Context(), apitest.Request(key))
		}
		c.Engine.Decide(t.Context(), &policy.Request{
			Method: "G" + key, Path: "/" + key, Host: key, Peer: netip.MustParseAddr("192.0.2.7"), Door: "gateway",
			Header: http.Header{"X-Api-Key": {key}, "X-Request-Id": {key + "\x1b]0;x\a"}},
		})
		escaped := url.QueryEscape(key)
		id, subject := url.QueryEscape(key+"\x1b]0;x\a"), "rule=per-key&key.api_key="+escaped
		p := c.Open("/explain?id=" + id)
		if text, found := strings.CutPrefix(p.HTML[max(0, strings.Index(p.HTML, "data-refusal")):], "data-refusal"); !found || strings.Contains(text, "\x1b") {
			t.Errorf("the refusal of %q is missing or has an ESC: %s", key, p.Words())
		}
		c.Script("act /act/block?" + subject + " for=1h; reason=" + strings.ReplaceAll(key, "$", ""))
		for _, path := range []string{
			"/", "/rules/per-key", "/rules?q=" + escaped, "/subjects?q=" + escaped, "/subjects", "/subjects?" + subject,
			"/overrides?q=" + escaped, "/overrides", "/audit", "/act/unblock?" + subject, "/act/raise?" + subject + "&reason=" + escaped,
			"/explain?id=" + escaped, "/explain?id=" + id, "/explain?id=" + strings.Repeat(escaped, 10_000/len(key)),
			"/act/silence?alert=" + escaped, "/act/shadow-all?until=" + escaped + "&word=" + escaped, "/act/previous?entry=" + escaped,
		} {
			p := c.Open(path)
			if p.Status >= 500 {
				t.Errorf("%s: status %d", path, p.Status)
			}
			harmless(t, path, p.HTML)
		}
	}
}

// harmless checks that a page has no element, attribute or link that could come only from a key.
func harmless(t *testing.T, path, text string) {
	t.Helper()
	for z := xhtml.NewTokenizer(strings.NewReader(text)); z.Next() != xhtml.ErrorToken; {
		token := z.Token()
		if token.Type == xhtml.TextToken && strings.Contains(token.Data, "\u202E") {
			t.Errorf("%s has a mark that reverses the text around it", path)
		}
		if token.Type != xhtml.StartTagToken && token.Type != xhtml.SelfClosingTagToken {
			continue
		}
		if token.Data == "img" {
			t.Errorf("%s has an <img>", path)
		}
		for _, a := range token.Attr {
			foreign := (a.Key == "href" || a.Key == "action") && !strings.ContainsAny(a.Val[:min(1, len(a.Val))], "/#?")
			if foreign || strings.HasPrefix(a.Key, "on") || token.Data == "script" && a.Key == "src" && !strings.HasPrefix(a.Val, "/assets/") {
				t.Errorf("%s has %s=%q in <%s>", path, a.Key, a.Val, token.Data)
			}
		}
		if token.Data == "script" && z.Next() == xhtml.TextToken && strings.TrimSpace(z.Token().Data) != "" {
			t.Errorf("%s has an inline script", path)
		}
	}
}

// With many overrides, each page shows only a few of them. The filter finds overrides by their keys, even though pages
// show the keys in a shortened form.
func TestConsoleManyOverrides(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	doc, err := policyfile.Decode("policy.yaml", []byte(apitest.FilePolicy))
	if err != nil {
		t.Fatal(err)
	}
	const many = 5000
	key := func(i int) string { return fmt.Sprintf("sk_live_%06d_%06d", i, 7*i) }
	doc.Overrides = nil
	for i := range many {
		doc.Overrides = append(doc.Overrides, policy.Override{
			Rule: "per-key", Key: map[string]string{"api_key": key(i)}, Limit: "9/day", Reason: "plan " + strconv.Itoa(i%1000),
		})
	}
	doc.Overrides[3000].Until = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	doc.Overrides[500].Block, doc.Overrides[500].Limit = true, ""
	if _, err = c.Stack.File(doc, nil); err == nil {
		err = c.Stack.UseFile()
	}
	if err != nil {
		t.Fatal(err)
	}
	row, next := regexp.MustCompile(`data-override="([0-9a-f]+)"`), regexp.MustCompile(`href="([^"]*)" id="next"`)
	// page opens a page of overrides, checks its size, and returns it with the IDs of its overrides.
	page := func(path string, most int) (p *Page, ids []string) {
		t.Helper()
		p = c.Open(path)
		for _, m := range row.FindAllStringSubmatch(p.HTML, -1) {
			ids = append(ids, m[1])
		}
		if len(ids) > most || len(p.HTML) > 20_000+1_000*most {
			t.Errorf("%s has %d rows and %d bytes", path, len(ids), len(p.HTML))
		}
		return p, ids
	}
	p, ids := page("/overrides", 100)
	if want := source.OverrideName("per-key", doc.Overrides[3000].Key); len(ids) != 100 || ids[0] != want || !strings.Contains(p.Words(), "5,000 overrides") {
		t.Errorf("the first of %d overrides is %q, want %q, which ends first: %s", len(ids), ids[0], want, p.Words())
	}
	all := map[string]bool{}
	for range 3 {
		for _, id := range ids {
			if all[id] {
				t.Errorf("%s is on two pages", id)
			}
			all[id] = true
		}
		p, ids = page(html.UnescapeString(next.FindStringSubmatch(p.HTML)[1]), 100)
	}
	if p, _ = page("/rules/per-key", 20); !strings.Contains(p.Words(), " more") {
		t.Errorf("the page of the rule does not show that there are more overrides: %s", p.Words())
	}
	only := func(query string, i int) {
		t.Helper()
		_, ids := page("/overrides?"+query, 100)
		if want := source.OverrideName("per-key", doc.Overrides[i].Key); len(ids) != 1 || ids[0] != want {
			t.Errorf("%s finds %q, want %s", query, ids, want)
		}
	}
	only("q=004321_0302", 4321)
	only("rule=per-key&q="+strings.ToUpper(key(4999)), 4999)
	only("state=blocks", 500)
	only("state=today", 3000)
	page("/overrides?q=plan+77", 100)
	// The reasons "plan 77" and "plan 770" to "plan 779" occur five times each.
	body := c.Get("/v1/overrides?sort=until&limit=7&q=plan+77")
	if !strings.Contains(body, `"total":55`) || strings.Count(body, `"plan 77`) != 7 || len(body) > 4_000 {
		t.Errorf("%d bytes: %s", len(body), body)
	}
	// A caller that may not see keys cannot guess a key letter by letter with the filter.
	c.Token = c.Secrets["the viewer"]
	only("q="+key(4321), 4321)
	if p, ids := page("/overrides?q=004321_0302", 100); len(ids) != 0 || strings.Contains(p.HTML, key(4321)) {
		t.Errorf("a viewer finds %q by a fragment of a key", ids)
	}
}

// Neither pages nor the API show a viewer more of a key than its rule allows.
func TestViewersSeeNoKeys(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const key = "sk_live_4f8a2c6e9b"
	c.Vars["key"], c.Vars["until"] = key, time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339)
	c.Script(`
POST /v1/rules {"name": "paid", "key": ["api_key"], "missing": "skip", "limit": "5/hour"} => 201
POST /v1/rules => 201
	{"name": "hashed", "key": ["header:X-User", "client_ip"], "missing": "skip", "show_key": "hash", "limit": "5/hour"}
POST /v1/overrides => 201
	{"rule": "paid", "key": {"api_key": "$key"}, "limit": "50/hour", "until": "$until", "reason": "a launch"}
POST /v1/overrides => 201
	{"rule": "hashed", "key": {"header:X-User": "$key", "client_ip": "*"}, "limit": "50/hour", "until": "$until", "reason": "a launch"}
POST /v1/subjects/reset {"rule": "paid", "key": {"api_key": "$key"}, "reason": "a test"} => 200
`)
	for range 4 { // the record of a denied request hides the address from viewers, too
		r := apitest.Request("k-refused")
		r.Peer, r.Door = netip.MustParseAddr("192.0.2.231"), "gateway"
		r.Header.Set("X-Request-Id", "a-refusal")
		c.Engine.Decide(t.Context(), r)
	}
	// The viewer comes after the operator, to check that it gets no page from the operator's cache.
	for _, role := range []string{"the operator", "the viewer"} {
		c.Token = c.Secrets[role]
		for _, path := range []string{"/", "/overrides", "/overrides?q=launch", "/rules/paid", "/rules/hashed", "/audit", "/subjects", "/shadow", "/policy"} {
			if page := c.Open(path); page.Status != 200 || role == "the viewer" && strings.Contains(page.HTML, key) {
				t.Errorf("%s shows a viewer %s: %d", path, key, page.Status)
			}
		}
		for what, text := range map[string]string{"the page": c.Open("/explain?id=a-refusal").Words(), "the API": c.Get("/v1/refusals?id=a-refusal")} {
			if shows := strings.Contains(text, "192.0.2.231"); shows != (role == "the operator") || !strings.Contains(text, "per-key") {
				t.Errorf("%s shows %s the address: %v", what, role, shows)
			}
		}
	}
	of := "rule=paid&key.api_key=" + key
	for _, path := range []string{"/v1/overrides", "/v1/audit", "/v1/policy", "/v1/subjects?" + of, "/v1/subjects?key.api_key=" + key, "/v1/explain?url=/&header.X-API-Key=" + key} {
		if body := c.Get(path); strings.Contains(body, key) {
			t.Errorf("%s shows a viewer %s", path, body)
		}
	}
	asked := `{"url": "/", "headers": {"X-API-Key": "` + key + `"}}`
	for _, path := range []string{"/v1/check", "/v1/explain"} {
		if body := string(c.Do("POST", path, asked).Want(200).Body); strings.Contains(body, key) || !strings.Contains(body, "a launch") {
			t.Errorf("%s shows a viewer %s", path, body)
		}
	}
	if page := c.Open("/subjects?" + of); page.Status != 200 || strings.Contains(page.HTML, key) || strings.Contains(page.Words(), "for others, too") || !strings.Contains(page.Words(), "a launch") {
		t.Errorf("the page of the subject shows a viewer %s", page.Words())
	}
	c.Token = c.Secrets["the operator"]
	for _, path := range []string{"/v1/check", "/v1/explain"} {
		c.Do("POST", path, asked).Want(200).Says(`"key":"paid/`+key, `{"api_key":"`+key)
	}
}

// A viewer sees no buttons, and an operator sees no buttons for admins. Acts beyond the role of the caller are refused.
func TestConsoleRoles(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.Script(`POST /v1/overrides {"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "50/day"} => 201`)
	const k1 = "?rule=per-key&key.api_key=k-1"
	acts := map[string]string{
		"block": "operator", "unblock": "operator", "raise": "operator", "reset": "operator", "refund": "operator", "end-override": "operator",
		"silence": "operator", "unsilence": "operator", "shadow": "admin", "enforce": "admin", "shadow-all": "admin", "enforce-all": "admin", "previous": "admin",
	}
	refused := func(method, path string) {
		t.Helper()
		form := url.Values{"rule": {"own"}, "key.client_ip": {"192.0.2.7"}}
		if p := c.Request(method, path, form); p.Status != http.StatusForbidden {
			t.Errorf("%s %s: %d, want 403", method, path, p.Status)
		}
	}
	c.Token = c.Secrets["the viewer"]
	for _, path := range []string{
		"/rules", "/rules/own", "/rules/per-key", "/subjects", "/subjects" + k1, "/subjects?q=k-1", "/shadow", "/overrides", "/audit", "/policy",
	} {
		p := c.Open(path)
		for _, button := range []string{`href="/act/`, `id="apply"`, `method="post" action="/policy`} {
			if strings.Contains(p.HTML, button) {
				t.Errorf("a viewer sees %s at %s", button, path)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(acts)) {
		refused("GET", "/act/"+name+k1)
		refused("POST", "/act/"+name)
	}
	for _, path := range []string{"/policy/check", "/policy/apply", "/policy/download", "/undo"} {
		refused("POST", path)
	}
	c.Token = c.Secrets["the operator"]
	for name, role := range acts {
		if role == "admin" {
			refused("POST", "/act/"+name)
		}
	}
	if p := c.Open("/rules/own"); strings.Contains(p.HTML, "/act/enforce") {
		t.Error("an operator sees the button to enforce a rule")
	}
	if p := c.Open("/subjects" + k1); !strings.Contains(p.HTML, "/act/block?") {
		t.Error("an operator does not see the button to block")
	}
	c.Token = ""
	if p := c.Request("GET", "/rules", nil, "Accept: text/html"); p.Status != http.StatusSeeOther {
		t.Errorf("a page without a token: %d", p.Status)
	}
	if p := c.Request("POST", "/act/block", url.Values{}); p.Status != http.StatusUnauthorized {
		t.Errorf("a form without a token: %d", p.Status)
	}
}

// The previous policy does not include lists that the policy file reads from other files.
func TestConsoleListsAreNotKept(t *testing.T) {
	t.Parallel()
	c := fileConsole(t)
	doc, err := policyfile.Decode("policy.yaml", []byte(apitest.FilePolicy))
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"192.0.2.0/24", "198.51.100.0/24"} {
		doc.Lists = map[string]policy.List{"office": {File: "office.txt", Networks: []string{network}}}
		if _, err = c.Stack.File(doc, nil); err == nil {
			err = c.Stack.UseFile()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.Script("page /act/previous => 200 The policy file is unchanged")
}
