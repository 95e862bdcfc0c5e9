package policy

import (
	"net/http"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CORS says which pages of other origins may read what a door answers itself. A nil CORS
// allows none.
type CORS struct {
	origins     []origin
	any         bool // every origin
	credentials bool
	preflights  bool // are exempt
}

// origin is https://app.example.com, or with a star all below: https://*.example.com.
type origin struct {
	before, after string // the star; after is empty if there is none
}

// CORS returns the document's cors, or nil.
func (p *Policy) CORS() *CORS { return p.cors }

// Allows reports whether pages of the origin may read answers.
func (c *CORS) Allows(o string) bool {
	if c == nil || o == "" {
		return false
	}
	if c.any {
		return true
	}
	for i := range c.origins {
		if c.origins[i].matches(o) {
			return true
		}
	}
	return false
}

// Any reports whether those of every origin may.
func (c *CORS) Any() bool { return c != nil && c.any }

// Credentials reports whether they may send cookies.
func (c *CORS) Credentials() bool { return c != nil && c.credentials }

func (o *origin) matches(s string) bool {
	if o.after == "" {
		return s == o.before
	}
	middle, ok := strings.CutPrefix(s, o.before)
	if !ok {
		return false
	}
	middle, ok = strings.CutSuffix(middle, o.after)
	return ok && middle != "" && strings.Trim(middle, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// exempts reports whether r is a preflight, which browsers send and not pages, and those
// are exempt.
func (c *CORS) exempts(r *Request) bool {
	if c == nil || !c.preflights || r.Method != http.MethodOptions || len(r.Header["Access-Control-Request-Method"]) != 1 {
		return false
	}
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		if r.Header[name] != nil {
			return false // no browser sends it here
		}
	}
	from := r.Header["Origin"]
	return len(from) == 1 && c.Allows(from[0])
}

var originSyntax = regexp.MustCompile(`^(https?)://(\*\.)?([a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?$`)

func (d *decoder) cors(n *yaml.Node) *CORS {
	c := &CORS{}
	d.fields(n, "cors", []field{
		{"origins", func(n *yaml.Node) {
			d.texts(n, "cors.origins", func(line int, s string) { d.origin(c, line, s) })
		}},
		{"credentials", func(n *yaml.Node) { c.credentials = d.boolean(n, "cors.credentials") }},
		{"preflights", func(n *yaml.Node) {
			c.preflights = d.choice(n, "cors.preflights", []string{"count", "exempt"}) == 1
		}},
	})
	switch {
	case n.Kind == yaml.MappingNode && !hasKey(n, "origins"):
		d.fail(n.Line, "write for example \"origins: [https://app.example.com]\"", "cors has no origins")
	case c.any && c.credentials:
		d.fail(n.Line, "name the origins", "cors would let every page read answers to requests with cookies")
	}
	return c
}

func (d *decoder) origin(c *CORS, line int, s string) {
	if s == "*" {
		c.any = true
		return
	}
	m := originSyntax.FindStringSubmatch(s)
	switch {
	case m == nil:
		d.fail(line, "write it as in https://app.example.com, \"https://*.example.com\" or \"*\": in lower case, without a path", "%s is not an origin", quote(s))
	case m[1] == "http" && m[4] == ":80", m[1] == "https" && m[4] == ":443":
		d.fail(line, "leave the port out, as browsers do", "%s has the port that its scheme has anyway", quote(s))
	case m[2] != "":
		c.origins = append(c.origins, origin{m[1] + "://", "." + m[3] + m[4]})
	default:
		c.origins = append(c.origins, origin{before: s})
	}
}
