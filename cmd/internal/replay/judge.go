package replay

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// judgeable returns the document with only the rules for which the logs contain enough data, and the omitted rules.
// It does not change doc.
func judgeable(doc policy.Document, files []feed.File) (policy.Document, []NotJudged) {
	var out []NotJudged
	left := map[string]bool{}
	var rules []policy.Rule
	for i := range doc.Rules {
		r := &doc.Rules[i]
		need, why := lacks(&doc, r, files)
		if r.InFlight != (policy.InFlight{}) {
			need, why = "in_flight", "Access logs do not show which requests were under way at the same time, or how long they would have been."
		}
		if need != "" {
			out = append(out, NotJudged{r.Name, need, why + LeftOut(r)})
			left[r.Name] = true
			continue
		}
		rules = append(rules, *r)
	}
	doc.Rules = rules
	doc.Overrides = slices.DeleteFunc(slices.Clone(doc.Overrides), func(o policy.Override) bool { return left[o.Rule] })
	return doc, out
}

// LeftOut returns a sentence about how leaving out a rule affects the counts of the other rules, or "".
func LeftOut(r *policy.Rule) string {
	switch {
	case r.Exempt:
		return " The other rules count the requests that it would exempt."
	case r.Block && !r.Shadow:
		return " The other rules count the requests that it would block."
	}
	return ""
}

// lacks returns the first value that a rule needs and a file does not have, and a sentence about it.
func lacks(doc *policy.Document, r *policy.Rule, files []feed.File) (need, why string) {
	for _, n := range needs(doc, r) {
		for i := range files {
			if files[i].Format == "" {
				continue // the file has no line, and so no request
			}
			if why := missingData(n, &files[i]); why != "" {
				return n, why
			}
		}
	}
	return "", ""
}

