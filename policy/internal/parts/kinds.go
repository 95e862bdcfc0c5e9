// Package parts has the parts of a rule's key: their names, how they are read from a request, and how their values
// are compared, written in a key and shown. One table, partKinds, has all kinds of parts: to add a kind, add its
// entry.
//
// Package policy is above. Below are packages fields, fold, paths and pattern, which read input of clients, and
// table, which looks up subjects.
package parts

import (
	"strings"

	"github.com/sluicehq/sluice/policy/internal/fields"
	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// kind has the properties of a kind of part. A test requires all of them of each.
type kind struct {
	name string // as rules write it
	arg  string // what follows the colon, as documentation names it; empty: nothing does
	// check makes what follows the colon canonical, and returns what is wrong with it. It is nil where
	// nothing follows.
	check func(p *Part) (wrong string)
	// find returns the value of the part in a request.
	find func(p *Part, x *Reader) (string, fields.Presence)
	// canonical returns a value that a document names as find returns it; not for addresses.
	canonical func(v string) string
	source    source
	chosen    chosen
	shown     shown
	verbatim  bool // values are written in keys as they are, since there is nothing to escape
}

// source is what has to be known of a request to find a value.
type source uint8

const (
	fromRule    source = iota + 1 // the rule alone
	fromPattern                   // its pattern that matched
	fromPeer                      // the address of the client
	fromLine                      // method, host and path
	fromHead                      // header fields
	fromQuery                     // names that people type, and so are those in bodies: see Part.Folds
	fromBody
	fromTLS
	fromProgram // what calls the engine
)

// chosen is how far clients choose a value.
type chosen uint8

const (
	notChosen chosen = iota + 1
	served           // among what is served
	free             // as they like
	claimed          // as they like, unless something verifies tokens
)

// shown is how much of a value people see.
type shown uint8

const (
	inFull    shown = iota + 1
	asAddress       // in full, and where a rule shortens keys, shortened if it counts by no name
	asName          // in full, and where a rule shortens keys, shortened
	asSecret        // shortened unless the rule sets show_key
)

// partKinds has all kinds of parts.
//
// Values of a query and a body are names that people type, so they are compared as databases compare names:
// see [fold.AppendName].
var partKinds = []kind{
	{
		// The address of the client, for IPv6 that of its network.
		name: "client_ip", find: findClientIP, canonical: asIs,
		source: fromPeer, chosen: notChosen, shown: asAddress, verbatim: true,
	},
	{
		name: headerKind, arg: "NAME", check: checkHeader, find: findHeader, canonical: trimmed,
		source: fromHead, chosen: free, shown: asName,
	},
	{
		// X-API-Key, or the token of "Authorization: Bearer". A server in front or behind has to verify it. If both
		// are present and differ it is garbled: then name the header that counts.
		name: "api_key", find: findAPIKey, canonical: trimmed,
		source: fromHead, chosen: free, shown: asSecret,
	},
	{
		name: cookieKind, arg: "NAME", check: checkCookie, find: findCookie, canonical: asIs,
		source: fromHead, chosen: free, shown: asSecret,
	},
	{
		name: "query", arg: "NAME", check: checkField, find: findQuery, canonical: folded,
		source: fromQuery, chosen: free, shown: asName,
	},
	{
		// A string, number or boolean in the payload of the bearer token. Its signature is NOT verified: use it
		// only behind something that has done so.
		name: "jwt", arg: "CLAIM", check: anyText, find: findClaim, canonical: asIs,
		source: fromHead, chosen: claimed, shown: asSecret,
	},
	{
		// A field of a JSON object or a form.
		name: "body", arg: "FIELD", check: checkField, find: findBody, canonical: folded,
		source: fromBody, chosen: free, shown: asName,
	},
	{
		// The pattern of the rule that matched.
		name: "route", find: findRoute, canonical: asIs,
		source: fromPattern, chosen: notChosen, shown: inFull, verbatim: true,
	},
	{
		// The normalised path, without the query and a slash at its end. A path that servers may read in several
		// ways is garbled. Clients can make up paths, such as those of pages that do not exist.
		name: pathKind, find: findPath, canonical: canonicalPath,
		source: fromLine, chosen: free, shown: asName,
	},
	{
		name: "host", find: findHost, canonical: pattern.Host,
		source: fromLine, chosen: served, shown: inFull,
	},
	{
		name: "method", find: findMethod, canonical: pattern.Method,
		source: fromLine, chosen: notChosen, shown: inFull,
	},
	{
		name: "const", arg: "TEXT", check: anyText, find: findConst, canonical: asIs,
		source: fromRule, chosen: notChosen, shown: inFull,
	},
	{
		// An attribute that the program has brought.
		name: "attr", arg: "NAME", check: anyText, find: findAttribute, canonical: asIs,
		source: fromProgram, chosen: notChosen, shown: asName,
	},
	{
		// The JA4 of the client's TLS, if the listener terminates it. It distinguishes programs and not people, and
		// a client can imitate another: useful beside the address, for clients without a name.
		name: "tls_fingerprint", find: findTLS, canonical: asIs,
		source: fromTLS, chosen: free, shown: inFull,
	},
}

const (
	headerKind = "header"
	cookieKind = "cookie"
	pathKind   = "path"
)

func asIs(v string) string { return v }

func trimmed(v string) string { return strings.Trim(v, " \t") }

func folded(v string) string {
	if name, ok := fold.AppendName(nil, v); ok {
		return string(name)
	}
	return v
}
