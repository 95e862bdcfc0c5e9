package console_test

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/apitest"
)

// Browser is a browser without JavaScript. It adds these steps to the scripts of a player:
//
//	page PATH => STATUS TEXT        opens a page, follows one redirect, and checks the visible text.
//	                                "html TEXT" and "! html TEXT" check the HTML, "! key TEXT" the HTML except
//	                                header fields in forms; "$x = /PATTERN/" reads the HTML, "$x = base" the editor's text
//	submit ACTION NAME=VALUE; …     sends the last page's form with this action and changed values; "-" removes a value
//	resubmit NAME ACTION …          sends a form of the page that was kept under NAME
//	act PATH NAME=VALUE; …          opens the page of an act, submits its form, and opens the page that confirms it
//	keep NAME                       keeps the current pages for "resubmit NAME" and "undo NAME"
//	undo                            undoes the last act
//	effect NAME = BEFORE -> AFTER   the last page shows this effect; "…" stands for the rest of a text
//	edit ACTION                     sends the editor of the last /policy page, with the replacements "OLD -> NEW"
//	policy TEXT                     checks that the editor has these lines, in any order
//	buttons N                       checks that the last page links to N acts, and that their pages open
type Browser struct {
	URL    string // base URL of the console
	Player *apitest.Player
	opened
	editor *Page             // the last /policy page
	kept   map[string]opened // by the names that scripts give them
}

// opened has the pages on which the next steps depend.
type opened struct {
	Last *Page // the last page that was opened
	done *Page // the page that confirms the last act
}

// Page is an answer with its body as text.
type Page struct {
	*apitest.Answer
	HTML string
}

// browse returns a browser and adds its steps to the player's.
func browse(p *apitest.Player, url string) *Browser {
	b := &Browser{URL: url, Player: p, kept: map[string]opened{}}
	for name, do := range map[string]func(apitest.Step){
		"page":     func(s apitest.Step) { b.hold(s, b.Open(s.Rest)) },
		"submit":   func(s apitest.Step) { b.submit(s, b.Last) },
		"resubmit": b.resubmit,
		"act":      b.act,
		"keep":     func(s apitest.Step) { b.kept[s.Rest] = b.opened },
		"undo":     b.undo,
		"effect":   b.effect,
		"edit":     b.edit,
		"policy":   b.policy,
		"buttons":  b.buttons,
	} {
		p.Commands[name] = do
	}
	return b
}

// Request sends a request.
func (b *Browser) Request(method, path string, form url.Values, fields ...string) *Page {
	b.Player.T.Helper()
	r, err := http.NewRequest(method, b.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.Player.T.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+r.Host) // browsers send it, too
	}
	if b.Player.Token != "" {
		r.Header.Set("Authorization", "Bearer "+b.Player.Token)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	answer, err := b.Player.Client.Do(r)
	if err != nil {
		b.Player.T.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Player.T.Fatal(err)
	}
	return &Page{&apitest.Answer{T: b.Player.T, Status: answer.StatusCode, Header: answer.Header, Body: text}, string(text)}
}

// Open opens a page and follows one redirect.
func (b *Browser) Open(path string) *Page {
	b.Player.T.Helper()
	p := b.Request("GET", path, nil)
	if p.Status == http.StatusSeeOther {
		p = b.Request("GET", p.Header.Get("Location"), nil)
	}
	b.Last = p
	if path == "/policy" {
		b.editor = p
	}
	return p
}

