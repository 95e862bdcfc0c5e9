package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/template"
)

// Answer replaces the body of a denial, or adds header fields to the denial. Without Body and Bodies, the built-in
// bodies stay.
type Answer struct {
	// Status, from 400 to 599, replaces the status of the denial, for clients that do not know the original status.
	Status int `json:"status,omitempty"`
	// Headers are sent with all bodies, including the built-in ones. Headers that the integration sets, and headers
	// about the connection, are not permitted.
	Headers map[string]string `json:"headers,omitempty"`
	// Set Body for a single body, or Bodies for several.
	Body
	Bodies []Body `json:"bodies,omitempty"`
}

// Body is a body in one media type, for clients with an Accept that prefers this type. Clients without a preference
// get the first body that is not HTML. A client gets HTML only if its Accept names HTML.
//
// The text is a template for [html/template] if Type is text/html, and for [text/template] otherwise. Its data are
// [AnswerValues]. In a JSON template, write a value between the quotes of a string, as in "{{.Rule}}", or write {{json
// .Rule}}, which produces a complete JSON value. In XML, a value can be text or a quoted attribute.
type Body struct {
	// Type is a media type without parameters. Text types are sent with charset=utf-8.
	Type string `json:"type,omitempty"`
	// File is the name of a file with the text. The name is relative to the file of the policy. Package policyfile
	// reads the file when it compiles a policy. Programs set Text instead.
	File string `json:"file,omitempty"`
	Text string `json:"body,omitempty"` // a template; the template and its output have at most 64 KiB each
}

// AnswerValues are the values that a template of a [Body] can use. They are safe to send: the built-in answers contain
// most of them, and none contains text from a request. Values that a denial lacks are zero.
type AnswerValues struct {
	// Type, Title, Status, Detail, ViolatedPolicies and Error are members of the built-in problem (RFC 9457). So is
	// RetryAfter, the number of seconds until the request fits, or zero if it never does. Status is the status that
	// is sent.
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail"` // a sentence
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	Error            string   `json:"error"`
	RetryAfter       int64    `json:"retry_after,omitempty"`
	// Rule is the name of the rule that denies the request; if several do, the name of the rule with the longest
	// wait.
	Rule string `json:"rule,omitempty"`
	// Limit, Remaining and Reset are the values of the X-RateLimit fields for the rule. If a denial has no such
	// fields, Reset is the time to retry. Reset is in UTC.
	Limit     int64     `json:"limit,omitempty"`
	Remaining int64     `json:"-"` // MarshalJSON adds it if Limit is set, even if Remaining is 0
	Reset     time.Time `json:"reset,omitzero"`
	// Wait is RetryAfter as people read it: 1m30s.
	Wait time.Duration `json:"-"`
}

// MarshalJSON returns the values as an object: the output of {{json .}}.
func (v AnswerValues) MarshalJSON() ([]byte, error) {
	type values AnswerValues
	all := struct {
		values
		Remaining *int64 `json:"remaining,omitempty"`
	}{values: values(v)}
	if v.Limit > 0 {
		all.Remaining = &v.Remaining
	}
	return json.Marshal(all)
}

// OwnAnswers are the answers of a policy. A nil OwnAnswers is empty.
type OwnAnswers struct{ byStatus map[int]*OwnAnswer }

// Answers returns the document's answers, or nil.
func (p *Policy) Answers() *OwnAnswers { return p.answers }

// For returns the answer to denials that have the given status, or nil if the policy has none.
func (o *OwnAnswers) For(status int) *OwnAnswer {
	if o == nil {
		return nil
	}
	return o.byStatus[status]
}

// OwnAnswer is a compiled [Answer]. Do not change it.
type OwnAnswer struct {
	Status  int               // zero: the status of the denial
	Headers map[string]string // by their canonical names
	Exposed string            // the names of Headers, as a list for Access-Control-Expose-Headers
	Types   []string          // media types of the bodies, HTML last
	bodies  []*template.Template
}

// Page reports whether body i is HTML. A client gets it only if its Accept names HTML.
func (o *OwnAnswer) Page(i int) bool { return o.bodies[i].Page() }

// ContentType returns the Content-Type of body i.
func (o *OwnAnswer) ContentType(i int) string { return o.bodies[i].ContentType }

// Append appends body i, filled in. On an error it returns dst as it was.
func (o *OwnAnswer) Append(dst []byte, i int, v *AnswerValues) ([]byte, error) {
	return o.bodies[i].Append(dst, v)
}

// answered are the statuses of denials that answers can replace.
var answered = []string{"400", "403", "429", "503"}

const maxBodies = 8

func (c *compiler) answers(in map[string]Answer) *OwnAnswers {
	if len(in) == 0 {
		return nil
	}
	out := &OwnAnswers{make(map[int]*OwnAnswer)}
	for _, text := range sortedKeys(in) {
		field := fmt.Sprintf("answers[%q]", text)
		if !slices.Contains(answered, text) {
			c.fail(field, "use "+spelling.OneOf(answered), "answers cannot replace the status %s", spelling.Quote(text))
			continue
		}
		status, _ := strconv.Atoi(text)
		a := in[text]
		out.byStatus[status] = c.answer(field, status, &a)
	}
	return out
}

