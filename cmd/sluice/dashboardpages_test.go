package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	xhtml "golang.org/x/net/html"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/telemetry"
)

// console is a browser without JavaScript at the dashboard of an instance.
type console struct {
	*instance
	base     string
	database string
	secrets  map[source.Role]string
}

func newConsole(t *testing.T) *console {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "rules.db")
	i := newInstance(t, database)
	c := &console{instance: i, database: database, secrets: map[source.Role]string{}}
	fleet := &telemetry.Fleet{Recorder: telemetry.Watch(i.engine, telemetry.Config{Subjects: true}), Refusals: telemetry.KeepRefusals(i.engine)}
	i.api.View, i.api.Find = fleet.View, fleet.Find
	i.api.Refusals = fleet.FindRefusals
	server := httptest.NewServer(dashboardOf(i.api, ""))
	t.Cleanup(server.Close)
	c.base = server.URL
	i.do("POST", "/v1/rules", `{"name": "own", "match": ["GET /own"], "key": ["client_ip"], "limit": "2/day", "shadow": true}`).want(201)
	if _, err := i.db.Change(t.Context(), "test", func(tx *source.Tx) (err error) {
		for _, role := range []source.Role{source.Viewer, source.Operator, source.Admin} {
			if c.secrets[role], _, err = tx.CreateToken("the "+string(role), role, ""); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.as(source.Admin)
	i.eventually("tokens are known", func() bool { return i.do("GET", "/v1/policy", "").status == 200 })
	return c
}

// another starts one more instance of the same database.
func (c *console) another() *instance {
	c.t.Helper()
	return newInstanceAs(c.t, c.database, c.token)
}

func (c *console) as(role source.Role) { c.token = c.secrets[role] }

// shown is a page.
type shown struct {
	t      *testing.T
	what   string
	status int
	text   string
	header http.Header
}

func (c *console) send(method, path string, form url.Values, fields ...string) *shown {
	c.t.Helper()
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return &shown{c.t, method + " " + path, answer.StatusCode, string(text), answer.Header}
}

// open returns a page, and goes on to where that leads.
func (c *console) open(path string) *shown {
	c.t.Helper()
	p := c.send("GET", path, nil)
	if p.status == 303 {
		p = c.send("GET", p.header.Get("Location"), nil)
	}
	return p.want(200)
}

func (s *shown) want(status int) *shown {
	s.t.Helper()
	if s.status != status {
		s.t.Fatalf("%s: status %d, want %d: %s", s.what, s.status, status, s.words())
	}
	return s
}

func (s *shown) says(texts ...string) *shown {
	s.t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.words(), text) {
			s.t.Errorf("%s does not say %q: %s", s.what, text, s.words())
		}
	}
	return s
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
	hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	rows   = regexp.MustCompile(`<th scope="row">([^<]*)</th><td>([^<]*)</td><td>(?:<strong>([^<]*)</strong>)?`)
)

// words is what a person reads of the main part.
func (s *shown) words() string {
	_, main, _ := strings.Cut(s.text, "<main")
	return strings.ReplaceAll(html.UnescapeString(blanks.ReplaceAllString(tags.ReplaceAllString("<main"+main, " "), " ")), "\u00a0", " ")
}

// form returns the hidden fields of the form with that action, with more in it.
func (s *shown) form(action string, more ...string) url.Values {
	s.t.Helper()
	_, form, found := strings.Cut(s.text, `action="`+action+`"`)
	if !found {
		s.t.Fatalf("%s has no form of %s: %s", s.what, action, s.words())
	}
	form, _, _ = strings.Cut(form, "</form>")
	f := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(form, -1) {
		f.Set(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	for i := 0; i < len(more); i += 2 {
		f.Set(more[i], more[i+1])
	}
	return f
}

// effect returns what an act's page says is now and then.
func (s *shown) effect() map[string][2]string {
	all := map[string][2]string{}
	for _, m := range rows.FindAllStringSubmatch(s.text, -1) {
		then := m[3]
		if then == "" {
			then = m[2]
		}
		all[m[1]] = [2]string{m[2], then}
	}
	return all
}

// act does what a page of an act offers, and returns the page that says so.
func (c *console) act(path string, more ...string) *shown {
	c.t.Helper()
	name, _, _ := strings.Cut(path, "?")
	done := c.send("POST", name, c.open(path).form(name, more...)).want(303)
	return c.open(done.header.Get("Location"))
}

func (c *console) undo(after *shown) *shown {
	c.t.Helper()
	done := c.send("POST", "/undo", after.form("/undo")).want(303)
	return c.open(done.header.Get("Location")).says("Undone")
}

// allowed asks the engine itself whether a request with that key passes, and charges it.
func (c *console) allowed(key string) bool {
	r := &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{"X-Api-Key": {key}}}
	d := c.engine.Decide(context.Background(), r)
	return d.Allowed
}

const k1 = "rule=per-key&key.api_key=k-1"

// A block is shown before, is in force once it is made, and is gone once it is undone.
func TestConsoleBlocks(t *testing.T) {
	c := newConsole(t)
	c.as(source.Operator)
	before := c.open("/act/block?" + k1)
	if e := before.effect()["Requests"]; e[0] != "counted by its limit" || !strings.HasPrefix(e[1], "all refused by this rule until ") {
		t.Errorf("the effect is %q", e)
	}
	if !c.allowed("k-1") {
		t.Fatal("looking has blocked it")
	}
	if p := c.send("POST", "/act/block", before.form("/act/block", "for", "1h")); p.status != 422 || !c.allowed("k-1") {
		t.Errorf("without a reason the status is %d", p.status)
	}
	after := c.act("/act/block?"+k1, "for", "1h", "reason", "scrapes")
	after.says("Blocked", "scrapes")
	if c.allowed("k-1") {
		t.Error("it passes although it is blocked")
	}
	now := c.open("/act/unblock?" + k1).effect()["Requests"]
	if then := before.effect()["Requests"][1]; now[0][:len("all refused by this rule until 2")] != then[:len("all refused by this rule until 2")] || now[1] != "counted by its limit" {
		t.Errorf("it is %q now, and was to be %q", now, then)
	}
	c.undo(after)
	if !c.allowed("k-1") {
		t.Error("it is blocked although that was undone")
	}
	c.undoneOnce(after)

	// Unblocking, and undoing that, leaves the block as it was.
	c.act("/act/block?"+k1, "until", "2126-12-31", "reason", "for long")
	free := c.act("/act/unblock?"+k1, "reason", "a mistake")
	if len(c.overrides()) != 1 { // the file's
		t.Errorf("there are the overrides %v", c.overrides())
	}
	c.undo(free)
	if got := c.overrides(); len(got) != 2 || !slices.ContainsFunc(got, func(o string) bool {
		return strings.Contains(o, `"until":"2126-12-31"`) && strings.Contains(o, "for long")
	}) {
		t.Errorf("there are the overrides %v", got)
	}
	if c.allowed("k-1") {
		t.Error("it passes although unblocking was undone")
	}
}

// A block everywhere holds under every rule by the subject's key, in one transaction, and says before what it
// leaves open. Undoing it leaves what there was before.
func TestConsoleBlocksEverywhere(t *testing.T) {
	c := newConsole(t)
	c.do("POST", "/v1/rules", `{"name": "writes", "match": ["POST /v1/"], "key": ["api_key"], "missing": "skip", "limit": "50/day"}`).want(201)
	c.do("POST", "/v1/rules", `{"name": "both", "match": ["GET /reports"], "key": ["api_key", "client_ip"], "missing": "skip", "limit": "60/day"}`).want(201)
	c.do("POST", "/v1/overrides", `{"rule": "writes", "key": {"api_key": "k-1"}, "limit": "70/day", "reason": "pays"}`).want(201)
	c.as(source.Operator)
	// passes reports whether a request passes that only one of the rules refuses.
	passes := func(key, method, path, address string) bool {
		r := &policy.Request{Method: method, Path: path, Peer: netip.MustParseAddr(address), Header: http.Header{"X-Api-Key": {key}}}
		return c.engine.Explain(t.Context(), r).Decision.Allowed
	}
	all := func(key string) [4]bool {
		return [4]bool{passes(key, "GET", "/", "192.0.2.7"), passes(key, "POST", "/v1/x", "192.0.2.7"), passes(key, "GET", "/reports", "192.0.2.7"), passes(key, "GET", "/reports", "192.0.2.8")}
	}
	// By the address: what is by the key stays open, and the page names it.
	p := c.open("/act/block?rule=own&key.client_ip=192.0.2.7")
	p.says("Where", "Everywhere: 3 rules by client_ip", "is a shadow", "Requests to which own does not apply stay open", "Rules by the same key that do not block it: per-address", "both", "Rules by another key count its requests as before: per-key, writes")
	address := c.act("/act/block?rule=own&key.client_ip=192.0.2.7", "where", "everywhere", "for", "1h", "reason", "scans")
	address.says("Blocked 192.0.2.7 everywhere, by 3 rules")
	if got := all("k-9"); got != [4]bool{false, false, false, true} {
		t.Errorf("blocked by its address, these pass: %v", got)
	}
	c.undo(address)
	if got := all("k-9"); got != [4]bool{true, true, true, true} {
		t.Errorf("after undoing it these pass: %v", got)
	}

	written := func() []string { // without who has signed them
		all := c.overrides()
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], `,"by":`)
		}
		return all
	}
	before := written()
	entry := c.asAdmin(func() int64 { return c.audited(1)[0].ID })
	p = c.send("GET", "/act/block?rule=writes&key.api_key=k-1&where=everywhere&for=1h&reason=x", nil).want(200)
	if e := p.effect(); !strings.HasPrefix(e["writes"][0], "70 a day") || !strings.HasPrefix(e["both"][1], "all refused until") || len(e) != 3 {
		t.Errorf("the effect is %q", e)
	}
	p.says("A rule that blocks it applies to every request, so nothing with this key stays open.")
	done := c.act("/act/block?rule=writes&key.api_key=k-1", "where", "everywhere", "for", "1h", "reason", "stolen")
	if got := all("k-1"); got != [4]bool{} {
		t.Errorf("blocked everywhere, these pass: %v", got)
	}
	if got := all("k-2"); got != [4]bool{true, true, true, true} {
		t.Errorf("of another key these pass: %v", got)
	}
	made := c.asAdmin(func() int64 {
		n := int64(0)
		for _, e := range c.audited(10) {
			if e.ID > entry && e.At.Equal(c.audited(1)[0].At) && e.Actor == "the operator" {
				n++
			}
		}
		return n
	})
	if made != 3 {
		t.Errorf("%d overrides were made in one transaction", made)
	}
	c.undo(done)
	if got := written(); !slices.Equal(got, before) {
		t.Errorf("after undoing it there are the overrides %q, and there were %q", got, before)
	}
}

