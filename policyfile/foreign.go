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

// foreign has the replacements for keys of other limiters, by the mapping of a policy in which they are found. The
// keys are as [spelling.Fold] returns them.
var foreign = index([]mends{
	{inRule, "rate rps rpm average max maxrequests maxcalls requests hits requestspersecond requestsperminute requestsperhour requestsperday requestsperunit limitforperiod quota threshold points second minute hour day",
		`write it all in one text, as in "limit: 100/minute"`},
	{inRule, "window windowms windowsize windowseconds timewindow per period interval duration unit timeunit seconds ttl fillinterval refillperiod refillinterval limitrefreshperiod refreshperiod",
		`the period stands in the limit, as in "limit: 100/minute" or "limit: 100/90s"`},
	{inRule, "burst bursts burstsize burstcapacity maxburst capacity bucket bucketsize tokens maxtokens tokensperfill refill refillrate refilltokens replenishrate",
		`the rate and the burst stand in the limit, as in "limit: 10/second burst 20"`},
	{inRule, "by keyby limitby groupby identifier identifiers source sourcecriterion clientid ip keygenerator keyresolver keyextractor descriptor descriptors dimensions consumer scope zone",
		`write what clients are told apart by, as in "key: [client_ip]"`},
	{inRule, "path paths url urls uri uris route routes endpoint endpoints pathprefix prefix pattern patterns location filter resource resources",
		`write "match: /path", with a method before the path if there is one`},
	{inRule, "method methods verb verbs httpmethods", `the method stands before the path, as in "match: POST /path"`},
	{inRule, "domain domains servername vhost virtualhost", `write "hosts: [example.com]"`},
	{inRule, "weight weights requestedtokens hitsaddend consume", `write "cost: 1", or another number`},
	{inRule, "inflight inflightreq maxinflight concurrency concurrent maxconcurrency maxconcurrent maxconcurrentcalls concurrentrequests maxconcurrentrequests connections maxconnections maxconns limitconn simultaneous parallel maxparallel semaphore bulkhead",
		`write "in_flight: 10"`},
	{inRule, "algo strategy type limiter limitertype", `write "algorithm: token_bucket", or another one`},
	{inRule, "policy store redis storage backend", `leave it out: where counts are kept is --store of "sluice serve"`},
	{inRule, "faulttolerant failopen failclosed failclose failuremode failuremodedeny onfailure fallback", `write "on_error: deny", or local`},
	{inRule, "sync syncrate syncinterval accuracy exactness exact lease leases localcache", `write "consistency: leased", or strict, or synced`},
	{inRule, "priority order sequence", "leave it out: every rule that matches applies, in no order"},
	{inRule, "status statuscode httpstatus httpresponsecode errorcode errormessage message response rejectedcode deniedstatus action handler",
		"leave it out: who is above a limit is refused with 429, or as \"answers\" says at the top of the document"},
	{inRule, "headersenabled standardheaders legacyheaders hideclientheaders enablexratelimitheaders", "leave it out: clients are always told their limits"},
	{inRule, "enabled active", "leave it out: every rule that is written is in force"},
	{inRule, "nodelay delay", `leave it out: requests wait only with "algorithm: leaky_bucket"`},
	{inRule, "ban bans bantime banfor banduration blockduration blockfor blocktime lockout lockouttime lockoutduration lockfor mitigationtimeout jail",
		`write "penalty: 10m", or another length`},
	{inRule, "skipsuccessfulrequests", `write "count: {status: [4xx, 5xx]}"`},
	{inRule, "skipfailedrequests", `write "count: {status: [1xx, 2xx, 3xx]}"`},
	{inRule, "client", `write whom the rule is for as "clients: [10.0.0.0/8]", and what clients are told apart by as "key: [client_ip]"`},
	{inRule, "clientips ips addresses networks cidr cidrs sourceips sourceranges remoteaddrs allow deny allowlist denylist whitelist blacklist allowedips blockedips ipblocks",
		`write whom the rule is for as "clients: [10.0.0.0/8]", or "not_clients" for all others`},
	{inRule, "id title rule", `write "name: "`},
	{inRule, "comment note reason desc", `write "description: "`},

	{inDocument, "limits ratelimit ratelimits ratelimiting policies rule routes plugins services middlewares http descriptors spring resilience4j bucket4j filters",
		`limits are rules: write "rules:", and below it "- name: …" and "limit: 100/minute"`},
	{inDocument, "trustproxy trustedips realip realipheader setrealipfrom ipstrategy xffnumtrustedhops depth", `write the addresses of your proxies, as in "trusted_proxies: [192.0.2.7]"`},
	{inDocument, "upstream proxy admin listen port address store redis backend storage server loglevel logging log memory timeout", `it is no part of a policy, but a setting: see "sluice serve --help"`},
	{inDocument, "answer responses response errors errorpages errorpage errordocument pages messages statuscode status",
		`write "answers: {429: {type: text/html, file: slow-down.html}}", or "body: …" in place of the file`},
	{inDocument, "plans plan tier", `write "tiers: {from: header:X-Plan}"`},

	{"count", "header responseheader uncount", `write "unless_header: X-RateLimit-Uncount"`},
	{"count", "statuses code codes", `write "status: [401, 403]"`},
	{"penalty", "duration for time length base initial", `write "first: 1m"`},
	{"penalty", "max maximum maxduration cap longest", `write "most: 1h"`},
	{"penalty", "multiplier exponent backoff growth", `write "factor: 2"`},
	{"penalty", "reset resetafter forgetafter window findtime", `write "forget: 1d"`},
	{inOverride, "clientip apikey ip user client value subject keys", `values stand below key, as in "key: {client_ip: 192.0.2.1}"`},
	{inOverride, "expires expiresat expiry end ends to validuntil", `write "until: 2027-01-31"`},
	{inOverride, "name rulename", `write "rule: ", and the name of the rule`},
	{inOverride, "action mode ban banned blocked deny denied", `write "block: true"`},
	{inOverride, "createdby author operator who actor", `write "by: ", and who it was`},
	{inOverride, "tier plan", `an override has a limit of its own; who is in which tier stands under "subjects", at the top of the document`},
	{inSubject, "id name value user key apikey clientip", `write "subject: ", and the value of the part that "tiers: {subject: …}" names`},
	{inSubject, "plan tiers group level", `write "tier: "`},
	{inSubject, "expires expiresat expiry end ends to validuntil", `write "until: 2027-01-31"`},
	{inSubject, "createdby author operator who actor", `write "by: ", and who it was`},
	{inSubject, "limit limits rule", `limits of a single subject stand under "overrides", at the top of the document`},
	{inOverride, "rate max count requests burst", `write it all in one text, as in "limit: 100/minute burst 20"`},
})

