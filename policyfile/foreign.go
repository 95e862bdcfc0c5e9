package policyfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
)

const (
	inRule     = "a rule"
	inDocument = "the document"
	inOverride = "an override"
	inSubject  = "a subject"
)

// foreign has hints for keys of other limiters that people write into a policy. The index is the name of the mapping,
// a space, and the key in the form that [spelling.Fold] returns.
var foreign = index([]mends{
	{inRule, "rate rps rpm average max maxrequests maxcalls requests hits requestspersecond requestsperminute requestsperhour requestsperday requestsperunit limitforperiod quota threshold points second minute hour day",
		`write it as one text, as in "limit: 100/minute"`},
	{inRule, "window windowms windowsize windowseconds timewindow per period interval duration unit timeunit seconds ttl fillinterval refillperiod refillinterval limitrefreshperiod refreshperiod",
		`the period is part of the limit, as in "limit: 100/minute" or "limit: 100/90s"`},
	{inRule, "burst bursts burstsize burstcapacity maxburst capacity bucket bucketsize tokens maxtokens tokensperfill refill refillrate refilltokens replenishrate",
		`the rate and the burst are part of the limit, as in "limit: 10/second burst 20"`},
	{inRule, "by keyby limitby groupby identifier identifiers source sourcecriterion clientid ip keygenerator keyresolver keyextractor descriptor descriptors dimensions consumer scope zone",
		`write the parts that distinguish clients, as in "key: [client_ip]"`},
	{inRule, "path paths url urls uri uris route routes endpoint endpoints pathprefix prefix pattern patterns location filter resource resources",
		`write "match: /path", with a method before the path if there is one`},
	{inRule, "method methods verb verbs httpmethods", `put the method before the path, as in "match: POST /path"`},
	{inRule, "domain domains servername vhost virtualhost", `write "hosts: [example.com]"`},
	{inRule, "weight weights requestedtokens hitsaddend consume", `write "cost: 1", or another number`},
	{inRule, "inflight inflightreq maxinflight concurrency concurrent maxconcurrency maxconcurrent maxconcurrentcalls concurrentrequests maxconcurrentrequests connections maxconnections maxconns limitconn simultaneous parallel maxparallel semaphore bulkhead",
		`write "in_flight: 10"`},
	{inRule, "algo strategy type limiter limitertype", `write "algorithm: token_bucket", or another one`},
	{inRule, "policy store redis storage backend", `leave it out: --store of "sluice serve" sets the store`},
	{inRule, "faulttolerant failopen failclosed failclose failuremode failuremodedeny onfailure fallback", `write "on_error: deny", or local`},
	{inRule, "sync syncrate syncinterval accuracy exactness exact lease leases localcache", `write "consistency: leased", or strict, or synced`},
	{inRule, "priority order sequence", "leave it out: every rule that matches applies, in any order"},
	{inRule, "status statuscode httpstatus httpresponsecode errorcode errormessage message response rejectedcode deniedstatus action handler",
		"leave it out: denied requests get 429, or what \"answers\" at the top of the document defines"},
	{inRule, "headersenabled standardheaders legacyheaders hideclientheaders enablexratelimitheaders", "leave it out: responses always contain the limits"},
	{inRule, "enabled active", "leave it out: every rule in the document is in force"},
	{inRule, "nodelay delay", `leave it out: requests wait only with "algorithm: leaky_bucket"`},
	{inRule, "ban bans bantime banfor banduration blockduration blockfor blocktime lockout lockouttime lockoutduration lockfor mitigationtimeout jail",
		`write "penalty: 10m", or another length`},
	{inRule, "skipsuccessfulrequests", `write "count: {status: [4xx, 5xx]}"`},
	{inRule, "skipfailedrequests", `write "count: {status: [1xx, 2xx, 3xx]}"`},
	{inRule, "client", `to restrict the rule to networks, write "clients: [10.0.0.0/8]"; to count by address, "key: [client_ip]"`},
	{inRule, "clientips ips addresses networks cidr cidrs sourceips sourceranges remoteaddrs allow deny allowlist denylist whitelist blacklist allowedips blockedips ipblocks",
		`to restrict the rule to networks, write "clients: [10.0.0.0/8]", or "not_clients" for all others`},
	{inRule, "id title rule", `write "name: "`},
	{inRule, "comment note reason desc", `write "description: "`},

	{inDocument, "limits ratelimit ratelimits ratelimiting policies rule routes plugins services middlewares http descriptors spring resilience4j bucket4j filters",
		`write "rules:", and below it "- name: …" and "limit: 100/minute"`},
	{inDocument, "trustproxy trustedips realip realipheader setrealipfrom ipstrategy xffnumtrustedhops depth", `write the addresses of your proxies, as in "trusted_proxies: [192.0.2.7]"`},
	{inDocument, "upstream proxy admin listen port address store redis backend storage server loglevel logging log memory timeout", `this is a setting and not part of a policy: see "sluice serve --help"`},
	{inDocument, "answer responses response errors errorpages errorpage errordocument pages messages statuscode status",
		`write "answers: {429: {type: text/html, file: slow-down.html}}", or "body: …" in place of the file`},
	{inDocument, "plans plan tier", `write "tiers: {from: header:X-Plan}"`},

	{"count", "header responseheader uncount", `write "unless_header: X-RateLimit-Uncount"`},
	{"count", "statuses code codes", `write "status: [401, 403]"`},
	{"penalty", "duration for time length base initial", `write "first: 1m"`},
	{"penalty", "max maximum maxduration cap longest", `write "most: 1h"`},
	{"penalty", "multiplier exponent backoff growth", `write "factor: 2"`},
	{"penalty", "reset resetafter forgetafter window findtime", `write "forget: 1d"`},
	{inOverride, "clientip apikey ip user client value subject keys", `put values under key, as in "key: {client_ip: 192.0.2.1}"`},
	{inOverride, "expires expiresat expiry end ends to validuntil", `write "until: 2027-01-31"`},
	{inOverride, "name rulename", `write "rule: ", and the name of the rule`},
	{inOverride, "action mode ban banned blocked deny denied", `write "block: true"`},
	{inOverride, "createdby author operator who actor", `write "by: ", and the author`},
	{inOverride, "tier plan", `an override sets a limit; to put a subject into a tier, use "subjects" at the top of the document`},
	{inSubject, "id name value user key apikey clientip", `write "subject: ", and the value of the part that "tiers: {subject: …}" names`},
	{inSubject, "plan tiers group level", `write "tier: "`},
	{inSubject, "expires expiresat expiry end ends to validuntil", `write "until: 2027-01-31"`},
	{inSubject, "createdby author operator who actor", `write "by: ", and the author`},
	{inSubject, "limit limits rule", `write limits of a single subject under "overrides", at the top of the document`},
	{inOverride, "rate max count requests burst", `write it as one text, as in "limit: 100/minute burst 20"`},
})

