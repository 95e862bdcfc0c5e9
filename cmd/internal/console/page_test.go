package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// browser is a client that keeps cookies and follows no redirects.
type browser struct {
	t       *testing.T
	handler http.Handler
	token   string // sent as the bearer token; empty: none
	cookies map[string]string
}

// newBrowser returns a browser with the token of a role. With source.Nobody it has no token.
func newBrowser(t *testing.T, c over, role source.Role) *browser {
	return &browser{t, Handler(c.Config), string(role), map[string]string{}}
}

func (b *browser) send(r *http.Request) *httptest.ResponseRecorder {
	b.t.Helper()
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

func (b *browser) get(path string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", "text/html")
	return b.send(r)
}

func (b *browser) post(path string, form url.Values, fields ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+r.Host) // browsers send it, too
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return b.send(r)
}

func (b *browser) signIn(token string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.post("/sign-in", url.Values{"token": {token}, "next": {"/"}})
}

// hostile has values that a malicious client may send.
var hostile = []string{
	`<img src=x onerror=alert(1)>`, `"><script>alert(1)</script>`, "\u202Eevil\u202C", "a\x00b\x1b[31m\n\xff", strings.Repeat("ж", 2500),
	`javascript:alert(1)`, `{{.Caller}}`, `' onmouseover='alert(1)`, "",
}

// attacked is the view of attack with a hostile text in place of every text from outside.
func attacked(now time.Time, text string) *telemetry.View {
	v := attack(now)
	for i := range v.Rules {
		for w := range v.Rules[i].Refusals {
			for _, top := range []*telemetry.Top{&v.Rules[i].Refusals[w], &v.Rules[i].Traffic[w]} {
				for j := range top.Items {
					top.Items[j].Shown = text
					top.Items[j].Key = v.Rules[i].Name + "/" + text
				}
			}
		}
	}
	for i := range v.Tiers {
		for w := range v.Tiers[i].Refusals {
			list := []telemetry.Subject{{ID: "1", Key: "api/" + text, Sent: text, Shown: text, Count: 7}, {Sent: text, Shown: text, Count: 5}}
			v.Tiers[i].Name, v.Tiers[i].Refusals[w].Items, v.Tiers[i].Traffic[w].Items = text, list, list
		}
	}
	for i := range v.Instances {
		v.Instances[i].Name, v.Instances[i].Version, v.Instances[i].Policy, v.Instances[i].Store.Kind = text, text, text, text
	}
	for i := range v.Events {
		v.Events[i].Kind, v.Events[i].Text, v.Events[i].Instance = text, text, text
	}
	return v
}

// plainHTML checks that a page has nothing that the Content-Security-Policy blocks, no element that templates do not
// use, and no table with rows that do not fit its heading.
func plainHTML(t *testing.T, where, text string) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "style" || n.Data == "img" || n.Data == "iframe" || n.Data == "script" && n.FirstChild != nil {
			t.Errorf("%s: the page has <%s>", where, n.Data)
		}
		if n.Data == "table" {
			checkTable(t, where, n)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
				t.Errorf("%s: <%s> has the attribute %s", where, n.Data, a.Key)
			case a.Key == "id" && ids[a.Val]:
				t.Errorf("%s: two elements have the id %s", where, a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			case (a.Key == "href" || a.Key == "src" || a.Key == "action") && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#"):
				t.Errorf("%s: <%s> leads to %q", where, n.Data, a.Val)
			}
		}
	}
	for _, mark := range []string{"\u202E", "\x00", "\x1b", "<img", "<script>", "ZgotmplZ"} {
		if strings.Contains(text, mark) {
			t.Errorf("%s: the page has %q", where, mark)
		}
	}
}

