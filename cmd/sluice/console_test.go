package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/apitest"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// console is a browser without JavaScript at the dashboard of an instance.
type console struct {
	*instance
	base string // the URL of the dashboard
	opened
	editor *shown            // the page /policy that was opened last
	kept   map[string]opened // by the names that scripts keep them under
	ends   []policy.Decision // of requests in flight
}

// opened are pages.
type opened struct {
	last *shown // the page that was opened last
	done *shown // the page that says what was done last
}

// shown is a page.
type shown struct {
	*apitest.Answer
	html string
}

// newConsole starts the dashboard over a database with a rule and a token of each role, as an admin.
func newConsole(t *testing.T) *console {
	t.Helper()
	i := newInstance(t, sqliteURL(t))
	fleet := &telemetry.Fleet{Recorder: telemetry.Watch(i.engine, telemetry.Config{Subjects: true}), Refusals: telemetry.KeepRefusals(i.engine)}
	i.api.View, i.api.Find, i.api.Refusals = fleet.View, fleet.Find, fleet.FindRefusals
	i.play(`
POST /v1/rules {"name": "own", "match": ["GET /own"], "key": ["client_ip"], "limit": "2/day", "shadow": true} => 201
token the viewer = viewer
token the operator = operator
token the admin = admin
as the admin
await GET /v1/policy => 200
`)
	return consoleOf(t, i)
}

// fileConsole starts the dashboard of an instance without a database.
func fileConsole(t *testing.T) *console {
	t.Helper()
	i := &instance{t: t, log: new(lockedBuffer), engine: policy.NewEngine(memory.New(), nil)}
	i.stack = &source.Stack{Swap: i.engine.Swap}
	i.useFile(filePolicy)
	rules := &adminRules{stack: i.stack}
	i.api = adminapi.New(adminapi.Config{
		Engine: i.engine, Current: rules.now, Tokens: rules.tokens, Local: true, Logger: slog.New(slog.DiscardHandler),
	})
	i.serve()
	return consoleOf(t, i)
}

func consoleOf(t *testing.T, i *instance) *console {
	server := httptest.NewServer(dashboardOf(i.api, ""))
	t.Cleanup(server.Close)
	c := &console{instance: i, base: server.URL, kept: map[string]opened{}}
	for name, value := range map[string]string{
		"k1": "rule=per-key&key.api_key=k-1", "flight": "rule=flight&key.client_ip=192.0.2.9", "key300": strings.Repeat("k", 300),
		"secret": "sk_live_of_a_customer_4711",
	} {
		i.Vars[name] = value
	}
	c.addCommands()
	return c
}

// Each section of testdata/console is a test of the dashboard, over a database or over a file alone.
func TestConsole(t *testing.T) {
	t.Parallel()
	for file, sections := range apitest.Sections(t, "testdata/console/*.txt") {
		for _, s := range sections {
			t.Run(file+"/"+s.Title, func(t *testing.T) {
				t.Parallel()
				start := newConsole
				if file == "file" {
					start = fileConsole
				}
				start(t).Play(s)
			})
		}
	}
}

