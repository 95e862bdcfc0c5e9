// Package policy decides about requests by rules.
//
// A [Policy] is a compiled [Document], an [Engine] applies it over a store. Every rule that
// matches a request applies. They charge together, all or none, so that a request that one
// rule refuses has not used up the others.
//
//	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
//		{Name: "per-address", Key: []string{"client_ip"}, Limit: "100/minute burst 20"},
//	}})
//	engine := policy.NewEngine(memory.New(), p)
//	decision := engine.Decide(ctx, &policy.Request{Method: "GET", Path: "/api/users", Peer: addr})
//
// What a document can say is told by its fields. Package policyfile reads it from a file,
// package httplimit puts an engine before an [net/http.Handler].
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
package policy