// asAdmin calls f as an admin.
func (c *console) asAdmin(f func() int64) int64 {
	was := c.token
	defer func() { c.token = was }()
	c.as(source.Admin)
	return f()
}

// A block that somebody else has changed since stays when the first is undone.
func TestConsoleUndoesItsOwn(t *testing.T) {
	c := newConsole(t)
	c.as(source.Operator)
	after := c.act("/act/block?"+k1, "for", "1h", "reason", "scrapes")
	c.as(source.Admin)
	c.act("/act/block?"+k1, "until", "2126-12-31", "reason", "for long")
	c.as(source.Operator)
	if p := c.send("POST", "/undo", after.form("/undo")); p.status != 412 || c.allowed("k-1") {
		t.Errorf("undoing the first has status %d", p.status)
	}
}

// undoneOnce checks that an act is not undone twice.
func (c *console) undoneOnce(after *shown) {
	c.t.Helper()
	c.send("POST", "/undo", after.form("/undo")).want(410)
}

func (c *console) overrides() []string {
	return regexp.MustCompile(`"document":\{[^}]*\}[^}]*\}`).FindAllString(string(c.do("GET", "/v1/overrides", "").want(200).body), -1)
}

// A limit that is raised holds as it was foreseen, and undoing it leaves what was there before, be
// it nothing or another override.
func TestConsoleRaises(t *testing.T) {
	c := newConsole(t)
	c.as(source.Operator)
	after := c.act("/act/raise?"+k1, "limit", "50/day", "for", "24h", "reason", "a launch")
	if got := c.limitOf("k-1"); got != 50 {
		t.Errorf("the limit is %d", got)
	}
	if e := c.open("/act/raise?" + k1 + "&limit=70/day").effect()["Limit"]; e != [2]string{"50 a day", "70 a day"} {
		t.Errorf("the effect is %q", e)
	}
	again := c.act("/act/raise?"+k1, "limit", "70/day", "until", "2126-12-31", "reason", "longer")
	if got := c.limitOf("k-1"); got != 70 {
		t.Errorf("the limit is %d", got)
	}
	c.undo(again)
	if got := c.limitOf("k-1"); got != 50 {
		t.Errorf("the limit is %d after undoing the second", got)
	}
	// What the first would have deleted is another state by now, which nobody is to lose.
	if p := c.send("POST", "/undo", after.form("/undo")); p.status != 412 || c.limitOf("k-1") != 50 {
		t.Errorf("status %d: %s", p.status, p.words())
	}
	first := c.act("/act/raise?rule=per-key&key.api_key=k-2", "limit", "9/day", "reason", "x")
	c.undo(first)
	if got := c.limitOf("k-2"); got != 3 {
		t.Errorf("the limit is %d after undoing", got)
	}
	c.open("/act/raise?" + k1 + "&limit=many").says("many")
	p := c.open("/act/raise?" + k1)
	c.send("POST", "/act/raise", p.form("/act/raise", "limit", "many", "reason", "x")).want(422)
}