func TestFirstPageReadsWhateverThereIs(t *testing.T) {
	now := time.Now()
	views := map[string]*telemetry.View{
		"attack": attack(now), "outage": outage(now), "quiet": quiet(now), "nothing": {At: now, Since: now}, "zero": {},
		"no rules": {At: now, Since: now.Add(-time.Hour), All: attack(now).All},
	}
	for i, text := range hostile {
		views[fmt.Sprintf("hostile %d", i)] = attacked(now, text)
	}
	queries := []string{
		"", "?rule=login-address", "?rule=exports&window=day", "?span=day&window=minute", "?rule=<script>",
		fmt.Sprintf("?from=%d&to=%d", now.Add(-10*time.Minute).Unix(), now.Unix()),
		fmt.Sprintf("?from=%d&to=%d", now.Add(-20*time.Hour).Unix(), now.Add(-19*time.Hour).Unix()),
		"?from=9&to=99999999999999", "?from=-1&to=x", "?done=nothing",
	}
	for name, v := range views {
		b := newBrowser(t, fixture(t, func() *telemetry.View { return v }), source.Admin)
		for _, q := range queries {
			w := b.get("/" + q)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "<h1>") {
				t.Errorf("%s %s: %d", name, q, w.Code)
			}
			plainHTML(t, name+" "+q, w.Body.String())
		}
	}
}

// The first page of each situation contains the texts for that situation, and none for others.
func TestFirstPageAnswers(t *testing.T) {
	now := time.Now()
	page := func(v *telemetry.View, q string) string {
		c := fixture(t, func() *telemetry.View { return v })
		spend(t, c.Engine)
		return newBrowser(t, c, source.Operator).get("/" + q).Body.String()
	}
	private := quiet(now)
	private.Rules[0].Traffic[telemetry.Hour] = telemetry.Top{Total: 1000, Items: []telemetry.Subject{{ID: "a", Key: "login-address/10.0.0.9", Shown: "10.0.0.9", Count: 990, First: now, Last: now}}}
	private.Rules[0].Refusals[telemetry.Hour] = telemetry.Top{Total: 3, Items: []telemetry.Subject{{ID: "a", Key: "login-address/10.0.0.9", Shown: "10.0.0.9", Count: 3, First: now, Last: now}}}
	enforced, tried := attack(now), attack(now)
	last := len(enforced.Rules[0].Days) - 1
	enforced.Rules[0].Days[last][telemetry.WouldDeny] = 100 // it is enforced again
	tried.Rules[5].Days[last][telemetry.Deny] = 100         // it was enforced
	_, headline, _ := strings.Cut(page(attack(now), ""), "<h1>")
	headline, _, _ = strings.Cut(headline, "</h1>")
	if !strings.Contains(headline, "\u00a0%") || strings.Contains(headline, " %") {
		t.Errorf("a line may break between a number and its unit in %q", headline)
	}
	for name, c := range map[string]struct {
		text       string
		want, lack []string
	}{
		"new": {page(&telemetry.View{At: now, Since: now}, ""), []string{"No request has come yet", "curl -i http://localhost:8099/"}, []string{`id="tiles"`}},
		"attack": {page(attack(now), ""), []string{
			"One subject, far above the limit.", `data-rule="login-address"`, "203.0.113.7", "▲ more", "another policy", "just before it began",
			"has its full limit again", "override ends", "shadow rules would have denied", "/act/block?id=", ">gold<", "10 per minute",
		}, []string{"No request has come yet", "/act/shadow", "No requests were denied"}},
		"enforced": {page(enforced, ""), []string{">2 shadow rules would have denied 14 subjects today."}, nil},
		"tried":    {page(tried, ""), []string{">2 shadow rules denied, or would have denied, 14 subjects today."}, nil},
		"quiet":    {page(quiet(now), ""), []string{"denied in the last hour", "No requests were denied.", "No customer is hurt.", "No problems", "No data about an upstream."}, []string{"▲ more", "/act/"}},
		"outage":   {page(outage(now), ""), []string{"no response, last seen", "circuit open: 1 of 3", "decisions a second are made without the store"}, nil},
		"unused":   {page(quiet(now), "?rule=exports"), []string{"No request has matched", "GET /export", "sluice check"}, nil},
		"narrow":   {page(quietSince(now), fmt.Sprintf("?from=%d&to=%d", now.Add(-50*time.Minute).Unix(), now.Add(-49*time.Minute).Unix())), []string{"No requests between", "Show the whole time range"}, nil},
		"balancer": {page(private, "?rule=login-address"), []string{"Nearly all requests come from", "trusted_proxies"}, nil},
	} {
		for _, text := range c.want {
			if !strings.Contains(c.text, text) {
				t.Errorf("%s: the page lacks %q", name, text)
			}
		}
		for _, text := range c.lack {
			if strings.Contains(c.text, text) {
				t.Errorf("%s: the page contains %q", name, text)
			}
		}
	}
}

