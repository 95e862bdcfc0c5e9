// Package policy decides about requests by rules. Middleware and integrations import it; it imports package sluice,
// and works with any [sluice.Store].
//
// A [Policy] is a compiled [Document], and an [Engine] applies it and counts in a store. Every rule that matches a
// request applies. Either all of these rules charge the request or none does, so a request that one limit denies uses
// up nothing of the others.
//
//	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
//		{Name: "per-address", Key: []string{"client_ip"}, Limit: "100/minute burst 20"},
//	}})
//	engine := policy.NewEngine(memory.New(), p)
//	decision := engine.Decide(ctx, &policy.Request{Method: "GET", Path: "/api/users", Peer: addr})
//
// [Document] and [Rule] list all settings of a document. Package policyfile reads a document from a file, and package
// httplimit puts an engine in front of a [net/http.Handler].
//
// # Requests that servers read differently
//
// The server behind a limit reads the same request again. If it reads the request differently from the limit, clients
// can use the difference to evade the limit. So Sluice reads a request in every way in which servers are known to
// read it. If the readings differ, the setting "ambiguous" decides what happens, and never in the client's favor.
//
// Paths are read in all of these ways:
//
//   - with "%XX" unescaped: once or twice before the path is split into segments, or once in each segment after the
//     split
//   - with "." and ".." resolved, at any of these stages, or left alone
//   - with empty segments dropped
//   - with "\" for "/"
//   - with ";parameters" cut off
//   - cut off at an escaped "?" or "#"
//   - with the text after "//" as a host
//   - with the text after the name of a script as a separate path, as in "/index.php/login"
//   - without a suffix that names a format, such as ".json" (only for rules that limit, not for those that exempt)
//
// A request is refused if a rule with patterns may apply to it and its path has control characters, "%uXXXX", a space
// at an end, overlong UTF-8 (characters encoded in more bytes than needed), or too many readings. Not covered are
// servers that rewrite paths by their own rules, or that drop other characters at the ends of a path, as some file
// systems do with "login..". Servers that take the method from a field or a parameter of a POST are not covered either:
// for these, a rule for PUT or DELETE has to match POST, too.
//
// Whatever the Content-Type is, Sluice reads the body as a form, as a JSON object (fields of inner objects as
// "outer[name]") and as multipart/form-data, in the way that browsers and common clients write it. It looks for fields
// of the body in the query, too. JSON must follow RFC 8259 to the letter. Names of fields are compared without case. If
// the Content-Type is application/json, the fields that JSON-RPC and the APIs of language models define, such as
// "method", "params[name]" and "model", are taken only from the JSON object and the query, even if strings in the
// object look like a form.
//
// A field is ambiguous
//
//   - if the body has a name that some framework reads as the field: "user[]", "[user]", "model.user", "!user"
//   - if it occurs twice with different values, is not in UTF-8, or is escaped twice
//   - if it is a number that not every server can represent
//
// All fields of a body are ambiguous if the body is compressed, has none of the formats above, or has more than 1000
// fields (4000 if it is an object sent as application/json). One case is not covered: a body in another format, such as
// plain text, that servers could read as a form although its Content-Type is not that of a form.
//
// Anything that would be expensive to read counts as ambiguous, so that reading a request takes less than a
// millisecond, or for a large body less than 5 ms a megabyte. Limits that need no body and charge the request one unit
// are checked first: the body of a client that exceeds one of them is not read, unless a rule exempts or blocks by the
// body, or the request has an ID.
//
// # Names
//
// A value of a query or a body can be the name of an account, and databases find one account under many spellings of
// its name: "Álice" and "alice". Sluice counts all these spellings under one key. Two names have the same key if any
// of these treats them as equal:
//
//   - MySQL and MariaDB: utf8mb4_general_ci, utf8mb4_unicode_ci, utf8mb4_unicode_520_ci and
//     utf8mb4_uca1400_ai_ci, tested for every character against MariaDB 10.11. Also utf8mb4_0900_ai_ci, tested
//     against Unicode's default collation table, on which it is based. Also the same collations of utf8mb3, with or
//     without PAD SPACE, and all stricter ones, such as those that distinguish accents or case.
//   - latin1_swedish_ci, for names of ASCII without "[", "\" and "]".
//   - PostgreSQL: lower, citext, unaccent, and the root collation of ICU at any strength.
//   - Frameworks that ignore case or marks, trim spaces, make several spaces one, or normalize
//     names to a form of Unicode (NFC, NFD, NFKC, NFKD).
//
// So case, width, marks of every script, strokes and ligatures make no difference. Neither do spaces around a name, or
// the number of spaces between its words. Hiragana equals Katakana, and every decimal digit of the basic plane equals
// the ASCII digit of the same value. Invisible characters are dropped, and so are most characters beyond the basic
// plane, such as emoji. Because collations differ, some names have the same key although no single database treats them
// as equal: "sss" equals "s", because databases treat "ß" as "s" or as "ss"; and "y" equals "u", because they treat "ü"
// as "u" or as "y".
//
// Some names are garbled, which makes them ambiguous: with "ambiguous: refuse" the request is refused, and with
// "charge" all garbled names share one key. These are:
//
//   - names with characters that servers read differently: bytes that are not UTF-8, control characters other than
//     white space, private characters, characters that Unicode 15 does not assign, combining letters, and some
//     characters beyond the basic plane, such as digits and mathematical letters
//   - names made only of characters that are dropped
//   - names longer than 1 KB that are not ASCII
//
// These are not covered:
//
//   - collations of a single language that treat names as equal although Sluice keeps them apart, as "ä" and "ae" in
//     German phone books, or "å" and "aa" in Danish
//   - collations of SQL Server, which were not tested
//   - collations that ignore punctuation
//   - a server's own rules, such as cutting names off at some length or dropping dots from mail addresses
//
// With these servers and collations, each spelling of a name has a key of its own. So keep a rule by client_ip as
// well.
package policy
