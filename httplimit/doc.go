// Package httplimit limits HTTP requests in front of any [net/http.Handler], by one
// limit or by a whole policy, and tells clients what they need to know to behave.
//
//	limit, err := sluice.ParseLimit("100/minute burst 20")
//	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
//	handler = httplimit.Limit(limiter, httplimit.ClientIP{}.Key)(handler)
//
//	rules, err := policyfile.Load("api.yaml")
//	handler = httplimit.Policy(policy.NewEngine(memory.New(), rules))(handler)
//
// Settings are in [Config]; its zero value is what these functions use.
//
// # What clients are told
//
// Every response to a request that was counted has these fields, from before the handler
// runs:
//
//	RateLimit-Policy: "per-ip";q=100;w=60, "user-day";q=5000;w=86400
//	RateLimit: "per-ip";r=42;t=26, "user-day";r=4100;t=70848
//	X-RateLimit-Limit: 100
//	X-RateLimit-Remaining: 42
//	X-RateLimit-Reset: 1795219270
//
// RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11) list all the
// limits that applied, of very many the 16 that matter most: q requests per w seconds, of
// which r are available, and no more than r in the next t seconds. X-RateLimit has room for one limit: on a refusal the one
// with the longest wait, otherwise the one of which the smallest share is left. Its
// Limit is the burst if that is larger than the count, and its Reset is t from now.
//
// A limit over less than a second, or a fraction of one, is announced in whole seconds at
// the same rate: 3/250ms as q=12;w=1. What a name has besides printable ASCII is written
// %XX. Rules in shadow are not mentioned, since they refuse nobody. Nothing is said while
// the store cannot be asked, because nothing is known.
//
// Of two doors one behind the other the inner one goes on with the lists of the outer
// one, so that the client sees all limits, and replaces the fields with room for one. A
// handler that sets these fields itself has the last word. A reverse proxy should be
// wrapped in [Keep].
//
// # Refusals
//
// A refusal has status 429, or 503 if it is because the store cannot be asked, or 400 if
// the request lacks what a rule counts by. It is not to be cached (Cache-Control:
// no-store). Retry-After says, in seconds and rounded up, when the request will fit; it
// is missing if the request can never fit. The body is a problem of RFC 9457 by default,
// plain JSON or text where the client's Accept prefers that:
//
//	{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//	 "title":"Too Many Requests","status":429,
//	 "detail":"Limit per-ip: 100 per 60s. Retry in 17 s.","violated-policies":["per-ip"],
//	 "error":"rate_limit_exceeded","retry_after":17}
//
// With cors in the policy, pages of its origins may read refusals, and in every answer
// that they may read the fields above. A handler that sets Access-Control-Expose-Headers
// should add to it.
//
// # Queues
//
// A request that a leaky bucket admits with a delay is held until its turn. If the client
// leaves, or a deadline of the request's context is nearer, its place is given back; with
// a deadline it is answered like a refusal, without the fields above. A body of up to
// 64 KiB is read before its request waits, since a server notices only behind the body that
// a client has left: that of a larger one keeps its place. A server's WriteTimeout should
// be longer than its longest queue.
//
// A rule that counts by a field of the body reads a small body before it decides, and
// leaves all of it to the handler. That is bounded by [Config] BodyTimeout, or by the
// server's ReadTimeout if it has one.
//
// What is left of the body of a refused request is waited for half a second at most.
//
// # What is decided about
//
// A request target is a path, an http or https URL with a host, or "*" for OPTIONS; any
// other is answered with 400 and not counted, and so are CONNECT, a Host that is neither a
// name nor an address, and a Connection field of more than 1000 bytes. A server answers
// "OPTIONS *" itself, uncounted, unless its DisableGeneralOptionsHandler is set.
//
// Fields that Connection names are removed from the request before it is decided about, as
// a proxy behind the door would do it afterwards. Those that are about the connection stay,
// and so do the forwarded ones. A door does not read X-HTTP-Method-Override, X-Original-URL
// and their kind: do not let a framework behind it do so.
//
// # Cost
//
// Handlers get the server's own [net/http.ResponseWriter], so that flushing, hijacking
// and everything else works as without a limit.
//
// Most calls allocate nothing. The values of fields are cut from pieces of memory that
// about a dozen responses share: a value that is kept for long keeps its piece, of 1 KB.
package httplimit