// quietSince is the view of a server that was started ten minutes ago.
func quietSince(now time.Time) *telemetry.View {
	v := quiet(now)
	v.Since = now.Add(-10 * time.Minute)
	cut := func(s *telemetry.Series) {
		for i := range s.Recent {
			if i < len(s.Recent)-60 {
				s.Recent[i] = telemetry.Counts{}
			}
		}
	}
	cut(&v.All)
	for i := range v.Rules {
		cut(&v.Rules[i].Series)
	}
	return v
}

func TestVerdictTellsAttackFromLowLimit(t *testing.T) {
	now := time.Now()
	rule := func(n int, refused, asked uint64) *telemetry.Rule {
		r := &telemetry.Rule{Name: "a"}
		for i := range n {
			s := telemetry.Subject{Key: fmt.Sprintf("a/%d", i), Count: refused, First: now.Add(-time.Hour), Last: now}
			r.Refusals[telemetry.Hour].Items = append(r.Refusals[telemetry.Hour].Items, s)
			r.Refusals[telemetry.Hour].Total += refused
			s.Count = asked
			r.Traffic[telemetry.Hour].Items = append(r.Traffic[telemetry.Hour].Items, s)
		}
		r.Refused[telemetry.Hour] = uint64(n)
		return r
	}
	limit := mustLimit(t, "10/minute") // 600 an hour
	for want, r := range map[string]*telemetry.Rule{
		"One subject, far above the limit.":                       rule(1, 59400, 60000),
		"One subject, not far above the limit.":                   rule(1, 100, 700),
		"Few subjects, far above the limit.":                      rule(8, 6000, 6600),
		"Few subjects, just above the limit.":                     rule(8, 60, 660),
		"Many subjects, just above the limit: it may be too low.": rule(80, 60, 660),
		"Many subjects, far above the limit.":                     rule(80, 6000, 6600),
	} {
		if v := judge(r, telemetry.Hour, limit, false); v.Words != want {
			t.Errorf("%q, want %q", v.Words, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	b := newBrowser(t, fixture(t, func() *telemetry.View { return attack(time.Now()) }), source.Nobody)
	for _, path := range []string{"/", "/sign-in", "/nothing", "/live", assetURL("console.js")} {
		h := b.get(path).Header()
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", path, csp)
		}
		for name, want := range map[string]string{"Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if h.Get(name) != want {
				t.Errorf("%s: %s %q, want %q", path, name, h.Get(name), want)
			}
		}
		if isAsset := strings.HasPrefix(path, "/assets/"); strings.Contains(h.Get("Cache-Control"), "immutable") != isAsset {
			t.Errorf("%s: Cache-Control %q", path, h.Get("Cache-Control"))
		}
	}
	if w := b.get("/assets/0000000000000000/console.js"); w.Code != http.StatusNotFound {
		t.Errorf("an asset by another hash: %d", w.Code)
	}
	r := httptest.NewRequest("GET", assetURL("console.css"), nil)
	r.Header.Set("If-None-Match", `"`+assets["console.css"].hash+`"`)
	if w := b.send(r); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("an asset in the browser's cache: %d", w.Code)
	}
}