// hold checks a page against the lines of a step.
func (b *Browser) hold(s apitest.Step, p *Page) {
	b.Player.T.Helper()
	var lines []string
	for _, line := range s.More {
		text, unwanted := strings.CutPrefix(line, "! ")
		inHTML, isHTML := strings.CutPrefix(text, "html ")
		ofKey, isKey := strings.CutPrefix(text, "key ")
		name, of, assigns := strings.Cut(line, " = ")
		switch {
		case isHTML:
			if strings.Contains(p.HTML, inHTML) == unwanted {
				b.Player.T.Errorf("%s: the page has %s: %v\n%s", s.Where, inHTML, !unwanted, p.Words())
			}
		case isKey && unwanted: // except where the form repeats it
			if strings.Contains(strings.ReplaceAll(p.HTML, "X-API-Key: "+ofKey, ""), ofKey) {
				b.Player.T.Errorf("%s: the page has the key %s", s.Where, ofKey)
			}
		case assigns && of == "base":
			b.Player.Vars[name[1:]] = p.Form(b.Player.T, "/policy/check").Get("base")
		case assigns && strings.HasPrefix(of, "/"):
			found := regexp.MustCompile(strings.Trim(of, "/")).FindStringSubmatch(p.HTML)
			if found == nil {
				b.Player.T.Fatalf("%s: the page has no %s: %s", s.Where, of, p.HTML)
			}
			b.Player.Vars[name[1:]] = html.UnescapeString(found[1])
		default:
			lines = append(lines, line)
		}
	}
	b.Player.Hold(s, p.Answer, p.Words(), lines)
}

var (
	tags      = regexp.MustCompile(`<[^>]*>`)
	blanks    = regexp.MustCompile(`\s+`)
	hidden    = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	rows      = regexp.MustCompile(`<th scope="row">([^<]*)</th><td>([^<]*)</td><td>(?:<strong>([^<]*)</strong>)?`)
	actLinks  = regexp.MustCompile(`href="(/act/[^"]*)"`)
	sentField = regexp.MustCompile(`^[A-Z][A-Za-z-]*: `)
)

// Words returns the visible text of the main element.
func (p *Page) Words() string {
	_, main, found := strings.Cut(p.HTML, "<main")
	if !found {
		return p.HTML
	}
	text := html.UnescapeString(blanks.ReplaceAllString(tags.ReplaceAllString("<main"+main, " "), " "))
	return strings.ReplaceAll(text, "\u00a0", " ")
}

