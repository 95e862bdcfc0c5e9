// Package httplimit limits HTTP requests in front of any [net/http.Handler], by one limit or by a whole policy, and
// reports limits and waits to clients in response fields. The gateway and programs are above it, packages answer and
// policy are below.
//
//	limit, err := sluice.ParseLimit("100/minute burst 20")
//	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
//	handler = httplimit.Limit(limiter, httplimit.ClientIP{}.Key)(handler)
//
//	rules, err := policyfile.Load("api.yaml")
//	handler = httplimit.Policy(policy.NewEngine(memory.New(), rules))(handler)
//
// [Config] has settings; these functions use its zero value. [LimitBy] lets the program choose the limit of each request.
// Frameworks with another type of middleware than func([net/http.Handler]) [net/http.Handler] are handlers, or have an
// adapter: see examples/frameworks.
//
// # Responses
//
// Every response to a request that was counted has the fields RateLimit-Policy, RateLimit and three X-RateLimit ones,
// which are set before the handler runs. A denial is a 429, 503, 403 or 400 with Retry-After and a body in JSON or text,
// or one of the policy's answers. Package answer describes them.
//
// If one middleware runs behind another, the inner one appends to the lists of the outer one, so that the client sees all
// limits, and replaces the fields with a single value. A handler that sets these fields itself overrides them. Wrap a
// reverse proxy in [Keep].
//
// With cors in the policy, pages of its origins may read denials, and the fields above in every answer that they may
// read. A handler that sets Access-Control-Expose-Headers should add to it.
//
// # Queues
//
// A request that a leaky bucket admits with a delay waits for its turn. If the client leaves, or a deadline of the
// request's context is nearer, a later request gets the turn; with a deadline the request is answered as a denial,
// without the fields above. A body of up to 64 KiB is read before the wait, because a server notices that a client has
// left only after the body has been read. A request with a larger body keeps its turn. A server's WriteTimeout should be
// longer than its longest queue.
//
// A rule that counts by a field of the body reads the body before it decides; the handler still receives all of it.
// [Config] BodyTimeout bounds this, or the server's ReadTimeout if it has one.
//
// A denial waits at most half a second for the rest of the request's body.
//
// # Outcomes
//
// A rule with a count, or with a cost from the response, is charged before the handler runs and settled by the response:
// by status and header before the client gets the head, and by the length of the body or a trailer when the handler has
// returned. The RateLimit fields show the limits before that. [Settle] overrides the outcome. By default:
//
//   - A handler that panics before it has answered leaves the outcome unknown: the request counts, and costs its
//     estimate. The same holds if a client leaves and the handler therefore answers nothing.
//   - A handler that returns without an answer has answered 200, as the server does for it. So do not use the middleware
//     as one of echo's, which writes the errors of handlers after all of its middleware: put the limits in front of the
//     whole framework. The middleware logs a warning if a framework writes so late.
//   - A connection that is taken over (Hijack) has been answered with 101, and costs its estimate if its cost depends on
//     bytes.
//   - A request that never reaches a handler, because the client has left a queue, is given back, except for the turn,
//     which a later request gets.
//
// A limit without a policy uses the outcome of [Settle], if [Config] AwaitOutcome is set.
//
// A process that is killed gives nothing back. Its requests under way stay counted for as long as all others.
//
// # Requests in flight
//
// A rule with in_flight counts a request until its handler has returned, whether it answers, panics or takes the
// connection over: a WebSocket counts for as long as the handler serves it. Its permit is given back before the response
// ends, so that a client finds it free for its next request, unless the handler flushes the last byte of a response of
// known length.
//
// # Requests
//
// A request target is a path, an http or https URL with a host, or "*" for OPTIONS. All others are answered with 400 and
// not counted, and so are CONNECT, a Host that is neither a name nor an address, and a Connection field of more than 1000
// bytes. A server answers "OPTIONS *" itself, uncounted, unless its DisableGeneralOptionsHandler is set.
//
// Fields that Connection names are removed from the request before the decision, as a proxy behind the middleware
// would remove them later. Fields about the connection itself stay, and so do the forwarded fields. The middleware
// ignores X-HTTP-Method-Override, X-Original-URL and similar fields: configure frameworks behind it to do the same.
//
// # Cost
//
// Handlers get the server's own [net/http.ResponseWriter], so flushing, hijacking and everything else works as without a
// limit. With rules that depend on the outcome, or have in_flight, they get a wrapper, which can flush, hijack and copy
// files, and leads [net/http.ResponseController] to the server's writer.
//
// Most calls allocate nothing. The values of fields are cut from chunks of memory that about a dozen responses share: a
// value that is kept for long keeps its chunk, of 1 KB.
package httplimit