func (c *compiler) answer(field string, status int, a *Answer) *OwnAnswer {
	out := &OwnAnswer{Status: a.Status, Headers: c.ownHeaders(field+".headers", a.Headers)}
	out.Exposed = strings.Join(sortedKeys(out.Headers), ", ")
	if a.Status != 0 && (a.Status < 400 || a.Status > 599) {
		c.fail(field+".status", "use a number from 400 to 599", "the status in place of %d is %d", status, a.Status)
	}
	sent := cmp.Or(a.Status, status)
	bodies, at := a.Bodies, func(i int) string { return fmt.Sprintf("%s.bodies[%d]", field, i) }
	single := a.Body != Body{}
	switch {
	case single && len(bodies) > 0:
		c.fail(field+".bodies", "write them all under bodies", "the answer has both body and bodies")
	case single:
		bodies, at = []Body{a.Body}, func(int) string { return field }
	case len(bodies) > maxBodies:
		c.fail(field+".bodies", "keep those that clients request", "there are %d bodies, the maximum is %d", len(bodies), maxBodies)
	case len(bodies)+len(a.Headers) == 0 && a.Status == 0:
		c.fail(field, `write for example "{type: text/html, file: slow-down.html}"`, "the answer is empty")
	}
	for i := range bodies {
		if b := c.body(at(i), &bodies[i], samples(status, sent)); b != nil {
			if slices.ContainsFunc(out.bodies, func(o *template.Template) bool { return o.Media == b.Media }) {
				c.fail(at(i)+".type", "remove one of them", "the answer has two bodies of type %s", b.Media)
			}
			out.bodies = append(out.bodies, b)
		}
	}
	if i := slices.IndexFunc(out.bodies, (*template.Template).Page); i >= 0 {
		page := out.bodies[i]
		out.bodies = append(slices.Delete(out.bodies, i, i+1), page)
	}
	for i := range out.bodies {
		out.Types = append(out.Types, out.bodies[i].Media)
	}
	return out
}