// Form returns the hidden fields of the form that posts to an action.
func (p *Page) Form(t testing.TB, action string) url.Values {
	t.Helper()
	if strings.HasPrefix(action, "/policy/") { // the editor's buttons share one form
		action = "/policy/check"
	}
	_, form, found := strings.Cut(p.HTML, `method="post" action="`+action+`"`)
	if !found {
		t.Fatalf("the page has no form of %s: %s", action, p.Words())
	}
	form, _, _ = strings.Cut(form, "</form>")
	f := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(form, -1) {
		f.Set(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	return f
}

// submit sends a form of a page and opens the page to which the answer redirects.
func (b *Browser) submit(s apitest.Step, from *Page) {
	b.Player.T.Helper()
	action, values, _ := strings.Cut(s.Rest, " ")
	form := from.Form(b.Player.T, action)
	for value := range strings.SplitSeq(values, "; ") {
		switch name, value, _ := strings.Cut(value, "="); {
		case value == "-":
			form.Del(name)
		case name != "":
			form.Set(name, strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(value))
		}
	}
	b.post(s, action, form)
}

// post sends a form and keeps the page that confirms it.
func (b *Browser) post(s apitest.Step, action string, form url.Values) {
	b.Player.T.Helper()
	var sent []string
	s.More = slices.DeleteFunc(s.More, func(line string) bool {
		if sentField.MatchString(line) {
			sent = append(sent, line)
			return true
		}
		return false
	})
	p := b.Request("POST", action, form, sent...)
	if p.Status == http.StatusSeeOther {
		b.done = b.Open(p.Header.Get("Location"))
	}
	b.hold(s, p)
}

func (b *Browser) resubmit(s apitest.Step) {
	name, action, _ := strings.Cut(s.Rest, " ")
	s.Rest = action
	b.submit(s, b.kept[name].Last)
}

// act opens the page of an act and submits its form.
func (b *Browser) act(s apitest.Step) {
	b.Player.T.Helper()
	path, values, _ := strings.Cut(s.Rest, " ")
	action, _, _ := strings.Cut(path, "?")
	b.hold(apitest.Step{Where: s.Where, Verb: s.Verb, Rest: path, Want: "200"}, b.Open(path))
	b.submit(apitest.Step{Where: s.Where, Verb: s.Verb, Rest: action + " " + values, Want: "303"}, b.Last)
	s.Want = "200"
	b.hold(s, b.done)
}

func (b *Browser) undo(s apitest.Step) {
	b.Player.T.Helper()
	done := b.done
	if s.Rest != "" {
		done = b.kept[s.Rest].done
	}
	form := done.Form(b.Player.T, "/undo")
	if s.Want != "" {
		b.hold(s, b.Request("POST", "/undo", form))
		return
	}
	p := b.Request("POST", "/undo", form)
	if p.Status != http.StatusSeeOther {
		b.Player.T.Fatalf("%s: undo: %d %s", s.Where, p.Status, p.Words())
	}
	b.hold(apitest.Step{Where: s.Where, Verb: s.Verb, Want: "200 Undone"}, b.Open(p.Header.Get("Location")))
}

// effect checks the values of a row before and after the act, as the last page shows them.
func (b *Browser) effect(s apitest.Step) {
	b.Player.T.Helper()
	name, wants, _ := strings.Cut(s.Rest, " = ")
	before, after, _ := strings.Cut(wants, " -> ")
	is := func(got, want string) bool {
		start, open := strings.CutSuffix(want, "…")
		return got == want || open && strings.HasPrefix(got, start)
	}
	for _, m := range rows.FindAllStringSubmatch(b.Last.HTML, -1) {
		if m[3] == "" {
			m[3] = m[2]
		}
		if m[1] == name {
			if !is(m[2], before) || !is(m[3], after) {
				b.Player.T.Errorf("%s: the effect on %s is %q -> %q, want %s", s.Where, name, m[2], m[3], wants)
			}
			return
		}
	}
	b.Player.T.Errorf("%s: the page has no effect on %s: %s", s.Where, name, b.Last.Words())
}

// edit sends the policy editor with a changed text.
func (b *Browser) edit(s apitest.Step) {
	b.Player.T.Helper()
	form := b.editor.Form(b.Player.T, "/policy/check")
	text := form.Get("base")
	var more []string
	for _, line := range s.More {
		was, is, replaces := strings.Cut(strings.ReplaceAll(line, `\n`, "\n"), " -> ")
		switch {
		case !replaces:
			more = append(more, line)
		case !strings.Contains(text, was):
			b.Player.T.Fatalf("%s: the policy has no %s:\n%s", s.Where, was, text)
		}
		if replaces {
			text = strings.Replace(text, was, is, 1)
		}
	}
	form.Set("text", text)
	s.More = more
	b.Last = b.editor
	b.post(s, s.Rest, form)
}

// policy compares the lines of the policy in the editor with those of the step, in any order.
func (b *Browser) policy(s apitest.Step) {
	b.Player.T.Helper()
	got, want := strings.Split(b.Open("/policy").Form(b.Player.T, "/policy/check").Get("base"), "\n"), strings.Split(s.Rest, "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Player.T.Errorf("%s: the policy is\n%s\nwant\n%s", s.Where, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// buttons checks the number of links to acts on the last page, and opens each of them.
func (b *Browser) buttons(s apitest.Step) {
	b.Player.T.Helper()
	links := actLinks.FindAllStringSubmatch(b.Last.HTML, -1)
	if strconv.Itoa(len(links)) != s.Rest {
		b.Player.T.Errorf("%s: the page links to the acts %q, want %s of them", s.Where, links, s.Rest)
	}
	for _, m := range links {
		b.hold(apitest.Step{Where: s.Where, Verb: "page", Rest: m[1], Want: "200"}, b.Open(html.UnescapeString(m[1])))
	}
}
