package recent

import (
	"fmt"
	"hash/maphash"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/policy"
)

// judge finds the rules of a policy that can be tried on records with a schema.
type judge struct {
	seed   maphash.Seed
	schema *schema
	doc    policy.Document
	// moved reports whether the two policies determine the addresses of clients differently.
	moved bool
}

// lacks returns an input of the rule that the records lack, and a sentence with the reason. If the records have all
// inputs, both are empty.
func (j *judge) lacks(r *policy.Rule) (need, why string) {
	switch {
	case r.InFlight != (policy.InFlight{}):
		return "in_flight", "The records do not contain which requests were in flight at the same time."
	case r.Cost.ReadsResponse():
		return "cost", "The records do not contain the numbers in responses."
	case settles(r) && !j.schema.settles:
		return "the outcome", "The outcome of requests is not recorded, because no rule in force reads it."
	}
	for _, name := range [...]string{r.Count.UnlessHeader, r.Cost.ResponseHeader} {
		if name != "" && !slices.Contains(j.schema.answers, http.CanonicalHeaderKey(name)) {
			return "response_header:" + name, fmt.Sprintf("The header %s of responses is not recorded, because no rule in force reads it.", name)
		}
	}
	if j.moved && goesByClient(&j.doc, r) {
		return "client_ip", "trusted_proxies or ipv6_prefix differ, but the records have the addresses that the policy in force found."
	}
	for _, part := range partsOf(&j.doc, r) {
		if need, why = j.lacksPart(part); need != "" {
			return need, why
		}
	}
	for _, name := range fieldsOf(r) {
		if !j.hasField(name, name == http.CanonicalHeaderKey(r.Cost.Header)) {
			return "header:" + name, fmt.Sprintf("The header %s is not recorded, because no rule in force reads it.", name)
		}
	}
	return j.lacksOpen(r)
}

// settles reports whether a rule depends on the outcome of requests.
func settles(r *policy.Rule) bool {
	return len(r.Count.Status) > 0 || r.Count.UnlessHeader != "" || r.Cost.ResponseHeader != "" || r.Cost.ResponseBytes != 0
}

// partsOf returns the key parts that a rule reads from requests, as written in the document.
func partsOf(doc *policy.Document, r *policy.Rule) []string {
	all := slices.Concat(r.Key, r.Share.By, []string{r.Distinct.Of})
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		all = append(all, "attr:"+name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Body)) {
		all = append(all, "body:"+name)
	}
	if goesByTier(r) {
		all = append(all, doc.Tiers.From, doc.Tiers.Subject)
	}
	return slices.DeleteFunc(all, func(part string) bool { return part == "" })
}

// goesByClient reports whether a rule depends on the address of the client.
func goesByClient(doc *policy.Document, r *policy.Rule) bool {
	return len(r.Clients)+len(r.NotClients) > 0 || slices.Contains(partsOf(doc, r), "client_ip")
}

func goesByTier(r *policy.Rule) bool { return len(r.Tiers)+len(r.Share.Weights) > 0 }

// fieldsOf returns the canonical names of the header fields in the conditions and the cost of a rule.
func fieldsOf(r *policy.Rule) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		all = append(all, http.CanonicalHeaderKey(name))
	}
	if r.Cost.Header != "" {
		all = append(all, http.CanonicalHeaderKey(r.Cost.Header))
	}
	return all
}

func (j *judge) lacksPart(part string) (need, why string) {
	id := policy.PartID(part)
	if !isRecorded(id) || j.schema.find(id) >= 0 {
		return "", ""
	}
	return part, fmt.Sprintf("%s is not recorded, because no rule in force reads it.", part)
}

// isRecorded reports whether the part with the given ID is recorded separately. Other parts are constant, or follow
// from the method, host, path and client, which every record has.
func isRecorded(id string) bool {
	kind, _, _ := strings.Cut(id, ":")
	switch kind {
	case "", "client_ip", "route", "path", "host", "method", "const":
		return false
	}
	return true
}

func (j *judge) hasField(name string, cost bool) bool {
	return slices.ContainsFunc(j.schema.fields, func(f policy.RequestField) bool { return f.Name == name && (f.Cost || !cost) })
}

