package policy

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/internal/spelling"
)

// Document is a policy as it is written: limits, patterns and key parts are text. The zero value of a field leaves
// the setting out. [Compile] reports the errors in a document. Package policyfile reads and writes documents as
// YAML and JSON, with the names in the struct tags.
type Document struct {
	// TrustedProxies are addresses and networks of proxies. Their forwarded headers are trusted. The default is empty.
	TrustedProxies []string `json:"trusted_proxies,omitempty"`
	// IPv6Prefix is how many leading bits of an IPv6 address identify a client: 64 if zero.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`
	// IgnoreCase is for an upstream that treats /LOGIN as /login.
	IgnoreCase bool `json:"ignore_case,omitempty"`
	// Shadow is the time (see [ParseUntil]) until which the whole policy is a shadow, or "always". A shadow counts
	// and reports, but denies nothing. After that time, or if Shadow is empty, the policy is enforced.
	Shadow string `json:"shadow,omitempty"`
	// Ambiguous is the default for rules that do not set Ambiguous: see [Rule].
	Ambiguous string `json:"ambiguous,omitempty"`
	// Fields selects the header fields that report the state of limits to clients: "ietf" for RateLimit and
	// RateLimit-Policy, "x-ratelimit" for X-RateLimit-Limit, -Remaining and -Reset, or "both", the default. See
	// [Fields].
	Fields string `json:"fields,omitempty"`
	CORS   CORS   `json:"cors,omitzero"`
	// Answers replace the default answers to denied requests. They are keyed by status: "400", "403", "429" or "503".
	Answers map[string]Answer `json:"answers,omitempty"`
	// BodyLimit is the size of the largest body that is read for rules that depend on the body, in bytes or with a
	// unit as in 512KiB or 16MiB: 8MiB if empty. A request with a larger body is refused with status 413. If the
	// bodies of other requests take up the memory for bodies, a request is refused with 503.
	BodyLimit string `json:"body_limit,omitempty"`
	// Lists are named lists of networks for Clients and NotClients of a [Rule].
	Lists map[string]List `json:"lists,omitempty"`
	// Prices are the prices of models, for rules that count money: see [Cost].
	Prices    Prices        `json:"prices,omitzero"`
	Tiers     Tiers         `json:"tiers,omitzero"`
	Rules     []Rule        `json:"rules"`
	Overrides []Override    `json:"overrides,omitempty"`
	Subjects  []TierSubject `json:"subjects,omitempty"` // subjects with a tier of their own
}

// CORS lets pages of other origins read denials, and the limit fields of all responses. Without origins it has no
// effect.
type CORS struct {
	// Origins are the origins of the pages: https://app.example.com, "https://*.example.com" for all origins below
	// it, or "*" for all.
	Origins []string `json:"origins,omitempty"`
	// Credentials lets these pages send cookies. It cannot be combined with the origin "*".
	Credentials bool `json:"credentials,omitempty"`
	// Preflights is the treatment of the OPTIONS requests that browsers send before the requests of such a page.
	// With "exempt" they are not counted; with "count", the default, they are requests like any other. A preflight
	// is exempted only if it has no body and no credentials, and if no rule for its path counts by a query or a body.
	// Any client can send any number of exempt preflights, so choose "exempt" only if OPTIONS requests have no effect
	// on the upstream except a response.
	Preflights string `json:"preflights,omitempty"`
}

// Tiers sets how the tier of a request is found: from the subjects of the document, or else from the part From. If
// neither names a tier, Default is the tier. A client that can set the key part named in From chooses its own tier. A
// client that can set the key part named in Subject can get the tier of another subject. So set or verify both key
// parts in front of Sluice.
type Tiers struct {
	From    string `json:"from,omitempty"`    // the key part with the tier: see [Rule]
	Subject string `json:"subject,omitempty"` // the key part to look up in the subjects
	Default string `json:"default,omitempty"` // the tier of all other requests
}