// mends has the hint for all of the keys, which are separated by spaces, in the mapping with the name where.
type mends struct{ where, keys, hint string }

func index(all []mends) map[string]string {
	byKey := make(map[string]string)
	for _, m := range all {
		for key := range strings.FieldsSeq(m.keys) {
			byKey[m.where+" "+key] = m.hint
		}
	}
	return byKey
}

// homes has the mapping to which each key belongs, for hints about keys in the wrong mapping.
var homes = map[string]string{
	"trusted_proxies": inDocument, "ipv6_prefix": inDocument, "ignore_case": inDocument, "body_limit": inDocument, "fields": inDocument, "cors": inDocument, "answers": inDocument, "lists": inDocument, "overrides": inDocument, "subjects": inDocument,
	"rules": inDocument, "version": inDocument,
	"name": inRule, "match": inRule, "hosts": inRule, "headers": inRule, "attributes": inRule, "body": inRule, "clients": inRule, "not_clients": inRule, "block": inRule, "key": inRule, "limit": inRule, "limits": inRule, "in_flight": inRule, "class": inRule, "distinct": inRule, "algorithm": inRule,
	"cost": inRule, "count": inRule, "missing": inRule, "together": inRule, "on_error": inRule, "consistency": inRule, "enforce": inRule, "show_key": inRule, "description": inRule,
	"until": inOverride, "reason": inOverride,
}