func TestSignIn(t *testing.T) {
	c := fixture(t, func() *telemetry.View { return attack(time.Now()) })
	var revoked, unloaded atomic.Bool
	c.Access.Tokens = func() ([]source.TokenRow, error) {
		switch {
		case unloaded.Load():
			return nil, source.ErrUnavailable
		case revoked.Load():
			return nil, nil
		}
		return roleTokens()
	}
	b := newBrowser(t, c, source.Nobody)
	unloaded.Store(true)
	for name, w := range map[string]*httptest.ResponseRecorder{"signing in": b.signIn("viewer"), "a page": newBrowser(t, c, source.Viewer).get("/")} {
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the tokens are not loaded yet") {
			t.Errorf("%s while the tokens are not loaded: %d %s", name, w.Code, w.Body)
		}
	}
	unloaded.Store(false)
	if w := b.get("/rules?q=a"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/sign-in?next=%2Frules%3Fq%3Da" {
		t.Errorf("without a session: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := b.send(httptest.NewRequest("GET", "/live", nil)); w.Code != http.StatusUnauthorized {
		t.Errorf("a stream without a session: %d", w.Code)
	}
	if w := b.signIn("wrong"); w.Code != http.StatusUnauthorized || len(b.cookies) > 0 {
		t.Errorf("with a wrong token: %d, cookies %v", w.Code, b.cookies)
	}
	w := b.signIn("viewer")
	if set := w.Header().Get("Set-Cookie"); w.Code != http.StatusSeeOther || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") || strings.Contains(set, "viewer") {
		t.Fatalf("%d, Set-Cookie %q", w.Code, set)
	}
	if w := b.get("/"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Sign out") {
		t.Fatalf("with a session: %d", w.Code)
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"from another origin":         b.post("/sign-out", nil, "Origin", "https://evil.example"),
		"from another port":           b.post("/sign-out", nil, "Origin", "http://example.com:8080"),
		"from nowhere":                b.post("/sign-out", nil, "Origin", "null"),
		"of an old browser":           b.post("/sign-out", nil, "Origin", ""),
		"from another site":           b.post("/sign-out", nil, "Sec-Fetch-Site", "cross-site"),
		"from another name of a site": b.post("/sign-out", nil, "Sec-Fetch-Site", "same-site"),
	} {
		if w.Code != http.StatusForbidden || b.get("/").Code != http.StatusOK {
			t.Errorf("a form %s: %d", name, w.Code)
		}
	}
	unloaded.Store(true)
	if w := b.get("/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("with a token that cannot be checked: %d", w.Code)
	}
	unloaded.Store(false)
	revoked.Store(true)
	if w := b.get("/"); w.Code != http.StatusSeeOther {
		t.Errorf("with a token that was revoked: %d", w.Code)
	}
	revoked.Store(false)
	kept := b.cookies["sluice"]
	own := b.post("/sign-out", nil, "Origin", "http://example.com", "Sec-Fetch-Site", "same-origin")
	if w := own; w.Code != http.StatusSeeOther || len(b.cookies) > 0 {
		t.Errorf("signing out: %d, cookies %v", w.Code, b.cookies)
	}
	b.cookies["sluice"] = kept
	if w := b.get("/"); w.Code != http.StatusSeeOther {
		t.Errorf("with the cookie of a session that was ended: %d", w.Code)
	}
}

func TestSessionsEndAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		signIn := func(string) (control.Caller, error) { return control.Caller{Name: "a", Role: source.Viewer}, nil }
		with := func(c *http.Cookie) bool {
			r := httptest.NewRequest("GET", "/", nil)
			r.AddCookie(c)
			found, _, _ := s.lookup(r, signIn)
			return found != nil
		}
		r := httptest.NewRequest("GET", "/", nil)
		first := s.begin(r, "mine")
		for i := range 3 * maxSessions {
			s.begin(r, fmt.Sprint("other ", i%3))
		}
		if !with(first) || len(s.all) != 1+3*maxOfOne {
			t.Errorf("%d sessions after many by other tokens; mine is valid: %v", len(s.all), with(first))
		}
		for i := range 2 * maxSessions {
			s.begin(r, fmt.Sprint("one of many ", i))
		}
		if len(s.all) > maxSessions {
			t.Errorf("%d sessions", len(s.all))
		}
		last := s.begin(r, "mine")
		time.Sleep(sessionLife - time.Second)
		if !with(last) {
			t.Error("a session ended before its time")
		}
		time.Sleep(2 * time.Second)
		if with(last) {
			t.Error("a session did not end")
		}
	})
}