// TierSubject puts a subject into a tier. If a rule has no limits for the tier, its own limits apply.
type TierSubject struct {
	// Subject is a value of the key part that the field Subject of [Tiers] names. It is normalized in the same way
	// as values of requests. For client_ip it may be a network; addresses take precedence over networks, and smaller
	// networks over larger ones.
	Subject string `json:"subject,omitempty"`
	Tier    string `json:"tier,omitempty"`
	Until   string `json:"until,omitempty"`  // see [Override]; afterwards, the entry has no effect
	Reason  string `json:"reason,omitempty"` // for people
	By      string `json:"by,omitempty"`     // the author, for people
	Source  string `json:"-"`                // see [Override]
}

// Rule is a limit, an exemption or a block. It applies to requests that meet all of Match, Hosts, Headers,
// Attributes, Body, Clients and NotClients. A rule without any of these settings applies to every request.
type Rule struct {
	// Name has up to 64 characters: a-z, 0-9, ".", "_" and "-". Counts are stored under the name.
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"` // for people
	// Match are patterns in the syntax of [net/http.ServeMux]; one of them has to match. A slash at the end of a
	// path makes no difference, and a path that servers may read in several ways is matched in all of these ways.
	Match []string `json:"match,omitempty"`
	// Hosts are names such as example.com, or "*.example.com" for all hosts below it.
	Hosts []string `json:"hosts,omitempty"`
	// Headers maps header fields to the values that a request must have; "*" stands for any value.
	Headers map[string]string `json:"headers,omitempty"`
	// Attributes maps attributes to the values that the program must set for a request (see [Request]); "*" stands
	// for any value. In integrations without attributes, such as the gateway, the rule never applies.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Body maps fields of the body to the values that they must have, as in {method: tools/call, "params[name]":
	// search}. Fields have the same names as in the key part body:FIELD, and their values are compared in the same
	// way. A "*" at the end of a value matches any ending, and "*" alone matches any value. If servers may read a
	// field in several ways, a limit follows Ambiguous, a block applies, and an exemption does not.
	Body map[string]string `json:"body,omitempty"`
	// Clients are addresses, networks such as "10.0.0.0/8", and names of lists. The client must be in at least one of
	// them, and in none of NotClients. Its address is found by means of TrustedProxies, and all bits of the address
	// are compared, whatever IPv6Prefix is.
	Clients    []string `json:"clients,omitempty"`
	NotClients []string `json:"not_clients,omitempty"`
	// Block denies requests, and no rule counts them: see [Decision]. It applies if any reading of the path matches.
	// A rule with Block has neither key nor limit. Requests that another rule exempts pass. With Shadow, Block denies
	// nothing and is only reported.
	Block bool `json:"block,omitempty"`
	// Exempt lets requests pass, and no rule counts them. It applies only if every reading of the path matches. A
	// rule with Exempt has neither key nor limit.
	Exempt bool `json:"exempt,omitempty"`
	// Key lists the parts by which requests are counted. It has up to 8 of client_ip, header:NAME, api_key,
	// cookie:NAME, query:NAME, body:FIELD, jwt:CLAIM, attr:NAME, tls_fingerprint, route, path, host, method and
	// const:TEXT. Values of a query and a body are compared like names of accounts, so case and accents make no
	// difference: see "Names" in the documentation of the package. Without a key all requests share one count.
	// Sluice does not verify API keys and tokens: verify them in front of Sluice or behind it. Attributes come from
	// the program: see [Request].
	Key []string `json:"key,omitempty"`
	// Together are parts of the key that become the hash tag in a Redis Cluster. A cluster charges rules with the
	// same tag in one step.
	Together []string `json:"together,omitempty"`
	// Missing is what happens to requests that lack a part of the key. With "share", the default, they are counted
	// as if all of them had the same value for it. With "skip" the rule does not apply to them. With "refuse" they
	// are answered with 400; other rules that can count such a request still charge it. A part that is unreadable,
	// or occurs twice with different values, is not missing but ambiguous.
	Missing string `json:"missing,omitempty"`
	// Ambiguous is what happens to a request with a path, a key part, or a field of Body that servers may read in
	// several ways. With "refuse" it is refused as malformed; with "charge" the rule applies if any reading of the
	// path matches, and an ambiguous key part counts as one value, the same for all requests. The default is
	// "refuse" for a rule with Body or a key with body:FIELD, and otherwise "charge". A shadow denies nothing.
	Ambiguous string `json:"ambiguous,omitempty"`
	// Limit is a text for [sluice.ParseLimit], such as "100/minute burst 20" or "10000/month", or "50 USD/day" if
	// the cost is in USD. Limits in USD are counted in micro-USD. If that would not be exact, they are counted in
	// units of 10, 100, 1000 or 10,000 micro-USD, and each cost is rounded up to such a unit.
	Limit string `json:"limit,omitempty"`
	// Limits, in place of Limit, are several limits, such as 10/second and 1000/hour. They are charged together, all
	// or none. No two of them can have the same rate or the same window.
	Limits []string `json:"limits,omitempty"`
	// InFlight, in place of a limit, is how many requests of a key may be under way at the same time: from 1 to
	// 65,536. A request holds its permit until it ends, if the integration knows when that is (see [Request] Ends).
	// Otherwise the rule denies requests while all permits are taken, and requests that pass take no permit. Each
	// request takes one permit, whatever it costs. The permits of an instance that dies stay taken for at most
	// [kernel.PermitLasts]. With "auto" (an automatic limit), the engine finds the number by the latency of the
	// upstream: see [Load].
	InFlight InFlight `json:"in_flight,omitzero"`
	// Class is how important the requests of the rule are to an automatic limit of requests under way: "critical",
	// "normal" or "sheddable". When the upstream is overloaded, sheddable requests are denied first, and critical
	// ones last. If several rules match, the lowest class applies, so that no client promotes itself. A request
	// without a class is normal. A rule may have a class and no limit; then it counts nothing.
	Class string `json:"class,omitempty"`
	// Distinct, in place of a limit, limits how many different values one key can use, for example how many accounts
	// one address tries.
	Distinct Distinct `json:"distinct,omitzero"`
	// Algorithm is one of [sluice.Algorithms]. The default is token_bucket, or fixed_window for limits by the
	// month.
	Algorithm string `json:"algorithm,omitempty"`
	// Tiers maps the names of tiers to limits that replace all limits of the rule. For a rule with InFlight these
	// are numbers, as text. A tier that is not listed has the rule's limits.
	Tiers map[string]Limits `json:"tiers,omitempty"`
	// Share, in place of Limit, is a limit divided among tenants.
	Share Share `json:"share,omitzero"`
	Cost  Cost  `json:"cost,omitzero"`
	// Count lets the outcome of a request decide whether it counts. Without it, every request does.
	Count Count `json:"count,omitzero"`
	// Penalty locks out a key that exceeds a limit of the rule: see [Penalty].
	Penalty Penalty `json:"penalty,omitzero"`
	// OnError is what happens while the store does not answer: "allow", "deny", or "local". With "local", this process
	// counts by itself, up to its fraction of the limit, if the store has a fallback (see package failover). The
	// default is "allow". It is "deny" if Match or Hosts contain a word for a login, a password or a payment, as in
	// "POST /auth/sign-in" or "/v1/payments", and the rule is not a shadow, because no client should guess passwords or
	// pay without a limit.
	OnError string `json:"on_error,omitempty"`
	// Consistency is how exactly the rule is counted across the instances that share a store. "strict", the
	// default, asks the store for each request. "leased" reserves units in advance and spends them without asking
	// the store; it never exceeds the limit. "synced" counts in each instance and reports to the others ten times a
	// second; it can exceed the limit by the units that are not yet reported. Packages lease and synced document the
	// bounds. "leased" and "synced" require a token_bucket, gcra, fixed_window or sliding_window_counter without
	// months, penalty, count or a cost from the response. Over a store that is not shared, all three are the same.
	Consistency string `json:"consistency,omitempty"`
	// Answer is the form of denials. It is used for every denial of a request to which this rule applies, even if
	// another rule denies the request. "llm" is the form of the APIs of language models, which their SDKs obey:
	// Anthropic's for /v1/messages and the paths below it, otherwise OpenAI's. "mcp" is an error of JSON-RPC.
	// Without Answer, denials are problems of RFC 9457, or the Answers of the document. If several rules with an
	// Answer apply, the first one decides.
	Answer string `json:"answer,omitempty"`
	// Over is what happens to a request that does not fit: "refuse", the default, or "mark". A marked request passes,
	// and the upstream receives the rule's name in the field [OverField]; see [Decision.Over]. Clients are not
	// informed of such a limit.
	Over string `json:"over,omitempty"`
	// Shadow makes the rule count and report, but never deny.
	Shadow bool `json:"shadow,omitempty"`
	// Enforce is the rollout percentage, such as "10%", with up to two decimals. The rule denies requests of this
	// percentage of its subjects; for all others it is a shadow. A hash of the rule's name and of the key selects the
	// subjects, so that a subject is always in or always out, on every instance, and a subject that is in at 10 % is
	// also in at 20 %. A client that can choose its key can choose to be out. Empty means all subjects. A rule with
	// Enforce never refuses a request as malformed.
	Enforce string `json:"enforce,omitempty"`
	// ShowKey is the form in which people see the rule's keys. With "whole" they see all of a key. With "short" they
	// see the first four characters and the last two of each value, or fewer if the value is short (see [Shorten]).
	// Routes, hosts, methods, constants and TLS fingerprints stay whole. An address is cut to its network. But if
	// another value of the key is shortened, the address stays whole, so that people can still tell subjects apart.
	// With "hash" they see 12 digits for each subject. The digits are a pseudonym, the same on every instance and after
	// every start. They are not encryption: a value that can be guessed can be found by trying. The default is "short"
	// for a key with a [SecretPart] (api_key, cookie:NAME, jwt:CLAIM or header:Authorization), and otherwise "whole".
	ShowKey string `json:"show_key,omitempty"`
	// Source is the origin of the rule, such as "file" or "database". The code that assembles the document sets it; a
	// policy file cannot set it. Traces and results contain it.
	Source string `json:"-"`
}

