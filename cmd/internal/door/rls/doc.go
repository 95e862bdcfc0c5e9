// Package rls is a door: Envoy's rate limit service, envoy.service.ratelimit.v3, over a policy
// engine.
//
// Rules see a descriptor by its attributes: each entry is one, by its key, and "domain" and
// "descriptor" are those of the request and of its keys, as in "path/remote_address". A second entry
// of a key is "key#2"; the first whose key is "domain", "descriptor" or "limit" is that, too. An entry remote_address that is an address is that of the client, too.
//
// A configuration of envoyproxy/ratelimit ([Read]) makes a policy that has a rule for each limit, and
// the door finds which of them is that of a descriptor, as that project does. So all that rules have
// (overrides, administration, reports) these have.
//
// All descriptors of a request are decided together: a request that one refuses uses up nothing of
// the others.
package rls