// Resetting and giving back have the effect that was shown, and say that they are for good.
func TestConsoleGivesBack(t *testing.T) {
	c := newConsole(t)
	c.as(source.Operator)
	for range 3 {
		c.allowed("k-1")
	}
	if c.allowed("k-1") {
		t.Fatal("a limit of 3 lets 4 pass")
	}
	some := c.open("/act/refund?" + k1 + "&units=2")
	some.says("cannot be taken again")
	foreseen := some.effect()["Left"]
	if foreseen != [2]string{"0 of 3", "2 of 3"} {
		t.Errorf("the effect is %q", foreseen)
	}
	if p := c.act("/act/refund?"+k1, "units", "2"); strings.Contains(p.text, `id="undo"`) {
		t.Error("it offers to undo what cannot be undone")
	}
	whole := c.open("/act/reset?" + k1)
	whole.says("cannot be undone")
	if e := whole.effect()["Left"]; e[0] != foreseen[1] || e[1] != "3 of 3" {
		t.Errorf("the effect is %q after %q", e, foreseen)
	}
	c.act("/act/reset?" + k1)
	if e := c.open("/act/reset?" + k1).effect()["Left"]; e[0] != "3 of 3" {
		t.Errorf("left is %q after a reset", e)
	}
	c.as(source.Admin)
	c.auditHas("reset subject", "refund subject")
}

func (c *console) auditHas(want ...string) {
	c.t.Helper()
	log := c.open("/audit")
	for _, w := range want {
		action, kind, _ := strings.Cut(w, " ")
		if !strings.Contains(log.text, fmt.Sprintf("data-action=%q data-kind=%q", action, kind)) {
			c.t.Errorf("the audit log does not have %q", w)
		}
	}
}

