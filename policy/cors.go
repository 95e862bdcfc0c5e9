package policy

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/paths"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// CrossOrigin is a set of other origins. Their pages are permitted to read the responses of an integration. A nil
// CrossOrigin is empty.
type CrossOrigin struct {
	origins     []origin
	any         bool // every origin
	credentials bool
	preflights  bool // preflights are exempt
}

// origin is an origin such as https://app.example.com, or, with a star, all origins below a domain:
// https://*.example.com.
type origin struct {
	before, after string // the text before and after the star; without a star, after is empty
}

// CORS returns the document's cors, or nil.
func (p *Policy) CORS() *CrossOrigin { return p.cors }

// Allows reports whether pages of the origin are permitted to read responses.
func (c *CrossOrigin) Allows(o string) bool {
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

// Any reports whether pages of every origin are permitted to read responses.
func (c *CrossOrigin) Any() bool { return c != nil && c.any }

// Credentials reports whether pages that are permitted to read responses can also send cookies.
func (c *CrossOrigin) Credentials() bool { return c != nil && c.credentials }

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

// exempts reports whether preflights are exempt, and r has the form of one. In browsers, a page cannot send such a
// request itself.
func (c *CrossOrigin) exempts(r *Request) bool {
	if c == nil || !c.preflights || r.Method != http.MethodOptions || len(r.Header["Access-Control-Request-Method"]) != 1 {
		return false
	}
	for _, name := range notInPreflights {
		if r.Header[name] != nil {
			return false
		}
	}
	from := r.Header["Origin"]
	return len(from) == 1 && c.Allows(from[0])
}

// notInPreflights are fields that no browser sends with a preflight: a handler of OPTIONS could take them for a method or
// an identity.
var notInPreflights = []string{
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "Authorization", "Cookie", "X-Api-Key",
}

// exemptsPreflight reports whether the request is an exempt preflight. Any client can send a preflight, and some
// frameworks answer OPTIONS as they answer POST. So an exempt preflight has no body, and no rule for its path counts by
// values of the query or the body.
func (p *Policy) exemptsPreflight(w *work) bool {
	return p.cors.exempts(w.request) && !w.meetsTyped() && w.bodiless()
}

func (in *input) bodiless() bool {
	if in.request.Body == nil {
		return true
	}
	body, err := in.request.Body(0)
	return err == nil && body != nil
}

// countsTyped reports whether the rule counts by values of the query or the body, or needs the body for another reason.
func (r *rule) countsTyped() bool {
	return r.needsBody || r.key.Any((*parts.Part).Folds) || r.reads.Any((*parts.Part).Folds)
}

// meetsTyped reports whether a rule for which countsTyped is true matches any reading of the path of the request.
// Methods are ignored, because a preflight announces a request with another method.
func (w *work) meetsTyped() bool {
	x := &w.policy.index
	for _, r := range x.typed {
		if len(r.hosts) == 0 || hostMatches(r.hosts, w.x.Host()) {
			return true
		}
	}
	if !x.anyPath {
		return false
	}
	for _, v := range paths.Readings(w.request.Path, w.policy.ignoreCase, &w.matches.buffer) {
		for _, id := range x.tree.Lookup(w.matches.ids[:0], pattern.AnyMethod, w.request.Host, &v) {
			if x.byID[id].rule.countsTyped() {
				return true
			}
		}
	}
	return false
}

var originSyntax = regexp.MustCompile(`^(https?)://(\*\.)?([a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?$`)

func (c *compiler) cors(doc *CORS) *CrossOrigin {
	if len(doc.Origins) == 0 {
		if doc.Credentials || doc.Preflights != "" {
			c.fail("cors", "write for example \"origins: [https://app.example.com]\"", "cors has no origins")
		}
		return nil
	}
	out := &CrossOrigin{credentials: doc.Credentials}
	for i, s := range doc.Origins {
		c.origin(out, fmt.Sprintf("cors.origins[%d]", i), s)
	}
	out.preflights = c.choice("cors.preflights", doc.Preflights, []string{"count", "exempt"}) == 1
	if out.any && out.credentials {
		c.fail("cors.credentials", "name the origins", "cors would allow every page to read responses to requests with cookies")
	}
	return out
}

func (c *compiler) origin(out *CrossOrigin, field, s string) {
	if s == "*" {
		out.any = true
		return
	}
	m := originSyntax.FindStringSubmatch(s)
	switch {
	case m == nil:
		c.fail(field, "write it as in https://app.example.com, \"https://*.example.com\" or \"*\": in lower case, without a path", "%s is not an origin", spelling.Quote(s))
	case m[1] == "http" && m[4] == ":80", m[1] == "https" && m[4] == ":443":
		c.fail(field, "leave the port out, as browsers do", "%s contains the default port of its scheme", spelling.Quote(s))
	case m[2] != "":
		out.origins = append(out.origins, origin{m[1] + "://", "." + m[3] + m[4]})
	default:
		out.origins = append(out.origins, origin{before: s})
	}
}
