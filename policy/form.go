package policy

import (
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
)

// Form is the form of the answers to a request: how a refusal is written, and which fields report limits.
type Form uint8

const (
	Plain     Form = iota // a problem of RFC 9457, or an answer of the document
	OpenAI                // as OpenAI's API writes it
	Anthropic             // as Anthropic's API writes it
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

// anthropicPath is the path of Anthropic's API.
const anthropicPath = "/v1/messages"

// form returns the form of a request with this path.
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

// answerForm returns the form of the first rule that applies and has one. Shadows are skipped.
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

// Over returns the names of the rules with "over: mark" that let the request pass although it does not fit, in the
// order of the document.
func (d *Decision) Over() (rules []string) {
	for i := range d.Results {
		if r := &d.Results[i]; r.Over() && !slices.Contains(rules, r.Rule) {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

// Over reports whether the request does not fit, and passes with a mark.
func (r *Result) Over() bool { return r.Marks && !r.Allowed }

// OverField is the canonical name of the header field that reports [Decision.Over] to the upstream.
const OverField = "Sluice-Over"

// Marks reports whether a rule has "over: mark".
func (p *Policy) Marks() bool { return p.marks }

// neverRefuses reports whether the rule refuses no request for its limits.
func (r *rule) neverRefuses() bool { return r.shadow || r.marks }

// over compiles what happens to a request that does not fit, and reports whether it is marked.
func (c *compiler) over(r *Rule, out *rule) (marks bool) {
	marks = c.choice("over", r.Over, []string{"refuse", "mark"}) > 0
	if marks && out.algorithm == sluice.LeakyBucket {
		c.fail("over", "choose another algorithm, or remove \"over\"", "a leaky_bucket makes requests wait, and marks none")
	}
	return marks
}