func TestCookieOverTLS(t *testing.T) {
	b := newBrowser(t, fixture(t, func() *telemetry.View { return &telemetry.View{} }), source.Nobody)
	r := httptest.NewRequest("POST", "https://sluice.example/sign-in", strings.NewReader(url.Values{"token": {"viewer"}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "https://sluice.example")
	if set := b.send(r).Header().Get("Set-Cookie"); !strings.HasPrefix(set, "__Host-sluice=") || !strings.Contains(set, "Secure") || !strings.Contains(set, "Path=/") {
		t.Errorf("Set-Cookie %q", set)
	}
}

// A token that is not checked grants no access, and the page shows how long to wait.
func TestTooManyGuesses(t *testing.T) {
	c := fixture(t, func() *telemetry.View { return &telemetry.View{} })
	c.Access.Guess = func(from, token string, look func() (right, wrong bool)) error {
		if from == "" || token != "viewer" {
			t.Errorf("%q from %q", token, from)
		}
		return tooMany{}
	}
	w := newBrowser(t, c, source.Nobody).signIn("viewer")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "in 5 seconds") || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

type tooMany struct{}

func (tooMany) Error() string     { return "too many" }
func (tooMany) RetrySeconds() int { return 5 }

func TestWithin(t *testing.T) {
	for next, want := range map[string]string{
		"/rules?q=a": "/rules?q=a", "": "/", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/", "rules": "/",
		"/sign-out": "/", "javascript:alert(1)": "/", "/a\nb": "/",
	} {
		if got := within(next); got != want {
			t.Errorf("within(%q) = %q, want %q", next, got, want)
		}
	}
}

// A viewer sees no buttons, and the acts behind them are refused.
func TestViewerOnlyReads(t *testing.T) {
	b := newBrowser(t, fixture(t, func() *telemetry.View { return attack(time.Now()) }), source.Viewer)
	text := b.get("/").Body.String()
	for _, button := range []string{"/act/", "<button class=\"button-danger", "What you can do"} {
		if strings.Contains(text, button) {
			t.Errorf("the page of a viewer has %s", button)
		}
	}
	for _, r := range routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		if source.Viewer.May(r.role) || strings.Contains(path, "{") {
			continue
		}
		w := b.send(httptest.NewRequest(method, path, nil))
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "has the role viewer") {
			t.Errorf("%s: %d", r.pattern, w.Code)
		}
	}
}

func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var by []string
		var fails error
		s := newServer(fixture(t, func() *telemetry.View { return &telemetry.View{} }).Config)
		actOf := func(name string) string {
			w := httptest.NewRecorder()
			did := &call{Request: httptest.NewRequest("POST", "/act", nil), w: w, s: s, caller: control.Caller{Name: name, Role: source.Admin}}
			err := did.done("/rules?q=a", "It was done", func(c *call) error {
				if fails == nil {
					by = append(by, c.caller.Name+" "+c.caller.Role.String())
				}
				return fails
			})
			if err != nil {
				t.Fatal(err)
			}
			_, id, _ := strings.Cut(w.Header().Get("Location"), "&done=")
			return id
		}
		undo := func(id, name string) error {
			r := httptest.NewRequest("POST", "/undo", nil)
			r.PostForm = url.Values{"id": {id}}
			return s.undo(&call{Request: r, w: httptest.NewRecorder(), s: s, caller: control.Caller{Name: name, Role: source.Operator}})
		}
		id := actOf("maria")
		if undo(id, "eve") == nil {
			t.Error("another caller could undo it")
		}
		for range 600 { // many acts of another caller do not displace it
			actOf("eve")
		}
		if fails = errors.New("the database is unavailable"); undo(id, "maria") != fails {
			t.Error("a failed undo did not return its error")
		}
		fails = nil
		var undone atomic.Int32
		var both sync.WaitGroup
		for range 2 { // two clicks at once
			both.Go(func() {
				if undo(id, "maria") == nil {
					undone.Add(1)
				}
			})
		}
		both.Wait()
		if undone.Load() != 1 || len(by) != 1 || by[0] != "maria operator" { // the undo runs with the caller's current role
			t.Errorf("the act was undone %d times, by %q", undone.Load(), by)
		}
		if undo(id, "maria") == nil {
			t.Error("the act was undone again")
		}
		late := actOf("maria")
		time.Sleep(undoTime + time.Second)
		if undo(late, "maria") == nil {
			t.Error("the act was undone too late")
		}
		time.Sleep(noticeTime)
		actOf("maria")
		if s.notices.get(late, "maria") != nil || len(s.notices.of) != 1 || len(s.notices.of["maria"]) != 1 {
			t.Errorf("old notices are kept: %v", s.notices.of)
		}
	})
}