// Override gives a subject of a rule another limit, or blocks or exempts it: it has one of Limit, Limits, InFlight,
// Block and Exempt. A subject without an override has the limits of its tier, or else the limits of the rule; a
// [Result] contains the source of the limit. Limits that count alike, such as buckets of the same rate or windows of
// the same length, share their counts; a limit of another kind starts from zero. So does a sliding_window_log if its
// number of units changes from at most 1,024 to more, or back.
type Override struct {
	Rule string `json:"rule,omitempty"`
	// Key maps parts of the rule's key to values. A part that is left out, or that has the value "*", stands for every
	// value. A client_ip that is a network, such as 203.0.113.0/24, stands for every address in it, and each address
	// has a count of its own. If several overrides match, the one that names the most parts applies; if several name
	// equally many, the one whose parts come first in the rule's key; and if they name the same parts, the one with the
	// smallest network.
	Key map[string]string `json:"key,omitempty"`
	// Limit, or Limits if there are several, replaces all limits of the rule.
	Limit  string   `json:"limit,omitempty"`
	Limits []string `json:"limits,omitempty"`
	// InFlight, for a rule with InFlight, is how many requests of the subject may be under way. If the number is
	// lowered, requests that are already under way keep their permits.
	InFlight int64 `json:"in_flight,omitempty"`
	// Block denies the requests that the rule would count for the subject, and charges nothing for them, whether or
	// not the store answers: see [Decision]. If the rule is a shadow, Block denies nothing and is only reported. A
	// rule that exempts the request takes precedence over Block.
	Block bool `json:"block,omitempty"`
	// Exempt makes the rule count nothing for the subject; other rules still count. A rule that blocks the request
	// takes precedence over Exempt, and so does [Subject.Block].
	Exempt bool `json:"exempt,omitempty"`
	// Until is when the override expires, as in 2027-01-31T12:00:00Z, or 2027-01-31 for the end of that day in UTC.
	// If Until is empty, it never expires. See [ParseUntil].
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"` // for people
	By     string `json:"by,omitempty"`     // the author, for people
	// Source is the origin of the override, as in a [Rule].
	Source string `json:"-"`
}