// addCommands adds the steps that testdata/console has besides those of testdata/api.
func (c *console) addCommands() {
	passes := map[bool]string{true: "pass", false: "refuse"}
	hold := func(s apitest.Step, what string, allowed bool, want string) {
		if passes[allowed] != want {
			c.t.Errorf("%s: %s: %s, want %s", s.Where, what, passes[allowed], want)
		}
	}
	charged := func(s apitest.Step) {
		hold(s, s.Rest, c.engine.Decide(c.t.Context(), request(s.Rest)).Allowed, s.Verb)
	}
	for name, do := range map[string]func(apitest.Step){
		"pass": charged, "refuse": charged,
		"decides": func(s apitest.Step) {
			what, want, _ := strings.Cut(s.Rest, " = ")
			hold(s, what, c.engine.Explain(c.t.Context(), requestOf(what)).Decision.Allowed, want)
		},
		"charge": func(s apitest.Step) { c.engine.Decide(c.t.Context(), requestOf(s.Rest)) },
		"begin": func(s apitest.Step) {
			r := requestOf("GET " + s.Rest + " - 192.0.2.9")
			r.Ends = true
			c.ends = append(c.ends, c.engine.Decide(c.t.Context(), r))
		},
		"end": func(apitest.Step) {
			c.engine.Release(c.t.Context(), c.ends[0])
			c.ends = c.ends[1:]
		},
		"ask": func(s apitest.Step) {
			what, want, _ := strings.Cut(s.Rest, " = ")
			id, key, _ := strings.Cut(what, " ")
			r := request(key)
			r.Path, r.Host, r.Door = "/v1/<b>things</b>", "api.example", "gateway"
			r.Header.Set("X-Request-Id", id)
			hold(s, what, c.engine.Decide(c.t.Context(), r).Allowed, want)
		},
		"left":      c.leaves,
		"refused":   c.refuse,
		"page":      func(s apitest.Step) { c.hold(s, c.open(s.Rest)) },
		"submit":    func(s apitest.Step) { c.submit(s, c.last) },
		"resubmit":  c.resubmit,
		"act":       c.act,
		"keep":      func(s apitest.Step) { c.kept[s.Rest] = c.opened },
		"undo":      c.undo,
		"effect":    c.effect,
		"edit":      c.edit,
		"policy":    c.policy,
		"paste":     c.paste,
		"buttons":   c.buttons,
		"together":  c.together,
		"elsewhere": c.elsewhere,
		"log": func(s apitest.Step) {
			log := c.log.take()
			for _, text := range append(s.More, s.Rest) {
				if !strings.Contains(log, text) {
					c.t.Errorf("%s: the log has no %s: %s", s.Where, text, log)
				}
			}
		},
	} {
		c.Commands[name] = do
	}
}

// requestOf returns a request of a text "METHOD PATH KEY ADDRESS", where "-" is no key.
func requestOf(text string) *policy.Request {
	f := strings.Fields(text)
	r := &policy.Request{Method: f[0], Path: f[1], Peer: netip.MustParseAddr(f[3]), Header: http.Header{}}
	if f[2] != "-" {
		r.Header.Set("X-Api-Key", f[2])
	}
	return r
}

// leaves holds how much a key has left.
func (c *console) leaves(s apitest.Step) {
	key, want, _ := strings.Cut(s.Rest, " ")
	results := c.engine.Explain(c.t.Context(), request(key)).Decision.Results
	if n := slices.IndexFunc(results, isPerKey); n < 0 || strconv.FormatInt(results[n].Remaining, 10) != want {
		c.t.Errorf("%s: %s has left %+v, want %s", s.Where, key, results, want)
	}
}

// refuse has keys refused, and sets $p1 and $q1 to the pseudonym of the first, as a text and in a query.
func (c *console) refuse(s apitest.Step) {
	for n, key := range strings.Fields(s.Rest) {
		for range 4 {
			c.engine.Decide(c.t.Context(), request(key))
		}
		subject, err := c.engine.Subject("per-key", map[string]string{"api_key": key})
		if err != nil {
			c.t.Fatal(err)
		}
		pseudonym := "#" + subject.Pseudonym()[:6]
		c.Vars[fmt.Sprint("p", n+1)], c.Vars[fmt.Sprint("q", n+1)] = pseudonym, url.QueryEscape(pseudonym)
	}
}

// send sends a request to the dashboard.
func (c *console) send(method, path string, form url.Values, fields ...string) *shown {
	c.t.Helper()
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	answer, err := c.Client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return &shown{&apitest.Answer{Status: answer.StatusCode, Header: answer.Header, Body: text}, string(text)}
}

// open opens a page, and what that leads to.
func (c *console) open(path string) *shown {
	c.t.Helper()
	p := c.send("GET", path, nil)
	if p.Status == http.StatusSeeOther {
		p = c.send("GET", p.Header.Get("Location"), nil)
	}
	c.last = p
	if path == "/policy" {
		c.editor = p
	}
	return p
}