// An open page loses what its caller may no longer see, and its stream ends with the session.
func TestStreamFollowsTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := attack(time.Now())
		c := fixture(t, func() *telemetry.View { return v })
		role := atomic.Value{}
		role.Store(source.Operator)
		c.Access.Tokens = func() ([]source.TokenRow, error) {
			return []source.TokenRow{{Name: "ann", Hash: source.HashToken("ann"), Role: role.Load().(source.Role)}}, nil
		}
		b := newBrowser(t, c, source.Nobody)
		b.signIn("ann")
		r, w := httptest.NewRequest("GET", "/live", nil), httptest.NewRecorder()
		r.AddCookie(&http.Cookie{Name: "sluice", Value: b.cookies["sluice"]})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.handler.ServeHTTP(w, r)
		}()
		update := func() string {
			time.Sleep(streamTime) // until the next update
			synctest.Wait()
			text := w.Body.String()
			w.Body.Reset()
			return text
		}
		if text := update(); !strings.Contains(text, "/act/block") {
			t.Errorf("an operator gets %.300q", text)
		}
		role.Store(source.Viewer)
		if text := update(); !strings.Contains(text, "event: view") || !strings.Contains(text, "verdict") || strings.Contains(text, "/act/") {
			t.Errorf("a viewer gets %.300q", text)
		}
		if w := b.post("/sign-out", nil); w.Code != http.StatusSeeOther {
			t.Fatal(w.Code)
		}
		if text := update(); text != "event: ended\ndata: {}\n\n" {
			t.Errorf("after signing out, the stream sends %.300q", text)
		}
		<-ended
	})
}

