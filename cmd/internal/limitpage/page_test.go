package limitpage

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/sluicehq/sluice/policy"
)

func pageOf(t *testing.T, doc policy.Document) *Page {
	t.Helper()
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	page, err := Of(t.Context(), &doc, p)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// The page contains nothing that only the operator may know.
func TestLeftOut(t *testing.T) {
	page := pageOf(t, policy.Document{
		TrustedProxies: []string{"10.99.0.0/16"},
		Tiers:          policy.Tiers{From: "header:Secret-Plan", Default: "free"},
		Lists:          map[string]policy.List{"secret-office": {Networks: []string{"192.0.2.0/24"}}},
		Rules: []policy.Rule{
			{Name: "told", Description: "secret words", Key: []string{"client_ip", "attr:secret"}, NotClients: []string{"secret-office"}, Headers: map[string]string{"X-Told": "secret-value"}, Attributes: map[string]string{"secret": "secret"}, Limit: "10/minute"},
			{Name: "secret-exempt", Match: []string{"/secret"}, Exempt: true},
			{Name: "secret-block", Clients: []string{"192.0.2.7"}, Block: true},
			{Name: "secret-shadow", Key: []string{"client_ip"}, Limit: "11/minute", Shadow: true},
			{Name: "secret-clients", Clients: []string{"192.0.2.8"}, Limit: "12/minute"},
			{Name: "secret-login", Match: []string{"POST /secret"}, Key: []string{"body:secret"}, Limit: "13/minute"},
			{Name: "secret-failures", Key: []string{"client_ip"}, Limit: "14/minute", Count: policy.Count{Status: []policy.Status{"401"}}},
			{Name: "secret-looks", Key: []string{"tls_fingerprint"}, Limit: "15/minute"},
		},
		Overrides: []policy.Override{{Rule: "told", Key: map[string]string{"client_ip": "192.0.2.9"}, Limit: "99/minute", Reason: "secret", By: "secret"}},
	})
	for name, text := range written(t, page) {
		for _, word := range []string{"secret", "Secret", "192.0.2", "10.99", "11 per", "12 per", "13 per", "14 per", "15 per", "99 per"} {
			if strings.Contains(text, word) {
				t.Errorf("%s contains %q:\n%s", name, word, text)
			}
		}
		for _, word := range []string{"told", "X-Told", "10 per minute", "have further limits against guessing"} {
			if !strings.Contains(text, word) {
				t.Errorf("%s lacks %q:\n%s", name, word, text)
			}
		}
	}
}

// The page describes every key part, including those that only budgets may have.
func TestKeyParts(t *testing.T) {
	_, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "r", Key: []string{"?"}, Limit: "1/hour"}}})
	_, list, found := strings.Cut(fmt.Sprint(err), "use one of ")
	if !found {
		t.Fatalf("the error does not list the key parts: %v", err)
	}
	for part := range strings.SplitSeq(list, ", ") {
		kind, name, _ := strings.Cut(part, ":")
		r := policy.Rule{Name: "r", Match: []string{"/a"}, Key: []string{part}, Limit: "1000/hour", Cost: policy.Cost{Tokens: "total"}}
		page := pageOf(t, policy.Document{Rules: []policy.Rule{r}})
		if len(page.Limits) != 1 {
			t.Fatalf("%s: the page has %d limits", part, len(page.Limits))
		}
		counted := ""
		for _, p := range page.Limits[0].Counted {
			counted += p.Text
		}
		if all := strings.HasPrefix(counted, "all callers together"); all != (kind == "const") {
			t.Errorf("%s: counted %s", part, counted)
		}
		if kind != "const" && kind != "attr" && !strings.Contains(counted, name) {
			t.Errorf("%s: counted %s, without the name", part, counted)
		}
	}
}

// The page has an example of a denial for each kind of limit.
func TestExamples(t *testing.T) {
	for _, r := range []policy.Rule{
		{Limit: "1000000000/second"},
		{Limit: "100/minute burst 1"},
		{Limits: []string{"10/second", "1000/hour"}},
		{Limit: "10000/month from 15"},
		{Limit: "5/hour", Algorithm: "fixed_window", Penalty: policy.Penalty{First: "10m"}},
		{Limit: "5/hour", Algorithm: "sliding_window_counter"},
		{Limit: "2000/hour", Algorithm: "sliding_window_log"},
		{Limit: "5/hour", Algorithm: "sliding_window_log_exact"},
		{Limit: "20/second burst 40", Algorithm: "leaky_bucket"},
		{InFlight: policy.InFlight{Most: 10}},
		{Share: policy.Share{Of: "100/second", By: []string{"header:X-Tenant"}}},
	} {
		r.Name, r.Key = "limit", []string{"client_ip"}
		page := pageOf(t, policy.Document{Rules: []policy.Rule{r}})
		if e := page.Example; e.Status != http.StatusTooManyRequests || e.Header.Get("Retry-After") == "" || !strings.Contains(e.Body, `"violated-policies":["limit`) {
			t.Errorf("%+v: %s", r, e)
		}
		if len(page.Members) != len(knownMembers) {
			t.Errorf("%+v: the body has %v", r, page.Members)
		}
	}
}