// InFlight is how many requests may be under way at the same time: Most, or, with Auto, as many as the upstream can
// serve without a queue, between Least and Most.
type InFlight struct {
	// Auto makes the engine find the number by the latency of the upstream: see [Load].
	Auto bool `json:"auto,omitempty"`
	// Least is the number below which an automatic limit never falls, 4 by default.
	Least int64 `json:"least,omitempty"`
	// Most is the number, from 1 to 65,536. With Auto it is the number that an automatic limit never exceeds, 2000 by
	// default.
	Most int64 `json:"most,omitempty"`
}

// autoInFlight is an automatic number without bounds, as text.
const autoInFlight = "auto"

// String returns the number, or "auto" with its bounds. It returns "" for no limit.
func (f InFlight) String() string {
	text := ""
	switch {
	case !f.Auto && f.Most == 0:
	case !f.Auto:
		text = strconv.FormatInt(f.Most, 10)
	default:
		text = autoInFlight
		if f.Least > 0 {
			text += " from " + strconv.FormatInt(f.Least, 10)
		}
		if f.Most > 0 {
			text += " to " + strconv.FormatInt(f.Most, 10)
		}
	}
	return text
}

// inFlightObject is an InFlight without its methods.
type inFlightObject InFlight

// MarshalJSON returns a number, "auto", or an object.
func (f InFlight) MarshalJSON() ([]byte, error) {
	switch {
	case f == InFlight{Auto: true}:
		return json.Marshal(autoInFlight)
	case !f.Auto && f.Least == 0:
		return json.Marshal(f.Most)
	}
	return json.Marshal(inFlightObject(f))
}