// An override is ended, and put back.
func TestConsoleEndsOverrides(t *testing.T) {
	c := newConsole(t)
	path := c.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "50/day", "until": "2126-12-31", "reason": "old"}`).want(201).header.Get("Location")
	id := path[strings.LastIndex(path, "/")+1:]
	c.as(source.Operator)
	c.open("/overrides").says("50 a day", "old")
	page := c.open("/act/end-override?override=" + id)
	// Somebody else changes it meanwhile.
	c.do("PUT", path, `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "60/day"}`, match("*")).want(200)
	c.send("POST", "/act/end-override", page.form("/act/end-override")).want(412).says("Somebody else has changed it")
	if got := c.limitOf("k-1"); got != 60 {
		t.Fatalf("the limit is %d", got)
	}
	after := c.act("/act/end-override?override=" + id)
	if got := c.limitOf("k-1"); got != 3 {
		t.Errorf("the limit is %d", got)
	}
	c.undo(after)
	if got := c.limitOf("k-1"); got != 60 {
		t.Errorf("the limit is %d after undoing", got)
	}
}

// The state of a rule of the database is changed by its page, and that of a file's told.
func TestConsoleEnforces(t *testing.T) {
	c := newConsole(t)
	own := func() bool {
		r := &policy.Request{Method: "GET", Path: "/own", Peer: netip.MustParseAddr("192.0.2.9"), Header: http.Header{}}
		return c.engine.Decide(context.Background(), r).Allowed
	}
	for range 3 {
		if !own() {
			t.Fatal("a shadow refuses")
		}
	}
	c.open("/shadow").says("own")
	c.open("/act/enforce?rule=own").says("shadow", "enforced")
	after := c.act("/act/enforce?rule=own")
	if own() {
		t.Error("what is enforced lets too much pass")
	}
	c.undo(after)
	if !own() {
		t.Error("it refuses although that was undone")
	}
	p := c.open("/act/shadow?rule=per-key").says("policy file", "shadow: true")
	if strings.Contains(p.text, `id="act-do"`) {
		t.Error("it offers to write the file")
	}
	c.send("POST", "/act/shadow", p.form("/act/shadow")).want(409)
}

// The whole policy is a shadow until that is undone, or until its end, on every instance.
func TestConsoleMakesAllAShadow(t *testing.T) {
	c := newConsole(t)
	other := c.another()
	ask := func() (refused bool) { return !c.allowed("k-all") }
	for range 3 {
		ask()
	}
	if !ask() {
		t.Fatal("premise: the limit of 3/day does not refuse")
	}
	const path = "/act/shadow-all"
	c.open("/shadow").says("All → shadow")
	p := c.open(path).says("refused in the last hour", "It ends by itself on", "It is kept in the database")
	if !strings.Contains(p.text, "id=\"act-do\" disabled") {
		t.Error("it can be done before the word is typed")
	}
	c.send("POST", path, p.form(path)).want(422)
	c.send("POST", path, p.form(path, "word", "yes")).want(422)
	c.send("POST", path, p.form(path, "word", "shadow", "until", "2020-01-01")).want(422).says("it has passed")
	if !ask() {
		t.Fatal("it was done without the word")
	}
	after := c.act(path, "word", "shadow", "for", "24h").says("The whole policy is a shadow now", "Nothing is refused")
	if ask() {
		t.Error("something is refused")
	}
	other.eventually("the other instance refuses nothing", func() bool { return other.engine.Policy().WatchOnly() })
	c.do("GET", "/v1/policy/shadow", "").want(200).says("\"on\":true", "\"from\":\"database\"")
	c.open("/rules").says("Nothing is refused. The whole policy is a shadow, until")
	c.open("/audit").says("the admin changed the settings", "shadow")
	c.undo(after)
	if !ask() {
		t.Error("nothing is refused although that was undone")
	}
	other.eventually("the other instance refuses again", func() bool { return !other.engine.Policy().WatchOnly() })

	// What somebody else has changed since is not undone.
	after = c.act(path, "word", "shadow", "for", "always")
	c.do("PUT", "/v1/policy/shadow", `{"until": "2126-01-01"}`).want(200)
	if p := c.send("POST", "/undo", after.form("/undo")); p.status != 412 || ask() {
		t.Errorf("the undo of what somebody else has changed: %d", p.status)
	}
	c.act("/act/enforce-all").says("enforced again")
	if !ask() {
		t.Error("nothing is refused although it is enforced")
	}

	// It goes along with the restart of an instance.
	c.act(path, "word", "shadow")
	if third := c.another(); !third.engine.Policy().WatchOnly() {
		t.Error("an instance that starts now refuses")
	}
}

// A refusal is found by the ID of its request, by what its 429 says, and by what the request was, and
// no page says a key that its rule hides.
func TestConsoleExplains(t *testing.T) {
	c := newConsole(t)
	const secret = "sk_live_of_somebody_4711"
	ask := func(id, key string) bool {
		r := &policy.Request{Method: "GET", Path: "/v1/<b>things</b>", Host: "api.example", Peer: netip.MustParseAddr("192.0.2.7"), Door: "gateway",
			Header: http.Header{"X-Api-Key": {key}, "X-Request-Id": {id}}}
		return c.engine.Decide(context.Background(), r).Allowed
	}
	for n := range 4 {
		if allowed := ask(fmt.Sprint("ticket-", n), secret); allowed != (n < 3) {
			t.Fatalf("premise: request %d is allowed: %v", n, allowed)
		}
	}
	for _, role := range []source.Role{source.Viewer, source.Operator, source.Admin} {
		c.as(role)
		p := c.open("/explain?id=ticket-3").says("per-key refused it", "it was beyond the limit", "to come again after", "api.example", "GET /v1/<b>things</b>", "3/day")
		if strings.Contains(p.text, secret) {
			t.Errorf("%s sees the key: %s", role, p.text)
		}
		_, posted, _ := strings.Cut(p.text, `id="by-id"`)
		form := (&shown{t: t, what: p.what, text: posted}).form("/explain")
		now := c.send("POST", "/explain", url.Values{
			"csrf": form["csrf"], "method": {"GET"}, "url": {"/x"}, "from": {"192.0.2.7"}, "headers": {"X-API-Key: " + secret + "\r\nX-Other: 1"},
		}).want(200).says("It is refused. It would pass in", "per-key refuses", "per-address passes", "own", "429")
		if strings.Contains(strings.Replace(now.text, "X-API-Key: "+secret, "", 1), secret) { // the form has it
			t.Errorf("%s is told the key", role)
		}
		c.send("POST", "/explain", url.Values{"csrf": form["csrf"], "url": {"/x"}, "headers": {"X-API-Key: nobody-yet"}}).want(200).says("It passes now", "3 of 3 left")
		for field, wrong := range map[string]string{"url": "x", "from": "nowhere", "headers": "no colon"} {
			f := url.Values{"csrf": form["csrf"], "method": {"GET"}, "url": {"/x"}}
			f.Set(field, wrong)
			c.send("POST", "/explain", f).want(422)
		}
		c.send("POST", "/explain", url.Values{"csrf": form["csrf"], "said": {`{"title":"Too Many Requests","violated-policies":["per-key"],"error":"rate_limit_exceeded"}`}}).want(200).says("It names 1 rule", "per-key 3 a day by api_key")
		c.send("POST", "/explain", url.Values{"csrf": form["csrf"], "said": {"Slow down. <script>"}}).want(200).says("It names no rule")
		c.open("/explain?id=ticket-0").says("No refusal of that ID is kept", "1 refusal is kept")
	}
	if left := c.limitUsed(secret); left != 3 {
		t.Errorf("explaining has charged something: %d are used", left)
	}
	c.do("GET", "/v1/refusals?id=ticket-3", "").want(200).says(`"rule":"per-key"`, `"because":"limit"`)
	c.do("GET", "/v1/refusals", "").want(400)
	// The search of every page leads there, and offers no subject that only might be. What was pasted from the
	// answer does, too.
	c.open("/subjects?q=ticket-3").says("per-key refused it")
	p := c.open("/subjects?q=ticket-0").says("Nothing is known by that name", "Where a subject of that name would count")
	if strings.Contains(p.text, "data-hit") {
		t.Errorf("a request that was let through is a subject: %s", p.words())
	}
	_, posted, _ := strings.Cut(c.open("/explain").text, `id="by-id"`)
	form := (&shown{t: t, what: "/explain", text: posted}).form("/explain")
	form.Set("said", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 9\r\nX-Request-Id: ticket-3\r\n")
	c.send("POST", "/explain", form).want(200).says("per-key refused it")
}

// limitUsed returns how much a key has used.
func (c *console) limitUsed(key string) int64 {
	r := &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{"X-Api-Key": {key}}}
	for _, result := range c.engine.Explain(context.Background(), r).Decision.Results {
		if result.Rule == "per-key" {
			return result.Plan.Capacity - result.Remaining
		}
	}
	return -1
}

// The policy before the present one comes back as a whole, with what differs shown first, and that is
// undone, unless somebody else has changed the rules since.
func TestConsoleGoesBack(t *testing.T) {
	c := newConsole(t)
	limit := func() string {
		t.Helper()
		var rule policy.Rule
		if err := json.Unmarshal(c.do("GET", "/v1/rules/own", "").want(200).body, &rule); err != nil {
			t.Fatal(err)
		}
		return rule.Limit
	}
	c.do("PUT", "/v1/rules/own", `{"match": ["GET /own"], "key": ["client_ip"], "limit": "7/hour"}`, match("*")).want(200)
	c.open("/policy").says("The policy before")
	p := c.open("/act/previous").says("limit: 7/hour", "limit: 2/day", "shadow: true", "What was counted for own begins anew", "the admin changed at")
	after := c.act("/act/previous").says("The policy is as it was before")
	if got := limit(); got != "2/day" {
		t.Errorf("the limit is %s", got)
	}
	c.open("/audit").says("the admin changed the rule own")
	c.undo(after)
	if got := limit(); got != "7/hour" {
		t.Errorf("undone, the limit is %s", got)
	}
	c.send("POST", "/act/previous", p.form("/act/previous")).want(409).says("look again")

	after = c.act("/act/previous")
	c.do("PUT", "/v1/rules/own", `{"match": ["GET /own"], "key": ["client_ip"], "limit": "9/hour"}`, match("*")).want(200)
	c.send("POST", "/undo", after.form("/undo")).want(409)
	if got := limit(); got != "9/hour" {
		t.Errorf("an undo has taken back what somebody else has done: the limit is %s", got)
	}
}

// A viewer sees no button, an operator not those of an admin, and what they may not do is refused.
func TestConsoleRoles(t *testing.T) {
	c := newConsole(t)
	c.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-1"}, "limit": "50/day"}`).want(201)
	pages := []string{"/rules", "/rules/own", "/rules/per-key", "/subjects", "/subjects?" + k1, "/subjects?q=k-1", "/shadow", "/overrides", "/audit", "/policy"}
	acts := map[string]source.Role{
		"block": source.Operator, "unblock": source.Operator, "raise": source.Operator, "reset": source.Operator,
		"refund": source.Operator, "end-override": source.Operator, "shadow": source.Admin, "enforce": source.Admin,
		"silence": source.Operator, "unsilence": source.Operator, "shadow-all": source.Admin, "enforce-all": source.Admin, "previous": source.Admin,
	}
	c.as(source.Viewer)
	for _, path := range pages {
		p := c.open(path)
		for _, button := range []string{`href="/act/`, `id="apply"`, `method="post" action="/policy`} {
			if strings.Contains(p.text, button) {
				t.Errorf("a viewer is offered %s at %s", button, path)
			}
		}
	}
	token := c.anyToken()
	for name := range acts {
		c.send("GET", "/act/"+name+"?"+k1, nil).want(403)
		c.send("POST", "/act/"+name, url.Values{"csrf": {token}, "rule": {"per-key"}, "key.api_key": {"k-1"}}).want(403)
	}
	for _, path := range []string{"/policy/check", "/policy/apply", "/policy/download", "/undo"} {
		c.send("POST", path, url.Values{"csrf": {token}}).want(403)
	}
	c.as(source.Operator)
	for name, role := range acts {
		if role == source.Admin {
			c.send("POST", "/act/"+name, url.Values{"csrf": {c.anyToken()}, "rule": {"own"}}).want(403)
		}
	}
	if p := c.open("/rules/own"); strings.Contains(p.text, "/act/enforce") {
		t.Error("an operator is offered to enforce a rule")
	}
	if p := c.open("/subjects?" + k1); !strings.Contains(p.text, "/act/block?") {
		t.Error("an operator is not offered to block")
	}
	c.token = ""
	c.send("GET", "/rules", nil, "Accept: text/html").want(303)
	c.send("POST", "/act/block", url.Values{"csrf": {token}}).want(401)
}

// anyToken returns the token of forms of whoever calls, from a form that all have, or what one
// would guess.
func (c *console) anyToken() string {
	if m := regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(c.open("/subjects?" + k1).text); m != nil {
		return m[1]
	}
	return "guessed"
}