// lacksOpen is like lacks, but for the values that the rule needs and that the records have only as hashes.
func (j *judge) lacksOpen(r *policy.Rule) (need, why string) {
	const hidden = "Only hashes of %s are recorded, but %s needs the values."
	hides := func(part string) bool { return j.schema.hides(policy.PartID(part)) }
	if len(r.Clients)+len(r.NotClients) > 0 && j.schema.client != whole {
		return "client_ip", fmt.Sprintf(hidden, "client_ip", "a network")
	}
	if r.Enforce != "" {
		for _, part := range slices.Concat(r.Key, r.Share.By) {
			if hides(part) {
				return part, fmt.Sprintf(hidden, part, "enforce")
			}
		}
	}
	if goesByTier(r) && j.doc.Tiers.From != "" && hides(j.doc.Tiers.From) {
		return j.doc.Tiers.From, fmt.Sprintf(hidden, j.doc.Tiers.From, "a tier")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Body)) {
		if v := r.Body[name]; v != "*" && strings.HasSuffix(v, "*") && hides("body:"+name) {
			return "body:" + name, fmt.Sprintf(hidden, "body:"+name, "a value with \"*\"")
		}
	}
	named := func(o policy.Override) bool {
		return o.Rule == r.Name && o.Key["client_ip"] != "" && o.Key["client_ip"] != "*"
	}
	if j.schema.client != whole && slices.ContainsFunc(j.doc.Overrides, named) {
		return "client_ip", fmt.Sprintf(hidden, "client_ip", "an override")
	}
	if goesByTier(r) && j.doc.Tiers.Subject == "client_ip" && j.schema.client != whole && len(j.doc.Subjects) > 0 {
		return "client_ip", fmt.Sprintf(hidden, "client_ip", "a tier")
	}
	return "", ""
}

// left returns the rules that cannot be tried.
func (j *judge) left() (all []replay.NotJudged) {
	for i := range j.doc.Rules {
		r := &j.doc.Rules[i]
		if need, why := j.lacks(r); need != "" {
			all = append(all, replay.NotJudged{Rule: r.Name, Needs: need, Why: why + replay.LeftOut(r)})
		}
	}
	return all
}

// judged returns the document without the rules in the map left. Values of which the records have only hashes are
// replaced with their tokens.
func (j *judge) judged(left map[string]replay.NotJudged) policy.Document {
	doc := j.doc
	doc.Rules = nil
	for _, r := range j.doc.Rules {
		if _, out := left[r.Name]; !out {
			doc.Rules = append(doc.Rules, j.tokenized(r))
		}
	}
	doc.Overrides = nil
	for _, o := range j.doc.Overrides {
		if _, out := left[o.Rule]; !out {
			o.Key = j.tokens(o.Key)
			doc.Overrides = append(doc.Overrides, o)
		}
	}
	subject := doc.Tiers.Subject
	doc.Subjects = slices.Clone(doc.Subjects)
	for i := range doc.Subjects {
		doc.Subjects[i].Subject = j.token(subject, doc.Subjects[i].Subject)
	}
	return doc
}

// tokenized returns a rule with tokens in its conditions. Its show_key is whole, because keys also contain tokens
// instead of values.
func (j *judge) tokenized(r policy.Rule) policy.Rule {
	if !r.Exempt && !r.Block && !r.OnlyClassifies() {
		r.ShowKey = "whole"
	}
	headers := map[string]string{}
	for name, value := range r.Headers {
		headers[name] = value
		if value != "*" && !(j.hasField(http.CanonicalHeaderKey(name), true) && isNumber(value)) {
			headers[name] = string(appendToken([]byte(fieldPrefix), maphash.String(j.seed, strings.TrimSpace(value))))
		}
	}
	r.Headers = headers
	r.Attributes, r.Body = j.conditions("attr:", r.Attributes), j.conditions("body:", r.Body)
	return r
}

// conditions replaces the hidden values in conditions with their tokens. The parameter prefix is the kind of the key
// parts, such as "attr:".
func (j *judge) conditions(prefix string, values map[string]string) map[string]string {
	if len(values) == 0 {
		return nil
	}
	all := map[string]string{}
	for name, value := range values {
		all[name] = j.token(prefix+name, value)
	}
	return all
}

// tokens replaces the hidden values of a key with their tokens.
func (j *judge) tokens(key map[string]string) map[string]string {
	all := map[string]string{}
	for part, value := range key {
		all[part] = j.token(part, value)
	}
	return all
}

// token returns the token for a value of a key part, or the value if the part is not hidden.
func (j *judge) token(part, value string) string {
	id := policy.PartID(part)
	if value == "*" || id == clientPart || !j.schema.hides(id) {
		return value
	}
	return string(appendToken(nil, maphash.String(j.seed, policy.PartValue(part, value))))
}

// isNumber reports whether the value of a field is recorded as a number: see [writer.field].
func isNumber(value string) bool {
	n, err := strconv.ParseUint(value, 10, numberBits)
	return err == nil && strconv.FormatUint(n, 10) == value
}