// meant returns a hint for an unknown key of a mapping.
func meant(n *yaml.Node, what, key string, fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if hint := burstHint(n); key == "burst" && hint != "" {
		return hint
	}
	if hint := foreign[what+" "+spelling.Fold(key)]; hint != "" {
		return hint
	}
	switch home := homes[key]; home {
	case inDocument:
		return "write it at the top of the document, without spaces before it"
	case inRule:
		return "it belongs in a rule: write it below the rule's \"- name: …\", aligned with \"name\""
	case inOverride:
		return "it belongs in an override"
	}
	if near := spelling.Nearest(key, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if what == "tiers" {
		return "write the limits of tiers in the rules; only \"from\", \"subject\" and \"default\" belong here"
	}
	return "its keys are " + strings.Replace(spelling.OneOf(names), " or ", " and ", 1)
}

// burstHint returns a hint for a burst that is not in the text of its limit, or "" if the limit cannot be read.
func burstHint(n *yaml.Node) string {
	texts := map[string]string{"algorithm": "token_bucket"}
	for _, key := range []string{"limit", "burst", "algorithm"} {
		if v, _ := value(n, key, 0); v != nil {
			texts[key] = v.Value
		}
	}
	l, err := sluice.ParseLimit(texts["limit"] + " burst " + texts["burst"])
	if err != nil {
		return ""
	}
	if l.Algorithm, err = sluice.ParseAlgorithm(texts["algorithm"]); err != nil {
		return ""
	}
	if _, err := sluice.NewPlan(l); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("write \"limit: %v\"", l)
}

// lists has an example of each list.
var lists = map[string]string{
	"match": `"match: [GET /path]"`, "key": `"key: [client_ip]"`, "hosts": `"hosts: [example.com]"`,
	"limits":       `"limits: [10/second, 1000/hour]"`,
	"count.status": `"status: [401, 403]"`,
	"rules":        "lines that start with \"- name: …\"",
	"bodies":       "lines that start with \"- type: …\"",
	"overrides":    "lines that start with \"- rule: …\"", "subjects": "lines that start with \"- subject: …\"", "trusted_proxies": `"trusted_proxies: [192.0.2.7]"`,
	"clients": `"clients: [10.0.0.0/8]"`, "not_clients": `"not_clients: [10.0.0.0/8]"`,
}

func listHint(n *yaml.Node, what string) string {
	if what == "key" && pairOfTexts(n) {
		return fmt.Sprintf("write \"key: [%.30s:%.30s]\"", n.Content[0].Value, n.Content[1].Value)
	}
	if example := lists[what]; example != "" {
		return "write " + example
	}
	return "write \"[one, two]\", or lines that start with \"- \""
}

// mappings has an example of each mapping.
var mappings = map[string]string{
	"headers": `"headers: {X-Plan: pro}"`, "attributes": `"attributes: {plan: trial}"`, "body": `"body: {method: tools/call}"`, "tiers": `"tiers: {pro: 1000/minute}" in a rule, and "tiers: {from: header:X-Plan}" at the top`,
	inRule: `"- name: …", and the other keys aligned with "name"`, "count": `"count: {status: [401, 403]}" for the statuses that count, and "limit: 100/minute" for the number`,
	"distinct": `"distinct: {of: client_ip, limit: 5/hour}"`,
	"penalty":  `"penalty: 10m", or "penalty: {first: 1m, factor: 2}"`,
	"cors":     `"cors: {origins: [https://app.example.com]}"`,
	"lists":    `"lists: {office: [192.0.2.0/24]}"`,
	"answers":  `"answers: {429: {type: text/html, file: slow-down.html}}"`,
}

func mappingHint(what string) string {
	if example := mappings[what]; example != "" {
		return "write " + example
	}
	return "write \"name: value\" lines"
}

// textHint returns a hint for a node that must be a text.
func textHint(n *yaml.Node, what string) string {
	ofKey := what == "an entry of key" || what == "an entry of together" || what == "tiers.from" || what == "tiers.subject"
	if ofKey && pairOfTexts(n) {
		return fmt.Sprintf("write \"%.30s:%.30s\", without a space after the colon", n.Content[0].Value, n.Content[1].Value)
	}
	list := n.Kind == yaml.SequenceNode
	switch {
	case what == "limit" && list:
		return "write \"limits\" in place of \"limit\""
	case what == "limit", what == "share.of", what == "an entry of limits", strings.HasPrefix(what, "tier "), strings.HasPrefix(what, "an entry of tier "):
		return "write it in one line, as in \"100/minute burst 20\""
	case list:
		return "write a single text instead of a list"
	}
	return "quote text that contains { } [ ] or \": \""
}

// pairOfTexts reports whether n is a mapping of one text to another, such as header:NAME with a space after the
// colon.
func pairOfTexts(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Kind == yaml.ScalarNode && n.Content[1].Kind == yaml.ScalarNode
}