func TestStream(t *testing.T) {
	v := attack(time.Now())
	done := make(chan struct{})
	c := fixture(t, func() *telemetry.View { return v })
	c.Done = done
	server := httptest.NewServer(Handler(c.Config))
	defer server.Close()
	open := func() *http.Response {
		t.Helper()
		r, err := http.NewRequest("GET", server.URL+"/live?rule=login-address", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer viewer")
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	first := open()
	lines := bufio.NewReader(first.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "event: view\n" {
		t.Fatalf("%q, %v", line, err)
	}
	data, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(data, `data: {"at":`) || !strings.Contains(data, `"rates":[[`) || !strings.Contains(data, "login-address") {
		t.Fatalf("%.300q, %v", data, err)
	}
	for i := 1; i < maxStreamsOfOne; i++ {
		if answer := open(); answer.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %d", i, answer.StatusCode)
		}
	}
	if answer := open(); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %d", answer.StatusCode)
	}
	close(done)
	for err == nil { // until the stream ends
		_, err = lines.ReadString('\n')
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 漢": "plain é 漢", "\u202Ea": "�a", "": "(none)", strings.Repeat("a", 161): strings.Repeat("a", 157) + "…",
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		number(999): "999", number(9420): "9,420", number(38_240): "38.2 k", number(1_234_567): "1.23 M", number(999_900): "1 M",
		rate(0.004): "<0.01", rate(0.2): "0.2", rate(38.24): "38.2", rate(12345): "12.3 k",
		percent(0.0004): "<0.1\u00a0%", percent(0.034): "3.4\u00a0%", percent(0.94): "94\u00a0%", percent(0.9995): ">99.9\u00a0%", percent(1): "100\u00a0%",
		last(640 * time.Microsecond): "640 µs", last(1300 * time.Microsecond): "1.3 ms", last(90 * time.Minute): "1 h 30 min",
	} {
		if want = strings.ReplaceAll(want, " ", "\u00a0"); got != want { // lines never break within a number and its unit
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Many events leave the chart readable: events close together share a mark, and many marks have no lines.
func TestChartOfManyEvents(t *testing.T) {
	now := time.Now()
	v := attack(now)
	v.Events = nil
	for i := range 200 { // a circuit that flaps for twenty minutes
		v.Events = append(v.Events, telemetry.Event{At: now.Add(-40*time.Minute + time.Duration(i)*6*time.Second), Kind: "circuit", Text: fmt.Sprint("circuit ", i), Instance: "gw-b2"})
	}
	c := chartOf(v, &v.All, false)
	if len(c.Marks) > 21 || len(c.MarkLines()) > 0 {
		t.Errorf("%d marks, %d lines", len(c.Marks), len(c.MarkLines()))
	}
	shown := 0
	for _, m := range c.Marks {
		n := 0
		if _, err := fmt.Sscanf(m.Kind, "%d", &n); err != nil {
			n = 1
		}
		shown += n
	}
	if shown != 200 {
		t.Errorf("the marks show %d events, want 200", shown)
	}
	v.Events = v.Events[:2]
	v.Events[1].At = now.Add(-10 * time.Minute)
	if c := chartOf(v, &v.All, false); len(c.Marks) != 2 || len(c.MarkLines()) != 2 || c.Marks[0].Text != "circuit 0" {
		t.Errorf("two events are %+v", c.Marks)
	}
}

// A policy that six instances load is shown as one line, so acts before it stay visible.
func TestChangesOfManyInstances(t *testing.T) {
	now := time.Now()
	v := &telemetry.View{At: now}
	for i := range 6 {
		v.Events = append(v.Events, telemetry.Event{At: now.Add(time.Duration(i-10) * time.Second), Kind: "reload", Text: "policy loaded: r1 is new", Instance: fmt.Sprint("gw-", i)})
	}
	v.Events = append(v.Events, telemetry.Event{At: now.Add(-time.Hour), Kind: "reload", Text: "policy loaded: r1 is new", Instance: "gw-0"})
	all := changesOf(v, []source.Entry{{At: now.Add(-11 * time.Second), Actor: "ann", Kind: "rule"}}, time.Time{})
	var who []string
	for _, c := range all {
		who = append(who, c.Who)
	}
	if got := strings.Join(who, ", "); got != "gw-5 and 5 others, ann, gw-0" {
		t.Errorf("the changes are by %s", got)
	}
}

func mustLimit(t *testing.T, text string) sluice.Limit {
	t.Helper()
	l, found := limitOf(&policy.Rule{Limit: text})
	if !found {
		t.Fatal(text)
	}
	return l
}

// A form that never ends occupies the connection for a limited time, whether the request is refused or not. Without a
// session, a form may only be small.
func TestSlowForm(t *testing.T) {
	before := formTime
	formTime = 50 * time.Millisecond
	t.Cleanup(func() { formTime = before })
	server := httptest.NewServer(Handler(fixture(t, func() *telemetry.View { return &telemetry.View{} }).Config))
	defer server.Close()
	for origin, status := range map[string]int{"http://x": http.StatusBadRequest, "http://evil.example": http.StatusForbidden} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /sign-in HTTP/1.1\r\nHost: x\r\nOrigin: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken=", origin)
		in := bufio.NewReader(conn)
		if answer, err := http.ReadResponse(in, nil); err != nil || answer.StatusCode != status {
			t.Errorf("%v, %v", answer, err)
		} else if _, err := io.Copy(io.Discard, in); err != nil { // until the server closes it
			t.Error(err)
		}
	}
	r, err := http.NewRequest("POST", server.URL+"/sign-in", strings.NewReader(url.Values{"token": {strings.Repeat("x", 20_000)}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", server.URL)
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large form without a session: %s", answer.Status)
	}
}