// mends is what to write for any of keys.
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

// homes has the places of keys that may be misplaced.
var homes = map[string]string{
	"trusted_proxies": inDocument, "ipv6_prefix": inDocument, "ignore_case": inDocument, "body_limit": inDocument, "fields": inDocument, "cors": inDocument, "answers": inDocument, "lists": inDocument, "overrides": inDocument, "subjects": inDocument,
	"rules": inDocument, "version": inDocument,
	"name": inRule, "match": inRule, "hosts": inRule, "headers": inRule, "attributes": inRule, "body": inRule, "clients": inRule, "not_clients": inRule, "block": inRule, "key": inRule, "limit": inRule, "limits": inRule, "in_flight": inRule, "class": inRule, "distinct": inRule, "algorithm": inRule,
	"cost": inRule, "count": inRule, "missing": inRule, "together": inRule, "on_error": inRule, "consistency": inRule, "enforce": inRule, "show_key": inRule, "description": inRule,
	"until": inOverride, "reason": inOverride,
}

// meant returns what to write in place of an unknown key of a mapping.
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
		return "it belongs in a rule: write it below the rule's \"- name: …\", in the column of \"name\""
	case inOverride:
		return "it belongs in an override"
	}
	if near := spelling.Nearest(key, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if what == "tiers" {
		return "the limits of tiers stand in the rules; here are only \"from\", \"subject\" and \"default\""
	}
	return "its keys are " + strings.Replace(spelling.OneOf(names), " or ", " and ", 1)
}

// burstHint returns what to write for a burst beside a limit, or "" if that is not clear.
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

// lists are lists as they should look.
var lists = map[string]string{
	"match": `"match: [GET /path]"`, "key": `"key: [client_ip]"`, "hosts": `"hosts: [example.com]"`,
	"limits":       `"limits: [10/second, 1000/hour]"`,
	"count.status": `"status: [401, 403]"`,
	"rules":        "lines that begin with \"- name: …\"",
	"bodies":       "lines that begin with \"- type: …\"",
	"overrides":    "lines that begin with \"- rule: …\"", "subjects": "lines that begin with \"- subject: …\"", "trusted_proxies": `"trusted_proxies: [192.0.2.7]"`,
	"clients": `"clients: [10.0.0.0/8]"`, "not_clients": `"not_clients: [10.0.0.0/8]"`,
}

func listHint(n *yaml.Node, what string) string {
	if what == "key" && pairOfTexts(n) {
		return fmt.Sprintf("write \"key: [%.30s:%.30s]\"", n.Content[0].Value, n.Content[1].Value)
	}
	if example := lists[what]; example != "" {
		return "write " + example
	}
	return "write \"[one, two]\", or lines that begin with \"- \""
}

// mappings are mappings as they should look.
var mappings = map[string]string{
	"headers": `"headers: {X-Plan: pro}"`, "attributes": `"attributes: {plan: trial}"`, "body": `"body: {method: tools/call}"`, "tiers": `"tiers: {pro: 1000/minute}" in a rule, and "tiers: {from: header:X-Plan}" at the top`,
	inRule: `"- name: …", and the other keys in the column of "name"`, "count": `"count: {status: [401, 403]}" for what counts, and how many in "limit: 100/minute"`,
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

// textHint returns how to turn a node into a text.
func textHint(n *yaml.Node, what string) string {
	ofKey := what == "an entry of key" || what == "an entry of together" || what == "tiers.from" || what == "tiers.subject"
	if ofKey && pairOfTexts(n) {
		return fmt.Sprintf("write \"%.30s:%.30s\", without a space behind the colon", n.Content[0].Value, n.Content[1].Value)
	}
	list := n.Kind == yaml.SequenceNode
	switch {
	case what == "limit" && list:
		return "write \"limits\" in place of \"limit\""
	case what == "limit", what == "share.of", what == "an entry of limits", strings.HasPrefix(what, "tier "), strings.HasPrefix(what, "an entry of tier "):
		return "write it in one line, as in \"100/minute burst 20\""
	case list:
		return "write one text, and no list"
	}
	return "put text that holds { } [ ] or \": \" into quotes"
}

// pairOfTexts reports whether n is what the YAML of header:NAME is with a space behind the colon.
func pairOfTexts(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Kind == yaml.ScalarNode && n.Content[1].Kind == yaml.ScalarNode
}