// hold holds a page to the lines of a step.
func (c *console) hold(s apitest.Step, p *shown) {
	c.t.Helper()
	var lines []string
	for _, line := range s.More {
		text, unwanted := strings.CutPrefix(line, "! ")
		inHTML, isHTML := strings.CutPrefix(text, "html ")
		ofKey, isKey := strings.CutPrefix(text, "key ")
		name, of, assigns := strings.Cut(line, " = ")
		switch {
		case isHTML:
			if strings.Contains(p.html, inHTML) == unwanted {
				c.t.Errorf("%s: the page has %s: %v\n%s", s.Where, inHTML, !unwanted, p.words())
			}
		case isKey && unwanted: // except where the form repeats it
			if strings.Contains(strings.ReplaceAll(p.html, "X-API-Key: "+ofKey, ""), ofKey) {
				c.t.Errorf("%s: the page has the key %s", s.Where, ofKey)
			}
		case assigns && of == "base":
			c.Vars[name[1:]] = p.form(c.t, "/policy/check").Get("base")
		case assigns && strings.HasPrefix(of, "/"):
			found := regexp.MustCompile(strings.Trim(of, "/")).FindStringSubmatch(p.html)
			if found == nil {
				c.t.Fatalf("%s: the page has no %s: %s", s.Where, of, p.html)
			}
			c.Vars[name[1:]] = html.UnescapeString(found[1])
		default:
			lines = append(lines, line)
		}
	}
	c.Hold(s, p.Answer, p.words(), lines)
}

var (
	tags      = regexp.MustCompile(`<[^>]*>`)
	blanks    = regexp.MustCompile(`\s+`)
	hidden    = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	rows      = regexp.MustCompile(`<th scope="row">([^<]*)</th><td>([^<]*)</td><td>(?:<strong>([^<]*)</strong>)?`)
	actLinks  = regexp.MustCompile(`href="(/act/[^"]*)"`)
	sentField = regexp.MustCompile(`^[A-Z][A-Za-z-]*: `)
)

// words is what a person reads of the main part.
func (p *shown) words() string {
	_, main, found := strings.Cut(p.html, "<main")
	if !found {
		return p.html
	}
	text := html.UnescapeString(blanks.ReplaceAllString(tags.ReplaceAllString("<main"+main, " "), " "))
	return strings.ReplaceAll(text, "\u00a0", " ")
}