// What no page of the dashboard has sent changes nothing.
func TestConsoleForgedForms(t *testing.T) {
	c := newConsole(t)
	page := c.open("/act/block?" + k1)
	good := page.form("/act/block", "reason", "x")
	without, others := maps.Clone(good), maps.Clone(good)
	without.Del("csrf")
	c.as(source.Operator)
	others.Set("csrf", c.open("/act/block?"+k1).form("/act/block").Get("csrf"))
	c.as(source.Admin)
	c.send("POST", "/act/block", without).want(403)
	c.send("POST", "/act/block", others).want(403)
	c.send("POST", "/act/block", good, "Sec-Fetch-Site: cross-site").want(403)
	c.send("POST", "/act/block", good, "Origin: https://evil.example").want(403)
	if !c.allowed("k-1") {
		t.Error("a forged form has blocked it")
	}
	c.send("POST", "/act/block", good, "Sec-Fetch-Site: same-origin").want(303)
	if c.allowed("k-1") {
		t.Error("the real form has not")
	}
}

// Keys of requests are text wherever they are shown.
func TestConsoleHostileKeys(t *testing.T) {
	c := newConsole(t)
	for _, key := range []string{`<img src=x onerror=alert(1)>`, `"><script>alert(1)</script>`, `' onmouseover='alert(1)`, "javascript:alert(1)", "a\u202Eb", `{{.}}`, `k/../../x?y#z`} {
		for range 9 {
			c.allowed(key)
		}
		c.engine.Decide(context.Background(), &policy.Request{Method: "G" + key, Path: "/" + key, Host: key, Peer: netip.MustParseAddr("192.0.2.7"), Door: "gateway",
			Header: http.Header{"X-Api-Key": {key}, "X-Request-Id": {key + "\x1b]0;x\a"}}})
		if p := c.open("/explain?id=" + url.QueryEscape(key+"\x1b]0;x\a")).says("per-key refused it"); strings.Contains(p.text[strings.Index(p.text, "data-refusal"):], "\x1b") {
			t.Errorf("the refusal has an ESC: %s", p.text)
		}
		q := "rule=per-key&key.api_key=" + url.QueryEscape(key)
		c.act("/act/block?"+q, "reason", key, "for", "1h")
		for _, path := range []string{
			"/", "/rules/per-key", "/rules?q=" + url.QueryEscape(key), "/subjects?q=" + url.QueryEscape(key), "/subjects", "/subjects?" + q,
			"/overrides?q=" + url.QueryEscape(key), "/overrides", "/audit", "/act/unblock?" + q, "/act/raise?" + q + "&reason=" + url.QueryEscape(key),
			"/explain?id=" + url.QueryEscape(key), "/explain?id=" + url.QueryEscape(key+"\x1b]0;x\a"), "/explain?id=" + strings.Repeat(url.QueryEscape(key), 10_000/len(key)),
			"/act/silence?alert=" + url.QueryEscape(key), "/act/shadow-all?until=" + url.QueryEscape(key) + "&word=" + url.QueryEscape(key), "/act/previous?entry=" + url.QueryEscape(key),
		} {
			p := c.send("GET", path, nil)
			if p.status == 303 {
				path = p.header.Get("Location")
				p = c.open(path)
			}
			if p.status >= 500 {
				t.Errorf("%s: status %d", path, p.status)
			}
			c.harmless(path, p.text)
		}
	}
}

// harmless fails if a page has an element, an attribute or a link that no template of ours has.
func (c *console) harmless(path, text string) {
	c.t.Helper()
	z := xhtml.NewTokenizer(strings.NewReader(text))
	for {
		switch z.Next() {
		case xhtml.ErrorToken:
			return
		case xhtml.StartTagToken, xhtml.SelfClosingTagToken:
			token := z.Token()
			if token.Data == "img" {
				c.t.Errorf("%s has an <img>", path)
			}
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Key, "on") || token.Data == "script" && a.Key == "src" && !strings.HasPrefix(a.Val, "/assets/") ||
					(a.Key == "href" || a.Key == "action") && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") && !strings.HasPrefix(a.Val, "?") {
					c.t.Errorf("%s has %s=%q in <%s>", path, a.Key, a.Val, token.Data)
				}
			}
			if token.Data == "script" && z.Next() == xhtml.TextToken && strings.TrimSpace(z.Token().Data) != "" {
				c.t.Errorf("%s has a script within it", path)
			}
		case xhtml.TextToken:
			if strings.Contains(z.Token().Data, "\u202E") {
				c.t.Errorf("%s has a mark that turns the text around it", path)
			}
		}
	}
}

// edit sends the editor's form with the text changed.
func (c *console) edit(page *shown, to string, replace ...string) *shown {
	c.t.Helper()
	f := page.form("/policy/check")
	f.Set("text", strings.NewReplacer(replace...).Replace(f.Get("base")))
	return c.send("POST", to, f)
}

// audited returns the latest entries of the audit log.
func (c *console) audited(n int) []source.Entry {
	c.t.Helper()
	var page struct{ Items []source.Entry }
	if err := json.Unmarshal(c.do("GET", fmt.Sprintf("/v1/audit?limit=%d", n), "").want(200).body, &page); err != nil {
		c.t.Fatal(err)
	}
	return page.Items
}

// One Apply is one transaction with one entry in the audit log, and both ways back restore all of it.
func TestConsoleAppliesAsAWhole(t *testing.T) {
	c := newConsole(t)
	c.do("POST", "/v1/rules", `{"name": "gone", "key": ["client_ip"], "limit": "6/day"}`).want(201)
	c.do("POST", "/v1/rules", `{"name": "last", "key": ["client_ip"], "limit": "8/day"}`).want(201)
	p := c.open("/policy")
	before := p.form("/policy/check").Get("base")
	// One rule is new, one has changed, and one is gone.
	edit := []string{"limit: 2/day", "limit: 5/day", "  - name: gone\n    key: [client_ip]\n    limit: 6/day\n", "", "rules:\n", "rules:\n  - {name: fresh, key: [client_ip], limit: 9/day}\n"}
	last := c.audited(1)[0].ID
	done := c.edit(p, "/policy/apply", edit...).want(303)
	after := c.open("/policy").form("/policy/check").Get("base")
	if strings.Contains(after, "gone") || !strings.Contains(after, "fresh") || !strings.Contains(after, "5/day") {
		t.Fatalf("in force is\n%s", after)
	}
	made := c.audited(5)
	if made[1].ID != last || made[0].Kind != "rules" || made[0].Actor != "the admin" {
		t.Errorf("the audit log has %+v", made)
	}
	c.open("/audit").says("changed the rules", "own.limit", "2/day → 5/day", "gone.limit", "fresh.limit")
	c.undo(c.open(done.header.Get("Location")))
	if got := c.open("/policy").form("/policy/check").Get("base"); got != before {
		t.Errorf("undone:\n%s\nbefore:\n%s", got, before)
	}
	// "The policy before…" goes there and back.
	for _, want := range []string{after, before} {
		c.act("/act/previous").says("as it was before")
		if got := c.open("/policy").form("/policy/check").Get("base"); !sameLines(got, want) {
			t.Errorf("the policy before is\n%s\nand it was\n%s", got, want)
		}
	}

	// What does not fit is told at its rule, and changes nothing.
	c.do("PUT", "/v1/rules/own", `{"key": ["client_ip"], "limit": "7/day"}`, match("*")).want(200)
	stale := c.edit(p, "/policy/apply", edit...).want(412)
	if n := strings.Count(stale.text, "Somebody else has changed it"); n != 2 { // "gone" came back as another row
		t.Errorf("%d rules were changed by another: %s", n, stale.words())
	}
	c.do("GET", "/v1/rules/fresh", "").want(404)
	fresh := c.open("/policy")
	c.do("POST", "/v1/overrides", `{"rule": "gone", "key": {"client_ip": "192.0.2.1"}, "limit": "9/day", "reason": "test"}`).want(201)
	gone := []string{"  - name: gone\n    key: [client_ip]\n    limit: 6/day\n", "", "limit: 8/day", "limit: 9/day"}
	c.edit(fresh, "/policy/apply", gone...).want(422).says("gone")
	c.do("GET", "/v1/rules/last", "").want(200).says("8/day")
}

