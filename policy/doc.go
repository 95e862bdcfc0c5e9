// Package policy decides about requests by rules. Middleware and integrations are above it; below it are
// package sluice and any [sluice.Store].
//
// A [Policy] is a compiled [Document], and an [Engine] applies it over a store. Every rule that
// matches a request applies. Rules charge together, all or none, so that a request refused by
// one uses up none of the others.
//
//	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
//		{Name: "per-address", Key: []string{"client_ip"}, Limit: "100/minute burst 20"},
//	}})
//	engine := policy.NewEngine(memory.New(), p)
//	decision := engine.Decide(ctx, &policy.Request{Method: "GET", Path: "/api/users", Peer: addr})
//
// The fields of [Document] and [Rule] are what a document can have. Package policyfile reads one from a file,
// package httplimit puts an engine in front of a [net/http.Handler].
//
// # What is read is what is meant
//
// The server behind a limit reads the same request again, and any difference in what it reads
// is a way past the limit. So a request is read in every way in which servers are
// known to read it. Where these differ, the setting "ambiguous" decides, and never in the
// client's favor.
//
// Paths are read with "%XX" unescaped once, twice or not at all, before or after they are split; with "." and ".."
// resolved, at any of these stages, or left alone; with empty segments dropped; with "\" for "/"; with
// ";parameters" cut; ended at an escaped "?" or "#"; with the text after "//" as a host, and the text after a
// script, as in "/index.php/login", as a separate path; and, for rules that limit, with a suffix such as ".json" as
// a format. A request with control characters, "%uXXXX" or overlong characters in its path, or with too many
// readings, is denied. Not covered are servers that rewrite paths by their own rules, that take a method from a
// field or a parameter (limit POST as well), or that drop characters at the ends of a path, as some file systems do
// with "login. ".
//
// Fields of a body are looked for in forms, in JSON objects and, as "outer[name]", in the
// objects inside them, in multipart/form-data as browsers and common clients write it, and in
// the query, whatever the Content-Type says. JSON must follow RFC 8259 to the letter. Names are
// compared without case. A name is ambiguous if some framework may take it for the field:
// "user[]", "[user]", "model.user", "!user". So is a field that occurs twice with different
// values, is not in UTF-8, is escaped twice, or is a number that not every server can hold; and
// so is a body that is compressed, is a form with more than 1000 fields or an object with more than 4000, or is none
// of the above. In a JSON object whose Content-Type is application/json, the fields of APIs for models and of JSON-RPC,
// such as "model", "method" and "params[name]", are only those of the object itself, whatever its texts look like. Not
// covered are other formats that look like a form and are sent under another Content-Type.
//
// What would be expensive to read counts as ambiguous, so that a request costs less than a millisecond, or for a large
// body less than 5 ms a megabyte.
// Rules that need no body are asked first: the body of a client that is over one of their
// limits is not read.
//
// # Names
//
// A value of a query or a body may be the name of an account, and databases take many spellings for one account:
// "Álice" for "alice". Here they share one key. Two names are one key if any of these treats them as equal:
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
// So case, width, marks of every script, strokes and ligatures make no difference, nor do spaces around a name, or
// how many there are in it. Hiragana is Katakana, every decimal digit is its ASCII one, and invisible characters,
// and those beyond the basic plane, such as emoji, are dropped. As collations differ, some names are one key
// although no single database treats them as equal: a row of "s" is one "s", and "y" is "u", because of ß and ü.
//
// Some names are garbled, and share one key: those with characters that servers read
// differently (bytes that are not UTF-8, control characters, private and, as of Unicode 15,
// unassigned ones, combining letters, mathematical letters), those made only of characters that
// are dropped, and those longer than 1 KB that are not ASCII.
//
// Not covered are collations of a single language that treat as one name what are two here, as
// "ä" and "ae" in German phone books, or "å" and "aa" in Danish; SQL Server's, which were not
// tested; collations that ignore punctuation; and a server's own rules, such as cutting names
// off at some length or dropping dots from mail addresses. There a name has as many keys as it
// has spellings: keep a rule by client_ip as well.
package policy