// form returns the hidden fields of the form that posts to an action.
func (p *shown) form(t *testing.T, action string) url.Values {
	t.Helper()
	if strings.HasPrefix(action, "/policy/") { // the editor has several buttons
		action = "/policy/check"
	}
	_, form, found := strings.Cut(p.html, `method="post" action="`+action+`"`)
	if !found {
		t.Fatalf("the page has no form of %s: %s", action, p.words())
	}
	form, _, _ = strings.Cut(form, "</form>")
	f := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(form, -1) {
		f.Set(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	return f
}

// submit sends a form of a page, and opens what that leads to.
func (c *console) submit(s apitest.Step, from *shown) {
	c.t.Helper()
	action, values, _ := strings.Cut(s.Rest, " ")
	form := from.form(c.t, action)
	for value := range strings.SplitSeq(values, "; ") {
		switch name, value, _ := strings.Cut(value, "="); {
		case value == "-":
			form.Del(name)
		case name != "":
			form.Set(name, strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(value))
		}
	}
	c.post(s, action, form)
}

// post sends a form, and keeps the page that says what was done.
func (c *console) post(s apitest.Step, action string, form url.Values) {
	c.t.Helper()
	var sent []string
	s.More = slices.DeleteFunc(s.More, func(line string) bool {
		if sentField.MatchString(line) {
			sent = append(sent, line)
			return true
		}
		return false
	})
	p := c.send("POST", action, form, sent...)
	if p.Status == http.StatusSeeOther {
		c.done = c.open(p.Header.Get("Location"))
	}
	c.hold(s, p)
}

func (c *console) resubmit(s apitest.Step) {
	name, action, _ := strings.Cut(s.Rest, " ")
	s.Rest = action
	c.submit(s, c.kept[name].last)
}

// act opens the page of an act and does it.
func (c *console) act(s apitest.Step) {
	c.t.Helper()
	path, values, _ := strings.Cut(s.Rest, " ")
	action, _, _ := strings.Cut(path, "?")
	c.hold(apitest.Step{Where: s.Where, Verb: s.Verb, Rest: path, Want: "200"}, c.open(path))
	c.submit(apitest.Step{Where: s.Where, Verb: s.Verb, Rest: action + " " + values, Want: "303"}, c.last)
	s.Want = "200"
	c.hold(s, c.done)
}

func (c *console) undo(s apitest.Step) {
	c.t.Helper()
	done := c.done
	if s.Rest != "" {
		done = c.kept[s.Rest].done
	}
	form := done.form(c.t, "/undo")
	if s.Want != "" {
		c.hold(s, c.send("POST", "/undo", form))
		return
	}
	p := c.send("POST", "/undo", form)
	if p.Status != http.StatusSeeOther {
		c.t.Fatalf("%s: undo: %d %s", s.Where, p.Status, p.words())
	}
	c.hold(apitest.Step{Where: s.Where, Verb: s.Verb, Want: "200 Undone"}, c.open(p.Header.Get("Location")))
}

// effect holds what the last page says of a row before and after.
func (c *console) effect(s apitest.Step) {
	c.t.Helper()
	name, wants, _ := strings.Cut(s.Rest, " = ")
	before, after, _ := strings.Cut(wants, " -> ")
	is := func(got, want string) bool {
		start, open := strings.CutSuffix(want, "…")
		return got == want || open && strings.HasPrefix(got, start)
	}
	for _, m := range rows.FindAllStringSubmatch(c.last.html, -1) {
		if m[3] == "" {
			m[3] = m[2]
		}
		if m[1] == name {
			if !is(m[2], before) || !is(m[3], after) {
				c.t.Errorf("%s: the effect on %s is %q -> %q, want %s", s.Where, name, m[2], m[3], wants)
			}
			return
		}
	}
	c.t.Errorf("%s: the page has no effect on %s: %s", s.Where, name, c.last.words())
}

// edit sends the editor of the policy with other texts.
func (c *console) edit(s apitest.Step) {
	c.t.Helper()
	form := c.editor.form(c.t, "/policy/check")
	text := form.Get("base")
	var more []string
	for _, line := range s.More {
		was, is, replaces := strings.Cut(strings.ReplaceAll(line, `\n`, "\n"), " -> ")
		switch {
		case !replaces:
			more = append(more, line)
		case !strings.Contains(text, was):
			c.t.Fatalf("%s: the policy has no %s:\n%s", s.Where, was, text)
		}
		if replaces {
			text = strings.Replace(text, was, is, 1)
		}
	}
	form.Set("text", text)
	s.More = more
	c.last = c.editor
	c.post(s, s.Rest, form)
}

// policy holds the policy that the editor has to the lines of a text, in any order.
func (c *console) policy(s apitest.Step) {
	c.t.Helper()
	got, want := strings.Split(c.open("/policy").form(c.t, "/policy/check").Get("base"), "\n"), strings.Split(s.Rest, "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: the policy is\n%s\nwant\n%s", s.Where, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// paste does what the last page says of the policy file.
func (c *console) paste(s apitest.Step) {
	c.t.Helper()
	_, text, found := strings.Cut(c.last.html, `policy file">`)
	if !found {
		c.t.Fatalf("%s: the page has nothing to paste: %s", s.Where, c.last.words())
	}
	text, _, _ = strings.Cut(text, "</pre>")
	text = html.UnescapeString(text)
	if s.Rest != "all" { // below the overrides that the file has
		text = filePolicy + strings.TrimPrefix(text, "overrides:\n")
	}
	c.useFile(text)
}

// buttons holds that the last page has so many acts, and that each leads to a page.
func (c *console) buttons(s apitest.Step) {
	c.t.Helper()
	links := actLinks.FindAllStringSubmatch(c.last.html, -1)
	if strconv.Itoa(len(links)) != s.Rest {
		c.t.Errorf("%s: the page has the acts %q, want %s", s.Where, links, s.Rest)
	}
	for _, m := range links {
		c.hold(apitest.Step{Where: s.Where, Verb: "page", Rest: m[1], Want: "200"}, c.open(html.UnescapeString(m[1])))
	}
}

// together holds that the last transaction of the operator has so many entries in the audit log.
func (c *console) together(s apitest.Step) {
	c.t.Helper()
	was := c.Token
	defer func() { c.Token = was }()
	c.Token = c.secrets["the admin"]
	var page struct{ Items []adminapi.Entry }
	if err := json.Unmarshal([]byte(c.get("/v1/audit?limit=10")), &page); err != nil {
		c.t.Fatal(err)
	}
	n := 0
	for n < len(page.Items) && page.Items[n].At.Equal(page.Items[0].At) && page.Items[n].Actor == "the operator" {
		n++
	}
	if strconv.Itoa(n) != s.Rest {
		c.t.Errorf("%s: %d entries were made together, want %s", s.Where, n, s.Rest)
	}
}

// elsewhere waits until the other instance has a shadow of all, or none.
func (c *console) elsewhere(s apitest.Step) {
	c.t.Helper()
	c.eventually(s.Where, func() bool {
		return c.other.engine.Policy().WatchOnly() == (s.Rest == "shadow on")
	})
}