// sameLines reports whether two texts have the same lines, in any order.
func sameLines(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// Rules are edited as text: what comes of it is shown before, applied as a whole, and undone.
func TestConsoleEditsThePolicy(t *testing.T) {
	c := newConsole(t)
	p := c.open("/policy")
	more := []string{"limit: 2/day", "limit: 5/day", "rules:\n", "rules:\n  - {name: fresh, key: [client_ip], limit: 9/day, shadow: true}\n"}
	c.edit(p, "/policy/check", more...).want(200).says("2 rules change", "fresh", "own", "begins anew")
	if c.do("GET", "/v1/rules/fresh", "").status != 404 {
		t.Fatal("checking has created a rule")
	}
	done := c.edit(p, "/policy/apply", more...).want(303)
	c.do("GET", "/v1/rules/fresh", "").want(200).says("9/day")
	c.do("GET", "/v1/rules/own", "").want(200).says("5/day")
	c.undo(c.open(done.header.Get("Location")))
	c.do("GET", "/v1/rules/fresh", "").want(404)
	c.do("GET", "/v1/rules/own", "").want(200).says("2/day")

	// What is wrong is told with its line, and nothing is applied.
	bad := c.edit(p, "/policy/apply", "limit: 2/day", "limit: often").want(422).says("often")
	lines := strings.Split(p.form("/policy/check").Get("base"), "\n")
	line := 1 + slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "2/day") })
	if !strings.Contains(bad.text, fmt.Sprintf(`<li data-line="%d">`, line)) {
		t.Errorf("line %d is not told: %s", line, bad.words())
	}
	c.edit(p, "/policy/apply", "limit: 3/day", "limit: 4/day", "limit: 2/day", "limit: [").want(422)
	c.edit(p, "/policy/apply", "version: 1\n", "version: 1\nipv6_prefix: 56\n").want(422).says("only rules are changed here")

	// What is in the file stays there, and may be covered.
	c.edit(p, "/policy/check", "limit: 3/day", "limit: 4/day").want(200).says("the database's takes its place")
	first := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "per-address") })
	last := slices.Index(lines, "  # From the database:")
	c.edit(p, "/policy/apply", strings.Join(lines[first:last], "\n")+"\n", "").want(409).says("per-address", "remove it there")

	// Removed, and put back.
	f := c.open("/policy").form("/policy/check")
	head, _, _ := strings.Cut(f.Get("base"), "  # From the database:")
	f.Set("text", head)
	removed := c.send("POST", "/policy/apply", f).want(303)
	c.do("GET", "/v1/rules/own", "").want(404)
	c.undo(c.open(removed.header.Get("Location")))
	c.do("GET", "/v1/rules/own", "").want(200).says("2/day", `"shadow":true`)
}

// Somebody else's change since is not lost.
func TestConsolePolicyConflict(t *testing.T) {
	c := newConsole(t)
	p := c.open("/policy")
	c.do("PUT", "/v1/rules/own", `{"match": ["GET /own"], "key": ["client_ip"], "limit": "7/day"}`, match("*")).want(200)
	c.edit(p, "/policy/apply", "limit: 2/day", "limit: 5/day").want(412).says("Somebody else has changed it", "own")
	c.do("GET", "/v1/rules/own", "").want(200).says("7/day")
	// A change of another rule is none of that.
	c.edit(p, "/policy/apply", "rules:\n", "rules:\n  - {name: fresh, key: [client_ip], limit: 9/day}\n").want(303)
	c.do("GET", "/v1/rules/own", "").want(200).says("7/day")
}

