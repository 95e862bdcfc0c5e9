// Package httplimit limits HTTP requests in front of any [net/http.Handler], by one limit or by a whole
// policy, and reports limits and waits to clients in response fields. The gateway and programs are above it,
// packages answer and policy are below.
//
//	limit, err := sluice.ParseLimit("100/minute burst 20")
//	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
//	handler = httplimit.Limit(limiter, httplimit.ClientIP{}.Key)(handler)
//
//	rules, err := policyfile.Load("api.yaml")
//	handler = httplimit.Policy(policy.NewEngine(memory.New(), rules))(handler)
//
// Settings are in [Config]; its zero value is what these functions use. [LimitBy] asks the
// program for the limit of each request. Frameworks whose middleware is another type than
// func([net/http.Handler]) [net/http.Handler] are handlers, or have an adapter:
// examples/frameworks has four of them.
//
// # What clients are told
//
// Every response to a request that was counted has the fields RateLimit-Policy, RateLimit and
// three X-RateLimit ones, which are set before the handler runs; a refusal is a 429, 503, 403 or 400 with
// Retry-After and a body in JSON or text, or what the answers of the policy say. Package answer says
// what they mean.
//
// Where one middleware runs behind another, the inner one appends to the lists of the outer
// one, so that the client sees all limits, and replaces the fields that have room for only one.
// A handler that sets these fields itself has the last word. Wrap a reverse proxy in [Keep].
//
// With cors in the policy, pages of its origins may read refusals, and the fields above in every
// answer that they may read. A handler that sets Access-Control-Expose-Headers should add to it.
//
// # Queues
//
// A request that a leaky bucket admits with a delay is held until its turn. If the client
// leaves, or a deadline of the request's context is nearer, a later request gets its turn; with
// a deadline it is answered like a refusal, without the fields above. A body of up to
// 64 KiB is read before the wait, since a server learns that a client has left only once the
// body has been read: a request with a larger one keeps its turn. A server's WriteTimeout
// should be longer than its longest queue.
//
// A rule that counts by a field of the body reads a small body before it decides, and
// leaves all of it to the handler. That is bounded by [Config] BodyTimeout, or by the
// server's ReadTimeout if it has one.
//
// A refusal waits at most half a second for the rest of the request's body.
//
// # Outcomes
//
// A rule with a count, or with a cost that the response tells, is charged before the handler runs
// and settled by what it answers. What status and header say is settled before the client gets
// the head of the response; what the body's length says, or a trailer, when the handler has
// returned. The RateLimit fields tell of the limits before that. A handler that knows better says so with
// [Settle]. By default:
//
//   - A handler that panics before it has answered leaves the outcome unknown: the request
//     counts, and costs what was estimated. The same holds if a client leaves and the handler
//     therefore answers nothing.
//   - A handler that returns without an answer has answered 200, as the server does for it. So do
//     not use the middleware as one of echo's: that writes the errors which handlers return behind
//     all of its middleware. Put the limits before the whole of such a framework. A warning is
//     logged where one writes so late.
//   - A connection that is taken over (Hijack) has been answered with 101, and costs what was
//     estimated where its bytes would say more.
//   - What never reaches a handler, since the client has left a queue, is given back, but for the turn,
//     which a later request gets.
//
// A limit without a policy goes by what the handler says with [Settle], if [Config] AwaitOutcome
// is set.
//
// A process that is killed gives nothing back. What it had under way stays counted for as long
// as everything else that the limit has counted.
//
// # Requests in flight
//
// A rule with in_flight counts a request until its handler has returned, whether it answers, panics or
// takes the connection over: a WebSocket counts for as long as the handler serves it. Its place is
// given back before the response ends, so that a client that sends its next request after reading all
// of it finds the place free, unless the handler flushes the last byte of a response of known length.
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
// and everything else works as without a limit. Where a rule goes by the outcome, or has in_flight, they get one
// around it, which can flush, hijack and copy files, and leads [net/http.ResponseController] to the
// server's.
//
// Most calls allocate nothing. The values of fields are cut from chunks of memory that
// about a dozen responses share: a value that is kept for long keeps its chunk, of 1 KB.
package httplimit
