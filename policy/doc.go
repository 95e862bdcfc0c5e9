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
//     browsers send before the request of such a page. It has no body and no credentials,
//     and is counted on paths where a rule counts by a query or a body, whatever the method
//     of that rule. Anybody can send one, as often as they like, to all other paths: use it
//     where what stands behind does no more for OPTIONS than to answer it.
//   - ignore_case: true if what stands behind takes /LOGIN for /login.
//   - ambiguous: what the rules do that do not say it themselves: see below.
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
//     Values of a query and a body are compared as names: see below.
//     Without a key all requests share one count. Nobody verifies an API key or a token
//     here: they are names, and have to be verified before or behind.
//   - missing: what happens to a request that lacks a part of the key. By default, "share",
//     all those that lack it share one count. With "skip" the rule does not apply to them,
//     with "refuse" they are refused as malformed. A part that is there but unreadable, or
//     twice with different values, is not missing but ambiguous.
//   - ambiguous: what happens to a request whose path, or whose part of the key, servers may
//     read in several ways: with "refuse" it is refused as malformed, with "charge" every
//     reading of the path is charged, and all doubtful keys share one count. The default is
//     "refuse" for a key with query:NAME or body:FIELD, and else "charge". A shadow refuses
//     nothing.
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
// # What is read is what is meant
//
// The server behind a limit reads the same request once more, and wherever it reads
// something else there would be a way past. So a request is read in all the ways in which
// servers are known to read it. Where these differ, ambiguous decides, and never in favor of
// who has sent it.
//
// Paths are read with "%XX" unescaped once, twice or not at all, before or after they are split;
// with "." and ".." resolved, at any of these stages, or left alone; with empty segments
// dropped; with "\" for "/"; with ";parameters" cut; ended at an escaped "?" or "#"; with what
// follows "//" taken for a host; and with a suffix such as ".json" for a format, where a rule
// limits. A request with control characters, "%uXXXX" or a character in too many bytes in
// its path, or with so many readings that they would be work, is refused. Not covered are
// servers that rewrite paths by rules of their own, that take a method from a field or a
// parameter (limit POST as well), or that tell less than they are told, as file systems
// do of the end of "login. ".
//
// Fields of a body are looked for in a form, in the object of JSON and the objects in it, in
// multipart/form-data as clients write it, and in the query, whatever the type of the body
// says; JSON must be what RFC 8259 says to the letter. A name is compared without case. It is
// ambiguous if some framework may take it for the field: "user[]", "[user]", "model.user",
// "!user". So is a field that is there twice with different values, in another encoding than
// UTF-8, escaped twice, or a number that not all servers hold; and a body that is compressed,
// larger than 64 KiB, has more than 1000 fields, or is none of the above. Not covered are
// formats that are read from bodies that say to be something else, if they do not look like
// JSON, forms or multipart, such as XML that is sent as a form without a name in it.
//
// No request costs much more to read than it costs to send: what does counts as ambiguous.
// Rules that need no body are asked first, so that who is over their limits does not have one
// read.
//
// # Names
//
// A value of a query or a body may be the name of an account, and databases take many
// spellings for one account: "Álice" for "alice". Here they share one key. Names are one if
// any of these takes them for one:
//
//   - MySQL and MariaDB: utf8mb4_general_ci, utf8mb4_unicode_ci, utf8mb4_unicode_520_ci and
//     utf8mb4_uca1400_ai_ci, for every character, as MariaDB 10.11 answers; for
//     utf8mb4_0900_ai_ci the table that it has in common with others, Unicode's default
//     one. The same collations of utf8mb3, with or without PAD SPACE, and all that are more
//     exact, such as those that see accents or case.
//   - latin1_swedish_ci, for names of ASCII without "[", "\" and "]".
//   - PostgreSQL: lower, citext, unaccent, and the root collation of ICU at any strength.
//   - Frameworks that drop case, marks or spaces around a name or make rows of spaces one,
//     or bring names to a form of Unicode (NFC, NFD, NFKC, NFKD).
//
// So case, width, marks of every script, strokes and ligatures make no difference, nor do
// spaces around a name, or how many there are in it. Hiragana is Katakana, every decimal
// digit is its ASCII one, and what does not show and characters beyond the basic plane, such
// as emoji, are nothing. As collations differ, some names are one that no single database
// takes for one: a row of "s" is one "s", and "y" is "u", for the sake of ß and ü.
//
// Garbled, and so one key for all, are names with characters that servers read
// differently: bytes that are not UTF-8, control characters, private and unassigned ones
// (as of Unicode 15), letters as combining marks, mathematical letters; names of nothing but
// characters that are dropped; and those above 1 KB that are not ASCII.
//
// Not covered are collations of one language that take for one what is two here, as "ä" and
// "ae" in German phone books, or "å" and "aa" in Danish; SQL Server's, which have not been
// asked; collations that leave out punctuation; and what a server makes of names by rules of
// its own, such as cutting them off at some length or dropping dots from addresses of mail.
// There, a name has as many keys as it has spellings: keep a rule by client_ip beside it.
//
// # Overrides
//
// An override gives a subject of a rule another limit, until a time if one is given. A
// part that is left out or "*" stands for every value; the override that names the most
// parts counts. Where there is none, the tier does, and then the rule's own limit:
// [Result] says which. Limits that count alike, buckets of one rate and windows of one
// length, share what was counted; any other begins anew.
package policy