// Without a database acts on counts work, and the rest says what to write into the file.
func TestConsoleWithoutDatabase(t *testing.T) {
	doc, err := policyfile.Decode("policy.yaml", []byte(filePolicy))
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, engine: policy.NewEngine(memory.New(), nil), client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	stack := &source.Stack{Swap: i.engine.Swap}
	if _, err := stack.File(doc, nil); err != nil {
		t.Fatal(err)
	}
	if err := stack.UseFile(); err != nil {
		t.Fatal(err)
	}
	rules := &control.Policy{Stack: stack}
	server := httptest.NewServer(dashboardOf(adminapi.New(adminapi.Config{
		Engine: i.engine, Current: rules.now, Tokens: rules.tokens, Local: true, Logger: slog.New(slog.DiscardHandler),
	}), ""))
	t.Cleanup(server.Close)
	c := &console{instance: i, base: server.URL}

	after := c.act("/act/block?"+k1, "for", "1h")
	after.says("blocked")
	if c.allowed("k-1") {
		t.Error("it passes although it is blocked")
	}
	c.undo(after)
	if !c.allowed("k-1") {
		t.Error("it is blocked although that was undone")
	}
	raise := c.open("/act/raise?" + k1 + "&limit=50/day&until=2126-12-31&reason=why")
	_, yaml, found := strings.Cut(raise.text, `policy file">`)
	yaml, _, _ = strings.Cut(yaml, "</pre>")
	if !found {
		t.Fatalf("there is nothing to paste: %s", raise.words())
	}
	// As it says: below the overrides that there are.
	whole := filePolicy + strings.TrimPrefix(html.UnescapeString(yaml), "overrides:\n")
	p, err := policyfile.Parse("policy.yaml", []byte(whole))
	if err != nil {
		t.Fatalf("%v in\n%s", err, whole)
	}
	i.engine.Swap(p)
	if got := i.limitOf("k-1"); got != 50 {
		t.Errorf("what was pasted makes a limit of %d", got)
	}
	c.send("POST", "/act/raise", raise.form("/act/raise", "limit", "50/day")).want(409)
	c.open("/audit").says("admin API changed")

	// What is in the file is told, and not written.
	c.open("/act/shadow-all?until=2126-12-31").says("Put this at the top of it", "shadow: 2126-12-31")
	for _, until := range []string{"2020-01-01", "always%0Arules:%20[]", "%1B[2J"} { // a link may say anything
		if p := c.send("GET", "/act/shadow-all?until="+until, nil); strings.Contains(p.text, "policy file\">") {
			t.Errorf("until %s is to be pasted", until)
		}
	}
	c.open("/act/previous").says("There is none: no other policy has been in force")
	if doc, err = policyfile.Decode("policy.yaml", []byte("shadow: always\n"+strings.Replace(filePolicy, "3/day", "8/day", 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := stack.File(doc, nil); err != nil {
		t.Fatal(err)
	}
	if err := stack.UseFile(); err != nil {
		t.Fatal(err)
	}
	c.open("/rules").says("Nothing is refused")
	c.open("/act/enforce-all").says("Remove this from the top of it", "shadow: always")
	back := c.open("/act/previous").says("Put this into it", "limit: 8/day", "limit: 3/day")
	_, yaml, _ = strings.Cut(back.text, `policy file">`)
	yaml, _, _ = strings.Cut(yaml, "</pre>")
	if doc, err = policyfile.Decode("policy.yaml", []byte(html.UnescapeString(yaml))); err != nil || doc.Rules[0].Limit != "3/day" || doc.Shadow != "" || len(doc.Overrides) != 1 {
		t.Errorf("what was the policy before is shown as %s: %v", yaml, err)
	}
	// Files that it names are not kept.
	for _, network := range []string{"192.0.2.0/24", "198.51.100.0/24"} {
		next := doc
		next.Lists = map[string]policy.List{"office": {File: "office.txt", Networks: []string{network}}}
		if _, err := stack.File(next, nil); err != nil {
			t.Fatal(err)
		}
		if err := stack.UseFile(); err != nil {
			t.Fatal(err)
		}
	}
	c.open("/act/previous").says("The policy file says the same as before")
	if doc, err = policyfile.Decode("policy.yaml", []byte("shadow: always\n"+strings.Replace(filePolicy, "3/day", "8/day", 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := stack.File(doc, nil); err != nil {
		t.Fatal(err)
	}
	if err := stack.UseFile(); err != nil {
		t.Fatal(err)
	}
	page := c.open("/policy").says("There is no database")
	edited := c.edit(page, "/policy/check", "limit: 8/day", "limit: 4/day").want(200).says("What to change in the file", "limit: 4/day")
	f := edited.form("/policy/check")
	f.Set("text", "version: 1\n")
	if got := c.send("POST", "/policy/download", f).want(200); got.text != "version: 1\n" || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("downloaded %q", got.text)
	}
	c.send("POST", "/policy/apply", f).want(422)
}

// useFile puts a file's policy into force.
func (c *console) useFile(doc *policy.Document) {
	c.t.Helper()
	_, err := c.stack.File(*doc, nil)
	if err == nil {
		err = c.stack.UseFile()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// With 100,000 overrides every page reads and shows a few of them, and the filter finds each one by what it
// really has, which is not what is shown.
func TestConsoleManyOverrides(t *testing.T) {
	c := newConsole(t)
	doc, err := policyfile.Decode("policy.yaml", []byte(filePolicy))
	if err != nil {
		t.Fatal(err)
	}
	const many = 100_000
	key := func(i int) string { return fmt.Sprintf("sk_live_%06d_%06d", i, 7*i) }
	doc.Overrides = nil
	for i := range many {
		doc.Overrides = append(doc.Overrides, policy.Override{Rule: "per-key", Key: map[string]string{"api_key": key(i)}, Limit: "9/day", Reason: "plan " + strconv.Itoa(i%1000)})
	}
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	doc.Overrides[70_000].Until = soon
	doc.Overrides[500].Block, doc.Overrides[500].Limit = true, ""
	c.useFile(&doc)
	row := regexp.MustCompile(`data-override="([0-9a-f]+)"`)
	next := regexp.MustCompile(`href="([^"]*)" id="next"`)
	// page opens one, holds it to a size, and returns what it has.
	page := func(path string, most int) (p *shown, ids []string) {
		t.Helper()
		p = c.open(path)
		for _, m := range row.FindAllStringSubmatch(p.text, -1) {
			ids = append(ids, m[1])
		}
		if len(ids) > most || len(p.text) > 20_000+1_000*most {
			t.Errorf("%s has %d rows and %d bytes", path, len(ids), len(p.text))
		}
		return p, ids
	}
	first, ids := page("/overrides", 100)
	first.says("100 k overrides")
	if want := control.OverrideID("per-key", doc.Overrides[70_000].Key); len(ids) != 100 || ids[0] != want {
		t.Errorf("the first of %d is %q, and %q ends first", len(ids), ids[0], want)
	}
	all := map[string]bool{}
	for range 3 {
		for _, id := range ids {
			if all[id] {
				t.Errorf("%s is on two pages", id)
			}
			all[id] = true
		}
		first, ids = page(html.UnescapeString(next.FindStringSubmatch(first.text)[1]), 100)
	}
	rule, _ := page("/rules/per-key", 20)
	rule.says("100 k more")

	only := func(query string, i int) {
		t.Helper()
		_, ids := page("/overrides?"+query, 100)
		if want := control.OverrideID("per-key", doc.Overrides[i].Key); len(ids) != 1 || ids[0] != want {
			t.Errorf("%s finds %q, want %s", query, ids, want)
		}
	}
	only("q=054321_3802", 54_321)
	only("rule=per-key&q="+strings.ToUpper(key(99_999)), 99_999)
	only("state=blocks", 500)
	only("state=today", 70_000)
	page("/overrides?q=plan+77", 100)
	var answer struct {
		Items []any
		Total int
	}
	body := c.do("GET", "/v1/overrides?sort=until&limit=7&q=plan+77", "").want(200).body
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Items) != 7 || answer.Total != 11*many/1000 || len(body) > 4_000 { // 77 and 770 to 779
		t.Errorf("%d items of %d, %d bytes: %v", len(answer.Items), answer.Total, len(body), err)
	}
	// A caller who may not see keys cannot guess one letter by letter.
	c.as(source.Viewer)
	only("q="+key(54_321), 54_321)
	if p, ids := page("/overrides?q=054321_3802", 100); len(ids) != 0 || strings.Contains(p.text, key(54_321)) {
		t.Errorf("a viewer finds %q by a part of a key", ids)
	}
}

// Keys that are shortened to the same text are told apart by a pseudonym, by which they are found, and only
// those who may act on a subject are shown its key.
func TestConsoleTellsShortKeysApart(t *testing.T) {
	c := newConsole(t)
	pseudonyms := map[string]string{}
	for _, key := range []string{"k-1", "k-2", "k-3"} {
		for range 4 {
			c.allowed(key)
		}
		s, err := c.engine.Subject("per-key", map[string]string{"api_key": key})
		if err != nil {
			t.Fatal(err)
		}
		pseudonyms[key] = "#" + s.Pseudonym()[:6]
	}
	if len(pseudonyms) != 3 || pseudonyms["k-1"] == pseudonyms["k-2"] {
		t.Fatalf("pseudonyms are %q", pseudonyms)
	}
	c.do("POST", "/v1/overrides", `{"rule": "per-key", "key": {"api_key": "k-2"}, "limit": "9/day", "reason": "test"}`).want(201)
	link := regexp.MustCompile(`href="(/key\?[^"]*)"`)
	for _, role := range []source.Role{source.Viewer, source.Operator, source.Admin} {
		c.as(role)
		for _, path := range []string{"/subjects", "/rules/per-key"} {
			p := c.open(path)
			for key, pseudonym := range pseudonyms {
				p.says("… " + pseudonym)
				if strings.Contains(p.text, key) {
					t.Errorf("%s shows %s the key %s", path, role, key)
				}
			}
		}
		for _, path := range []string{"/overrides", "/audit"} {
			if p := c.open(path); path == "/overrides" || role != source.Viewer { // whose API hides the key of an entry
				p.says("… " + pseudonyms["k-2"])
			}
		}
		p := c.open("/subjects?q=" + url.QueryEscape(pseudonyms["k-3"]))
		if hits := strings.Count(p.text, "data-hit="); hits != 1 {
			t.Errorf("%s finds %d subjects by a pseudonym: %s", role, hits, p.words())
		}
		id := regexp.MustCompile(`href="(/subjects/[0-9a-f]+)"`).FindStringSubmatch(p.text)
		subject := c.open(id[1]).says("… " + pseudonyms["k-3"])
		whole := link.FindStringSubmatch(subject.text)
		if role == source.Viewer {
			if whole != nil {
				t.Error("a viewer is offered the key")
			}
			c.send("GET", "/key?id="+strings.TrimPrefix(id[1], "/subjects/"), nil).want(403)
			continue
		}
		if whole == nil || strings.Contains(subject.text, "k-3") {
			t.Fatalf("%s: the key is offered as %q, %s", role, whole, subject.words())
		}
		c.open(html.UnescapeString(whole[1])).says("api_key k-3")
		if log := c.log.String(); !strings.Contains(log, "the whole key of a subject was shown") || !strings.Contains(log, "actor=\"the "+string(role)) {
			t.Errorf("the log does not have who looked: %s", log)
		}
	}
}

// Who is found is the one that was asked for, and what is shown is what was counted.
func TestConsoleFinds(t *testing.T) {
	c := newConsole(t)
	for range 2 {
		c.allowed("k-found")
	}
	p := c.open("/subjects?q=k-found")
	if !strings.Contains(p.text, `data-hit="per-key"`) {
		t.Errorf("it is not found: %s", p.words())
	}
	p.says("2 of 3")
	c.open("/subjects?q=192.0.2.7").says("per-address")
	c.open("/subjects?q=0123456789abcdef").says("Where a subject of that name would count")
	p = c.open("/subjects?rule=per-key&key.api_key=k-found") // which leads to a page by the ID
	if !strings.Contains(p.text, `data-used="2" data-remaining="1"`) {
		t.Errorf("%s", p.words())
	}
	if strings.Contains(p.text, "k-found") {
		t.Error("a page by the ID says the key, which its rule shortens")
	}
	// Its buttons lead where they say.
	c.as(source.Operator)
	for _, page := range []string{"/subjects?rule=per-key&key.api_key=k-found", "/subjects?rule=per-address&key.client_ip=192.0.2.99"} {
		links := regexp.MustCompile(`href="(/act/[^"]*)"`).FindAllStringSubmatch(c.open(page).text, -1)
		if len(links) != 4 {
			t.Errorf("%s has the acts %q", page, links)
		}
		for _, m := range links {
			c.open(html.UnescapeString(m[1]))
		}
	}
	c.send("GET", "/subjects?rule=none&key.x=y", nil).want(404)
	c.send("GET", "/subjects?rule=per-key&key.x=y", nil).want(422)
	c.send("GET", "/subjects/nobody", nil).want(404)
	c.send("GET", "/rules/none", nil).want(404)
}

// A key that is too long to be kept is found by its ID, looked at and reset, and nothing offers what
// needs the whole of it.
func TestConsoleLongKeys(t *testing.T) {
	c := newConsole(t)
	long := strings.Repeat("k", 300)
	for range 3 {
		c.allowed(long)
	}
	page := c.send("GET", "/subjects?rule=per-key&key.api_key="+long, nil).want(303)
	by := page.header.Get("Location")
	p := c.open(by).says("only a hash of it is known")
	if !strings.Contains(p.text, `data-used="3" data-remaining="0"`) {
		t.Errorf("%s", p.words())
	}
	id := "id=" + by[strings.LastIndex(by, "/")+1:]
	c.open("/act/raise?" + id).says("only a hash of it is known")
	c.act("/act/reset?" + id)
	if !c.allowed(long) {
		t.Error("it is refused after a reset")
	}
}

// A viewer sees nowhere more of a key than its rule shows.
func TestViewersSeeNoKeys(t *testing.T) {
	c := newConsole(t)
	const key = "sk_live_4f8a2c6e9b"
	c.do("POST", "/v1/rules", `{"name": "paid", "key": ["api_key"], "missing": "skip", "limit": "5/hour"}`).want(201)
	c.do("POST", "/v1/rules", `{"name": "hashed", "key": ["header:X-User", "client_ip"], "missing": "skip", "show_key": "hash", "limit": "5/hour"}`).want(201)
	until := time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
	c.do("POST", "/v1/overrides", `{"rule": "paid", "key": {"api_key": "`+key+`"}, "limit": "50/hour", "until": "`+until+`", "reason": "a launch"}`).want(201)
	c.do("POST", "/v1/overrides", `{"rule": "hashed", "key": {"header:X-User": "`+key+`", "client_ip": "*"}, "limit": "50/hour", "until": "`+until+`", "reason": "a launch"}`).want(201)
	c.do("POST", "/v1/subjects/reset", `{"rule": "paid", "key": {"api_key": "`+key+`"}, "reason": "a test"}`).want(200)
	c.eventually("the rules are in force", func() bool {
		_, err := c.engine.Subject("hashed", map[string]string{"header:X-User": key, "client_ip": "192.0.2.1"})
		return err == nil
	})
	for _, role := range []source.Role{source.Operator, source.Viewer} { // what was kept for one is not for the other
		c.as(role)
		for _, path := range []string{"/", "/overrides", "/overrides?q=launch", "/rules/paid", "/rules/hashed", "/audit", "/subjects", "/shadow", "/policy"} {
			if page := c.open(path); role == source.Viewer && strings.Contains(page.text, key) {
				t.Errorf("%s tells a viewer %s", path, key)
			}
		}
	}
	// Nor do other rules tell what one hides, of the same request.
	for range 4 {
		c.engine.Decide(context.Background(), &policy.Request{Method: "GET", Path: "/", Peer: netip.MustParseAddr("192.0.2.231"), Door: "gateway",
			Header: http.Header{"X-Api-Key": {"k-refused"}, "X-Request-Id": {"a-refusal"}}})
	}
	for _, role := range []source.Role{source.Operator, source.Viewer} {
		c.as(role)
		page, body := c.open("/explain?id=a-refusal").says("per-key refused it"), c.do("GET", "/v1/refusals?id=a-refusal", "").want(200).body
		for what, text := range map[string]string{"the page": page.text, "the API": string(body)} {
			if tells := strings.Contains(text, "192.0.2.231"); tells != (role == source.Operator) {
				t.Errorf("%s tells a %s the address: %v", what, role, tells)
			}
		}
	}
	for _, path := range []string{"/v1/overrides", "/v1/audit", "/v1/policy"} {
		if body := c.do("GET", path, "").want(200).body; strings.Contains(string(body), key) {
			t.Errorf("%s tells a viewer %s", path, body)
		}
	}
}