var mediaType = regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}$`)

// body compiles a body. It returns nil if the body is invalid.
func (c *compiler) body(field string, b *Body, samples []any) *template.Template {
	at := field + ".body"
	if b.File != "" {
		at = field + ".file"
	}
	switch {
	case b.Type == "":
		c.fail(field, `write for example "type: text/html"`, "the body has no type")
		return nil
	case !mediaType.MatchString(b.Type):
		c.fail(field+".type", typeHint(b.Type), "%s is not a media type", spelling.Quote(b.Type))
		return nil
	case b.Text == "" && b.File != "":
		c.fail(field+".file", "load the policy with package policyfile, or set Text", "the body is in the file %s, which has not been loaded", spelling.Quote(b.File))
		return nil
	case b.Text == "":
		c.fail(field, `write "body: …", or "file: …" with the name of a file beside the policy`, "the body of type %s is missing", b.Type)
		return nil
	case len(b.Text) > template.MaxSize:
		c.fail(at, "shorten it: denials have to be cheap", "the body has %d bytes, the maximum is %d", len(b.Text), template.MaxSize)
		return nil
	case !utf8.ValidString(b.Text):
		c.fail(at, "write it in UTF-8", "the body is not UTF-8")
		return nil
	}
	out, wrong := template.New(b.Type, b.Text, samples...)
	if wrong != nil {
		if wrong.Line > 0 {
			at = fmt.Sprintf("%s[%d]", at, wrong.Line-1)
		}
		c.fail(at, wrong.Hint, "%s", wrong.Message)
	}
	return out
}

// typeHint returns a hint for an invalid media type.
func typeHint(s string) string {
	short := map[string]string{"html": "text/html", "json": "application/json", "xml": "application/xml", "text": "text/plain", "plain": "text/plain"}
	before, _, parameters := strings.Cut(s, ";")
	full := strings.ToLower(strings.TrimSpace(before))
	if short[full] != "" {
		full = short[full]
	}
	switch {
	case !mediaType.MatchString(full):
		return "write it as in text/html or application/json"
	case parameters:
		return fmt.Sprintf("write %q, without parameters: text is sent as UTF-8", full)
	}
	return fmt.Sprintf("write %q", full)
}

// samples returns AnswerValues with every value that a denial can have, and AnswerValues with only those that every
// denial has.
func samples(refusal, status int) []any {
	least := AnswerValues{Type: "about:blank", Title: "Title", Status: status, Detail: "A sentence.", Error: "error"}
	if refusal == http.StatusTooManyRequests {
		least.ViolatedPolicies = []string{"rule"}
	}
	most := least
	most.RetryAfter, most.Rule, most.Limit, most.Remaining, most.Wait = 90, "rule", 100, 1, 90*time.Second
	most.Reset, most.ViolatedPolicies = time.Unix(1_795_219_270, 0).UTC(), []string{"rule", "rule-1h"}
	return []any{&most, &least}
}

// ownHeaders checks the header fields of an answer: no field may contain a line break, replace a field that an
// integration sets, or concern the connection.
func (c *compiler) ownHeaders(field string, in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for _, name := range sortedKeys(in) {
		at := fmt.Sprintf("%s[%q]", field, name)
		canonical, value := http.CanonicalHeaderKey(name), in[name]
		switch _, twice := out[canonical]; {
		case !c.headerName(at, name):
		case slices.Contains(aboutConnection, canonical):
			c.fail(at, "leave it out", "the header %s belongs to the connection", canonical)
		case setByDoors(canonical):
			c.fail(at, "leave it out", "the header %s is set by Sluice", canonical)
		case twice:
			c.fail(at, "remove one of them", "the header %s occurs twice", canonical)
		case !headerValue.MatchString(value):
			c.fail(at, "write one line of up to 1000 characters of ASCII, without spaces around it", "%s is not a value of the header %s", spelling.Quote(value), canonical)
		default:
			out[canonical] = value
		}
	}
	return out
}

var headerValue = regexp.MustCompile(`^[!-~]([ -~]{0,998}[!-~])?$`)

var aboutConnection = strings.Fields("Connection Keep-Alive Proxy-Authenticate Proxy-Authorization Proxy-Connection Te Trailer Transfer-Encoding Upgrade Http2-Settings")

var ofDoors = strings.Fields("Cache-Control Content-Encoding Content-Length Content-Range Content-Type Date Ratelimit Retry-After Vary " +
	"X-Ratelimit-Degraded X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset")

func setByDoors(name string) bool {
	return slices.Contains(ofDoors, name) || strings.HasPrefix(name, "Access-Control-") || strings.HasPrefix(name, "Ratelimit-")
}

// answers warns of an answer that is never sent.
func (w *warner) answers() {
	blocks := slices.ContainsFunc(w.policy.rules, func(r rule) bool { return !r.shadow && (r.block || w.policy.overrides.blocks(&r)) })
	if w.policy.answers.For(http.StatusForbidden) != nil && !blocks {
		w.add(nil, `answers["403"]`, `write "block: true" in a rule or an override, or "status: 403" in the answer of another status`, "no rule or override blocks, so no request gets 403")
	}
}

// Lines describes the answers, in the order of their statuses.
func (o *OwnAnswers) Lines() []string {
	if o == nil {
		return nil
	}
	var all []string
	for _, status := range slices.Sorted(maps.Keys(o.byStatus)) {
		a := o.byStatus[status]
		types := "built-in bodies"
		if len(a.Types) > 0 {
			types = strings.Join(a.Types, ", ") + ", else built-in bodies"
		}
		all = append(all, fmt.Sprintf("%d  sent as %d: %s", status, cmp.Or(a.Status, status), types))
	}
	return all
}

// Fields selects the header fields that report the state of limits to clients: see Fields of [Document].
type Fields uint8

const (
	BothFields Fields = iota // the zero value
	IETFFields               // RateLimit and RateLimit-Policy
	XFields                  // X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
)

var fieldNames = []string{BothFields: "both", IETFFields: "ietf", XFields: "x-ratelimit"}

// Fields returns which fields report the state of limits to clients.
func (p *Policy) Fields() Fields { return p.fields }

// Form is the form of the answers to a request: how a denial is written, and which fields report limits.
type Form uint8

const (
	Plain     Form = iota // a problem of RFC 9457, or an answer of the document
	OpenAI                // the form of OpenAI's API
	Anthropic             // the form of Anthropic's API
	MCP                   // an error of JSON-RPC
)

// answerForm is the value of Answer of a [Rule], an index in answerForms.
type answerForm uint8

const (
	answerPlain answerForm = iota
	answerLLM
	answerMCP
)

var answerForms = []string{answerPlain: "", answerLLM: "llm", answerMCP: "mcp"}

const anthropicPath = "/v1/messages"

// form returns the form of the answers to requests with this path.
func (a answerForm) form(path string) Form {
	switch {
	case a == answerMCP:
		return MCP
	case a == answerPlain:
		return Plain
	case strings.Contains(path+"/", anthropicPath+"/"):
		return Anthropic
	}
	return OpenAI
}

// answerForm returns the form of the first rule that applies and has a form. Shadows are skipped.
func (m *matches) answerForm() answerForm {
	for _, r := range m.barring {
		if !r.shadow && r.answer != answerPlain {
			return r.answer
		}
	}
	for i := range m.rules {
		if r := m.rules[i].rule; !r.shadow && r.answer != answerPlain {
			return r.answer
		}
	}
	return answerPlain
}

// form sets the form of the answer to a request.
func (d *Decision) form(w *work) {
	if !w.policy.forms || d.Exempt {
		return
	}
	d.Form = w.matches.answerForm().form(w.request.Path)
	if d.Form == MCP && (!d.Allowed || d.Delay > 0) {
		d.CallID = strings.Clone(w.x.CallID())
	}
}
