// Package policy decides about requests by rules that are written in a file.
//
// A [Policy] is a compiled document, an [Engine] applies it over a store. Every rule that
// matches a request applies. They charge together, all or none, so that a request that one
// rule refuses has not used up the others.
//
//	p, err := policy.Load("api.yaml")
//	engine := policy.NewEngine(memory.New(), p)
//	decision := engine.Decide(ctx, &policy.Request{Method: "GET", Path: "/api/users", Client: addr})
//
// Package httplimit puts an engine before an [net/http.Handler].
//
// # The document
//
//	version: 1
//	trusted_proxies: [10.0.0.0/8]
//	tiers: {from: header:X-Plan, default: free}
//	rules:
//	  - name: health
//	    match: GET /health
//	    exempt: true
//	  - name: per-key
//	    key: [api_key]
//	    missing: skip
//	    limit: 100/minute burst 20
//	    tiers: {pro: 1000/minute}
//	  - name: login
//	    match: [POST /auth/login, POST /auth/register]
//	    key: [client_ip, body:username]
//	    limit: 5/minute
//	    algorithm: sliding_window_log
//	    on_error: deny
//	overrides:
//	  - {rule: per-key, key: {api_key: k-42}, limit: 5000/minute, until: 2027-01-31, reason: a launch}
//
// Anything that is not known, written twice or cannot be meant is an error with its line.
// Anchors and aliases are not supported.
//
//   - trusted_proxies: addresses and networks whose forwarded headers are believed. None by
//     default.
//   - ipv6_prefix: how many bits of an IPv6 address tell clients apart. 64 by default.
//   - cors: {origins: [https://app.example.com, "https://*.example.com"], credentials: true}
//     lets pages of these origins, or with "*" of all, read refusals, and in all answers the
//     fields that tell of limits. With "preflights: exempt" nothing counts the OPTIONS that
//     browsers send before the request of such a page.
//   - ignore_case: true if what stands behind takes /LOGIN for /login.
//   - tiers: from is the key part that names the tier of a request, default the tier of
//     those that lack it. Have something before Sluice set or verify it.
//
// # Rules
//
// A rule applies where all of its conditions are met; without any, to every request.
//
//   - name: up to 64 of a-z, 0-9, ".", "_" and "-". What has been counted belongs to it.
//   - description: for people.
//   - match: patterns in the syntax of [net/http.ServeMux], one of which has to match. A slash
//     at the end of a path makes no difference, and a path that servers may read in several
//     ways is matched in all of them.
//   - hosts: names such as example.com, or "*.example.com" for all below.
//   - headers: names with a value, or "*" for any.
//   - exempt: true lets a request pass, and no rule counts it. It does so only if the rule
//     matches the path in every way to read it, and has neither key nor limit.
//   - key: what requests are told apart by, up to 8 of client_ip, header:NAME, api_key,
//     cookie:NAME, query:NAME, body:FIELD, jwt:CLAIM, route, host, method and const:TEXT.
//     Without a key all requests share one count. Nobody verifies an API key or a token
//     here: they are names, and have to be verified before or behind.
//   - missing: what happens to a request that lacks a part of the key. By default, "share",
//     all those that lack it share one count. With "skip" the rule does not apply to them,
//     with "refuse" they are refused as malformed. A part that is there but unreadable, or
//     twice with different values, does not count as missing for "skip": it is shared.
//   - limit: as [sluice.ParseLimit] reads it, and algorithm: token_bucket by default, or
//     another of [sluice.Algorithms].
//   - tiers: other limits by the name of the tier. A tier that is not listed has the rule's.
//   - cost: what a request takes, 1 by default, or {header: X-Cost, max: 100, default: 1}.
//     Of several values the largest counts. Above max it is max, 0 is 1, and what is not a
//     whole number is the default.
//   - on_error: what holds while the store does not answer: "allow", "deny", or "local" for
//     a local share of the limit, where the store has a stand-in that keeps one. The default
//     is "allow", but "deny" for a rule whose match or hosts name a login, a password or a
//     payment, as in "POST /auth/sign-in" or "/v1/payments": there, nobody should be able to
//     guess or to pay without a limit.
//   - shadow: true counts and reports, and never refuses.
//   - together: parts of the key that become the hash tag of a Redis Cluster. Rules with the
//     same tag are charged in one step there.
//
// # Overrides
//
// An override gives a subject of a rule another limit, until a time if one is given. A
// part that is left out or "*" stands for every value; the override that names the most
// parts counts. Where there is none, the tier does, and then the rule's own limit:
// [Result] says which. Limits that count alike, buckets of one rate and windows of one
// length, share what was counted; any other begins anew.
package policy