func (f *InFlight) UnmarshalJSON(data []byte) error {
	var text string
	var o inFlightObject
	switch {
	case json.Unmarshal(data, &text) == nil && text == autoInFlight:
		o.Auto = true
	case json.Unmarshal(data, &o.Most) == nil:
	case json.Unmarshal(data, &o) != nil:
		return errors.New(`policy: in_flight is a whole number, "auto", or {"auto": true, "least": 4, "most": 2000}`)
	}
	*f = InFlight(o)
	return nil
}

// List is a list of addresses and networks, such as "2001:db8::/32". In JSON and YAML it is an array, or an object
// with the name of a file.
type List struct {
	Networks []string
	// File is the name of a file with one network on each line. The name is relative to the file of the policy.
	// Package policyfile reads the file when it compiles a policy, so a document contains only the name. Programs set
	// Networks instead, which may be empty.
	File string
}

// listFile is a List in a file, as JSON.
type listFile struct {
	File string `json:"file"`
}

func (l List) MarshalJSON() ([]byte, error) {
	switch {
	case l.File != "":
		return json.Marshal(listFile{l.File})
	case l.Networks == nil:
		return []byte("[]"), nil
	}
	return json.Marshal(l.Networks)
}

func (l *List) UnmarshalJSON(data []byte) error {
	var f listFile
	var networks []string
	if json.Unmarshal(data, &networks) != nil && json.Unmarshal(data, &f) != nil {
		return errors.New(`policy: a list is an array of networks, or {"file": "networks.txt"}`)
	}
	if len(data) > 0 && data[0] == '{' && f.File == "" {
		return errors.New("policy: the file of a list has no name")
	}
	if len(networks) == 0 {
		networks = nil
	}
	*l = List{networks, f.File}
	return nil
}

const untilHint = "write it as in 2027-01-31T12:00:00Z, or 2027-01-31 for the end of that day in UTC"

// ParseUntil reads the end of an override, or of a subject's time in a tier: a time of RFC 3339, or a date, which
// stands for the end of that day in UTC. The override no longer applies at the returned time itself.
func ParseUntil(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}, errors.New("policy: until is " + spelling.Quote(text) + ", which is not a time: " + untilHint)
	}
	return t.AddDate(0, 0, 1), nil
}

// Terms returns the end, the reason and the author of the override in words. The text starts with a space or a
// comma, because it follows other text. It is empty if end, reason and author are unknown.
func (o *Override) Terms() string { return terms(o.Until, o.Reason, o.By) }

// Terms returns the end, the reason and the author of the entry, as [Override.Terms] does.
func (t *TierSubject) Terms() string { return terms(t.Until, t.Reason, t.By) }

func terms(until, reason, by string) (text string) {
	if until != "" {
		text = " until " + until
		if _, err := time.Parse(time.DateOnly, until); err == nil {
			text = " until the end of " + until + " in UTC"
		}
	}
	if reason != "" {
		text += ", reason " + spelling.Quote(reason)
	}
	if by != "" {
		text += ", by " + spelling.Quote(by)
	}
	return text
}
