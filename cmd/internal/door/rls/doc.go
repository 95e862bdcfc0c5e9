// Package rls is Envoy's rate limit service, envoy.service.ratelimit.v3, over a policy engine.
//
// A descriptor becomes attributes, one for each entry, under the entry's key. Attribute "domain" is the request's
// domain, and "descriptor" joins the keys, as in "path/remote_address". A second entry with the same key is
// "key#2". The first entry with the key "domain", "descriptor" or "limit" is numbered 2, too. If an entry
// remote_address is an address, it is also the address of the client.
//
// A configuration of envoyproxy/ratelimit ([Read]) becomes a policy with a rule for each limit, and a tree finds
// the rule of a descriptor: in envoyproxy/ratelimit only the first match applies, in Sluice all matching rules do.
// So overrides, administration and reports work as for other rules.
//
// All descriptors of a request are decided together: if one is denied, the request uses up nothing of the others.
package rls