// needs returns the values that a rule needs in addition to method, path and status. They are written like key
// parts, or are "response_header:NAME", "response_bytes", "total_tokens" and the like, or "response_json".
func needs(doc *policy.Document, r *policy.Rule) (all []string) {
	all = append(append(all, keyOf(r)...), r.Distinct.Of)
	if len(r.Clients)+len(r.NotClients) > 0 {
		all = append(all, "client_ip")
	}
	if len(r.Hosts) > 0 || slices.ContainsFunc(r.Match, namesHost) {
		all = append(all, "host")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		all = append(all, "header:"+name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		all = append(all, "attr:"+name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Body)) {
		all = append(all, "body:"+name)
	}
	if len(r.Tiers)+len(r.Share.Weights) > 0 {
		all = append(all, doc.Tiers.From, doc.Tiers.Subject)
	}
	if r.Cost.Header != "" {
		all = append(all, "header:"+r.Cost.Header)
	}
	if r.Cost.ResponseHeader != "" {
		all = append(all, "response_header:"+r.Cost.ResponseHeader)
	}
	switch {
	case r.Cost.Tokens == "uncached":
		all = append(all, "input_tokens", "output_tokens", "cached_tokens")
	case r.Cost.Tokens != "":
		all = append(all, r.Cost.Tokens+"_tokens")
	case r.Cost.USD != "":
		all = append(all, "input_tokens", "output_tokens", "body:model")
	case r.Cost.ResponseJSON != nil:
		all = append(all, "response_json")
	}
	if r.Cost.ResponseBytes != 0 {
		all = append(all, "response_bytes")
	}
	if r.Count.UnlessHeader != "" {
		all = append(all, "response_header:"+r.Count.UnlessHeader)
	}
	return slices.DeleteFunc(all, func(n string) bool { return n == "" })
}

// keyOf returns the parts of the key of a rule's subjects.
func keyOf(r *policy.Rule) []string { return slices.Concat(r.Key, r.Share.By) }

// namesHost reports whether a pattern such as "GET api.example.com/users" has a host.
func namesHost(pattern string) bool {
	if _, target, found := strings.Cut(pattern, " "); found {
		pattern = strings.TrimLeft(target, " \t")
	}
	return pattern != "" && pattern[0] != '/'
}

// missingData returns why a file does not have a value that a rule needs, or "" if it has the value.
func missingData(need string, f *feed.File) string {
	name, arg, _ := strings.Cut(need, ":")
	t := &f.Tells
	has, what := true, ""
	switch name {
	case "client_ip":
		has, what = t.Client || t.Forwarded, "the address of the client"
	case "host":
		has, what = t.Host, "the host of the request"
	case "query":
		has, what = t.Query, "the query"
	case "header":
		arg = http.CanonicalHeaderKey(arg)
		has, what = logsHeader(t, arg), "the header "+arg
	case "api_key":
		has, what = logsHeader(t, "X-Api-Key"), "the header X-Api-Key"
	case "cookie":
		has, what = logsHeader(t, "Cookie"), "cookies"
	case "jwt":
		has, what = logsHeader(t, "Authorization"), "the header Authorization"
	case "attr":
		has, what = slices.Contains(t.Attributes, arg) || arg == "user" && t.User, fmt.Sprintf("the attribute %q", arg)
	case "response_bytes":
		has, what = t.Sent, "the length of responses"
	case "total_tokens":
		has, what = t.TotalTokens, mapped("all tokens that responses report", "tokens")
	case "input_tokens":
		has, what = t.InputTokens, mapped("the input tokens that responses report", need)
	case "output_tokens":
		has, what = t.OutputTokens, mapped("the output tokens that responses report", need)
	case "cached_tokens":
		has, what = t.CachedTokens, mapped("the cached input tokens that responses report", need)
	case "response_json":
		return "Access logs do not contain the bodies of responses."
	case "body":
		if arg != "model" {
			return "Access logs do not contain the bodies of requests."
		}
		has, what = t.Model, mapped("the model of the request", arg)
	case "tls_fingerprint":
		return "Access logs do not contain the TLS fingerprints of clients."
	case "response_header":
		return "Access logs do not contain the headers of responses."
	}
	if has {
		return ""
	}
	return fmt.Sprintf("The format %s of %s does not contain %s.", f.Format, f.Name, what)
}

// mapped appends, to the name of a missing value, a hint on how to map the value to a field.
func mapped(what, field string) string {
	return fmt.Sprintf("%s; map it with --field %s=NAME if its lines have it", what, field)
}

func logsHeader(t *accesslog.Tells, name string) bool {
	switch {
	case slices.Contains(t.Hidden, name):
		return false
	case name == "Referer" && t.Referer, name == "User-Agent" && t.UserAgent, name == "X-Forwarded-For" && t.Forwarded:
		return true
	}
	return t.AnyHeader || slices.Contains(t.Headers, name)
}

// byClient reports whether each count of a policy belongs to a single client. If so, the requests of a client can be
// decided independently of those of other clients.
func byClient(doc *policy.Document) bool {
	return !slices.ContainsFunc(doc.Rules, func(r policy.Rule) bool {
		return !r.Exempt && !r.Block && !slices.Contains(r.Key, "client_ip") || r.Share.Of != "" // the engine keeps the demand of all tenants together
	})
}

// wholeSeconds reports whether one of the files has times in whole seconds.
func wholeSeconds(files []feed.File) bool {
	return slices.ContainsFunc(files, func(f feed.File) bool { return f.Format != "" && !f.Tells.Fine })
}

// withExactLogs replaces each sliding_window_log of a document with a sliding_window_log_exact, and reports whether
// it has replaced any. A sliding_window_log rounds times to a small part of its period. This hardly matters if
// requests come at arbitrary times. If times are whole seconds, many requests come exactly one period after others,
// and the rounding would decide about all of them. Logs of more than [kernel.FineLogCount] units are not replaced:
// they round so much that the rounding also matters for live traffic.
func withExactLogs(doc policy.Document) (policy.Document, bool) {
	some := false
	rules := slices.Clone(doc.Rules)
	for i := range rules {
		r := &rules[i]
		if r.Algorithm != sluice.SlidingWindowLog.String() {
			continue
		}
		limits := slices.Clone(r.LimitTexts())
		for _, tier := range r.Tiers {
			limits = append(limits, tier...)
		}
		for _, o := range doc.Overrides {
			if o.Rule == r.Name {
				limits = append(limits, o.LimitTexts()...)
			}
		}
		if !slices.ContainsFunc(limits, isCoarse) {
			r.Algorithm, some = sluice.SlidingWindowLogExact.String(), true
		}
	}
	doc.Rules = rules
	return doc, some
}

// isCoarse reports whether the limit is too large for a sliding_window_log that keeps the time of each unit.
func isCoarse(limit string) bool {
	l, err := sluice.ParseLimit(limit)
	return err == nil && l.Count > kernel.FineLogCount
}
