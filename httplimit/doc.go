// Package httplimit limits HTTP requests in front of any [net/http.Handler], by one limit or by a whole policy.
// Response fields tell clients what their limits are and how long to wait. The gateway and your programs import it.
// It imports packages answer and policy.
//
//	limit, err := sluice.ParseLimit("100/minute burst 20")
//	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
//	handler = httplimit.Limit(limiter, httplimit.ClientIP{}.Key)(handler)
//
//	rules, err := policyfile.Load("api.yaml")
//	handler = httplimit.Policy(policy.NewEngine(memory.New(), rules))(handler)
//
// These functions use the default settings; [Config] has others. [LimitBy] lets the program choose the limit of each
// request. The middleware has the type func([net/http.Handler]) [net/http.Handler]. If a framework has another type
// of middleware, wrap the framework itself, which is a handler, or use its adapter: see examples/frameworks.
//
// # Responses
//
// By default, if an enforced limit has counted a request, the response has the fields RateLimit-Policy, RateLimit and
// three X-RateLimit fields. They are set before the handler runs. Denied requests are answered with one of these
// statuses, with a body in JSON or text, and with Retry-After if the request may succeed later:
//
//   - 429: a limit is exceeded.
//   - 503: the store does not answer and on_error is deny, the upstream is overloaded, or the process has no memory
//     left for request bodies.
//   - 403: the client is blocked.
//   - 413: the body is larger than the policy's body_limit.
//   - 400: the request is malformed or ambiguous, or lacks a part of a rule's key.
//
// A policy may have other answers. Package answer describes the fields, the bodies and those answers.
//
// If one middleware runs behind another, the inner one adds its limits to the RateLimit and RateLimit-Policy fields of
// the outer one, so that the client sees all limits. It overwrites the fields that can have only one value. If a
// handler sets any of these fields itself, the client gets the handler's values. Wrap a reverse proxy in [Keep];
// otherwise, the proxy adds the fields of its upstream.
//
// If the policy has cors, pages of the listed origins may read denials. For other responses, the handler decides
// whether such a page may read them; the middleware only exposes the fields above. A handler that sets
// Access-Control-Expose-Headers should append to it.
//
// # Queues
//
// A request that a leaky bucket admits with a delay waits for its turn. If the client leaves, a later request gets
// the turn. If the deadline of the request's context is before the turn, the request is denied at once, without the
// fields above, and a later request gets the turn. A body of up to 64 KiB is read before the wait, because a server
// notices that a client has left only after the body has been read. If the body is larger, the request keeps its
// turn even if the client leaves. The server's WriteTimeout should be longer than its longest queue.
//
// # Bodies
//
// If a rule counts by a field of the body, the body is read before the decision; the handler still receives all of it.
// The time for this is bounded by the server's ReadTimeout or, if it has none, by BodyTimeout in [Config].
//
// Before a denial is sent, the server reads the rest of the body for at most half a second.
//
// # Outcomes
//
// A rule that sets "count", or takes its cost from the response, is charged before the handler runs. The charge
// is corrected (settled) when the response is known. Rules that need only the status and the header are settled
// before the client gets the head. Rules that need the length of the body or a trailer are settled when the handler
// has returned. The RateLimit fields show the limits before the charge is settled. A handler that calls [Settle]
// overrides the outcome. Without such a call:
//
//   - If the handler panics before it has answered, the outcome is unknown: the request counts, and costs its estimate.
//     The same is true if the client leaves and the handler therefore does not answer.
//   - If the handler returns without an answer, the status is 200, which the server then sends. So do not install this
//     middleware with echo.WrapMiddleware alone: echo writes the errors of handlers after all of its middleware. Wrap
//     the whole framework, or use the adapter EchoLimit in examples/frameworks, which makes echo write errors before
//     this middleware ends. The middleware logs a warning if a framework writes so late.
//   - If the handler takes the connection over (Hijack), the status is 101, and a cost that depends on bytes is the
//     estimate.
//   - If the client leaves a queue, so that no handler runs, its charges that depend on the outcome are given back, and
//     a later request gets the turn.
//
// A limit without a policy uses the outcome that the handler passes to [Settle], if AwaitOutcome in [Config] is set.
//
// A process that is killed does not settle its unfinished requests. Their charges stay, and expire like any others.
//
// # Requests in flight
//
// A rule with in_flight counts a request until its handler has returned, whether the handler answers, panics or
// takes the connection over: a WebSocket counts for as long as the handler serves it. The permit is given back just
// before the end of the response is sent, so that the client's next request finds the permit free. If a handler
// itself flushes the last byte of a response with a Content-Length, the client may receive the end before the
// permit is given back.
//
// # Requests
//
// A request target is a path, an http or https URL with a host, or "*" for OPTIONS. Requests with any other target
// are answered with 400 and not counted. So are CONNECT requests, and requests with a Host that is neither a name
// nor an address, or with a Connection field of more than 1000 bytes. A server answers "OPTIONS *" itself,
// uncounted, unless its DisableGeneralOptionsHandler is set.
//
// The fields listed in the Connection field are removed from the request before the decision, because a proxy
// behind the middleware would remove them later. Some fields stay even if Connection lists them: Connection,
// Upgrade, Te, Forwarded, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, and the ForwardedHeader of
// [Config]. The middleware ignores X-HTTP-Method-Override, X-Original-URL and similar fields: configure frameworks
// behind it to do the same.
//
// # Cost
//
// Handlers get the server's own [net/http.ResponseWriter], so flushing, hijacking and everything else works as without a
// limit. For rules that depend on the outcome or have in_flight, handlers get a wrapper. It can flush, hijack and copy
// files, and [net/http.ResponseController] finds the server's writer through it.
//
// Most calls allocate nothing. The values of the response fields that the middleware sets are slices of 1 KB chunks of
// memory. About a dozen responses share a chunk. A program that keeps a value for long should clone it, because the
// value keeps its whole chunk.
package httplimit