// written returns the page in each of its formats.
func written(t *testing.T, p *Page) map[string]string {
	t.Helper()
	var markdown, page strings.Builder
	if err := p.Markdown(&markdown); err != nil {
		t.Fatal(err)
	}
	if err := p.HTML(&page); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"Markdown": markdown.String(), "HTML": page.String()}
}

// wherever returns a page that has a text in every position where a policy may have one.
func wherever(text string) *Page {
	doc := &policy.Document{}
	r := &policy.Rule{
		Name: text, Match: []string{text}, Hosts: []string{text}, Headers: map[string]string{text: ""},
		Key: []string{"header:" + text, "cookie:" + text, "query:" + text, "jwt:" + text, "body:" + text}, Limit: text, Cost: policy.Cost{ResponseHeader: text},
	}
	return &Page{
		Tiers: []string{text, "pro"}, Costs: true, Limits: []Limit{row(doc, r, []string{"", "pro"})}, Lockouts: []string{text}, Statuses: []Meaning{{"429", "no"}},
		Example: &Example{429, http.Header{"X-Support": {text}}, text},
	}
}

// harmless is a text that needs no escaping.
const harmless = "name"

// No text of a policy changes the structure of the page.
func FuzzEscape(f *testing.F) {
	for _, text := range []string{
		"a|b", "`", "``|``", `\`, `\|`, "a`|`b", "<script>alert(1)</script>", "</code></pre>", "\n\n# title", "\r\n| a |", "```\n# out\n```", "````", "~~~", "[a](javascript:b)", "![a](b)", "*a*", "__a__",
		"&lt;&#124;&amp;", `" onload="`, "{{.}}", "http://a.example", "www.a.example", "a@b.example", "\u202e", "\x00", " ", "", "\u2028", "<!--", "]]>", "$x$", "^x", ":smile:",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			return // the page omits empty texts
		}
		hostile, plain := written(t, wherever(text)), written(t, wherever(harmless))
		if got, want := skeleton(t, hostile["Markdown"]), skeleton(t, plain["Markdown"]); !slices.Equal(got, want) {
			t.Errorf("%q changes the structure of the Markdown:\n%s\n%q\n%q", text, hostile["Markdown"], got, want)
		}
		if got, want := tags(hostile["HTML"]), tags(plain["HTML"]); !slices.Equal(got, want) {
			t.Errorf("%q changes the structure of the HTML:\n%s", text, hostile["HTML"])
		}
	})
}

var (
	span   = regexp.MustCompile("`[^`|\\n]+`")
	entity = regexp.MustCompile(`&#\d+;`)
	mark   = regexp.MustCompile("[`*_~<>\\[\\]{}!&\\\\$^#@]|://|www\\.")
)

// skeleton returns the lines of a page, each reduced to the marks of its cells and titles, without the contents of the
// code block.
func skeleton(t *testing.T, page string) (lines []string) {
	t.Helper()
	fence := ""
	for line := range strings.SplitSeq(page, "\n") {
		switch ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]; {
		case fence != "":
			if line == fence || len(ticks) >= len(fence) && strings.TrimSpace(line) == ticks {
				fence = ""
				lines = append(lines, "end of code")
			}
			continue
		case len(ticks) >= 3:
			fence = ticks
			lines = append(lines, "code")
			continue
		}
		bare := entity.ReplaceAllString(span.ReplaceAllString(line, "x"), "x")
		if rest := strings.TrimLeft(bare, "#"); mark.MatchString(rest) {
			t.Errorf("%q contains Markdown syntax", rest)
		}
		lines = append(lines, strings.Repeat("|", strings.Count(bare, "|"))+strings.Repeat("#", strings.Count(bare, "#")))
	}
	return lines
}

// tags returns the tags and comments of a page.
func tags(page string) (all []string) {
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		switch z.Next() {
		case html.ErrorToken:
			return all
		case html.TextToken:
		default:
			all = append(all, z.Token().String())
		}
	}
}
