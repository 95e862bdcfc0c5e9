// Package rls implements Envoy's rate limit service, envoy.service.ratelimit.v3, with a policy engine.
//
// Each entry of a descriptor becomes an attribute with the entry's key as its name. In addition, the attribute
// "domain" is the request's domain, and "descriptor" joins the keys, as in "path/remote_address". The attribute of
// a second entry with the same key is named "key#2". The names "domain", "descriptor" and "limit" are reserved, so
// the attribute of a first entry with the key "domain" is named "domain#2". If the value of the entry
// remote_address is an address, it is also the address of the client.
//
// A configuration of envoyproxy/ratelimit ([Read]) becomes a policy with a rule for each limit, so overrides,
// administration and reports work as for other rules. In Sluice, all matching rules apply, but in
// envoyproxy/ratelimit only the first matching limit does. So a tree finds the one rule that applies to a
// descriptor.
//
// All descriptors of a request are decided together: if one is denied, the others are not charged, unless
// Config.CountRefused is set.
package rls
