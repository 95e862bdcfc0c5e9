// Package parts has the parts of a rule's key: their names, how they are read from a request, and how their values
// are compared, written in a key and shown. The table partKinds has all kinds of parts. To add a kind, add an entry
// to it.
//
// Package parts uses packages fields, fold, paths and pattern, which read input of clients, and package table, which
// looks up subjects.
package parts

import (
	"strings"

	"github.com/sluicehq/sluice/policy/internal/fields"
	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// kind has the properties of a kind of part. A test requires every kind to set all of them, except arg, check and
// verbatim.
type kind struct {
	name string // the name in rules
	arg  string // the text after the colon, as documentation names it; empty if no text follows
	// check makes the text after the colon canonical, or returns an error message about it. It is nil if no text
	// follows.
	check func(p *Part) (wrong string)
	// find returns the value of the part in a request.
	find func(p *Part, x *Reader) (string, fields.Presence)
	// canonical converts a value in a document to the form that find returns. It is not used for addresses.
	canonical func(v string) string
	source    source
	chosen    chosen
	shown     shown
	verbatim  bool // values need no escapes, so they are written in keys unchanged
}

// source is the part of a request in which a value is found.
type source uint8

const (
	fromRule    source = iota + 1 // the rule itself
	fromPattern                   // the pattern of the rule that matched
	fromPeer                      // the address of the client
	fromLine                      // method, host and path
	fromHead                      // header fields
	fromQuery                     // the query; values are folded, like values in bodies: see Part.Folds
	fromBody
	fromTLS
	fromProgram // the program that calls the engine
)

// chosen describes how freely clients can choose a value.
type chosen uint8

const (
	notChosen chosen = iota + 1
	served           // a choice among the hosts and routes that are served
	free             // any value
	claimed          // any value, unless a server verifies the tokens
)

// shown describes how much of a value people see.
type shown uint8

const (
	inFull    shown = iota + 1
	asAddress       // in full; shortened if the rule shortens keys and no other part of the key is a name or a secret
	asName          // in full; shortened if the rule shortens keys
	asSecret        // shortened unless the rule sets show_key
)

// partKinds has all kinds of parts.
//
// Values of a query and a body are names that people type, so they are compared as databases compare names:
// see [fold.AppendName].
var partKinds = []kind{
	{
		// The address of the client; for IPv6, the address of its network.
		name: "client_ip", find: findClientIP, canonical: asIs,
		source: fromPeer, chosen: notChosen, shown: asAddress, verbatim: true,
	},
	{
		name: headerKind, arg: "NAME", check: checkHeader, find: findHeader, canonical: trimmed,
		source: fromHead, chosen: free, shown: asName,
	},
	{
		// X-API-Key, or the token of "Authorization: Bearer". A server in front of Sluice or behind it has to
		// verify the key. If both are present and differ, the key is ambiguous ([fields.Garbled]). If your clients
		// send both, use header:NAME with the one that your server reads.
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
		// A string, number or boolean in the payload of the bearer token. The signature is NOT verified: use this
		// part only behind a server that has verified the token.
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
		// The normalized path, without the query and without a slash at its end. A path that servers could read in
		// several ways is ambiguous ([fields.Garbled]). Clients can choose any path, even of pages that do not
		// exist.
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
		// An attribute that the program has set.
		name: "attr", arg: "NAME", check: anyText, find: findAttribute, canonical: asIs,
		source: fromProgram, chosen: notChosen, shown: asName,
	},
	{
		// The JA4 fingerprint of the client's TLS, if the listener terminates TLS. It distinguishes programs, not
		// people, and a client can imitate the fingerprint of another program. It is useful in addition to the
		// address, for clients that do not authenticate.
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
