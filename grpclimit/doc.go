// Package grpclimit limits the calls to a gRPC server, by a whole policy or by one limit, and has a client interceptor
// that obeys the limits of servers. Programs are above it, packages answer and policy are below.
//
//	rules, err := policyfile.Load("api.yaml")
//	limits := grpclimit.Policy(policy.NewEngine(memory.New(), rules))
//	server := grpc.NewServer(limits.Options()...)
//
// With other interceptors, put [Server.Unary] and [Server.Stream] among them: before expensive ones, and behind
// authentication if it sets the Attributes that rules use.
//
// # What rules see
//
// A call is a POST with its full method as the path, as in "match: /shop.Orders/Create", or "/shop.Orders/" for all of a
// service. Metadata are headers, -bin ones with the bytes that they stand for. The host is the :authority, which clients
// may choose. The client is the peer of the connection, or the client named by a trusted proxy in x-forwarded-for. Calls
// have no query and no body: rules that need them get nothing. Health checks and reflection are calls like any other:
// exempt "/grpc.health.v1.Health/" if they should not count.
//
// A stream counts once, when it is opened, and with [Config] PerMessage each of its messages from the client counts, too.
// Calls wait for their turn in a queue, within their deadline; the turn of a client that leaves goes to a later call.
//
// # Answers to clients
//
// Allowed calls have the fields of package answer as header metadata, such as ratelimit. Denied calls have them as
// trailers, without a header, because clients repeat only such calls; and a status:
//
//	RESOURCE_EXHAUSTED  the limit is exceeded: with RetryInfo and QuotaFailure
//	UNAVAILABLE         the store does not answer, and on_error is deny: with RetryInfo
//	INVALID_ARGUMENT    a key part of a rule is missing, or given twice
//	PERMISSION_DENIED   the subject is blocked
//
// The first two also have grpc-retry-pushback-ms, which gRPC clients with a retry policy for that code obey: the time of
// RetryInfo, or -1 for a call that can never fit. A policy's own answers are for HTTP, and not sent.
//
// # Outcomes
//
// A rule with a count, or with a cost from the response, is settled when the handler has returned, for a unary call
// before the client has its answer. The status is the one that gateways derive from a code: OK 200; INVALID_ARGUMENT,
// FAILED_PRECONDITION, OUT_OF_RANGE 400; UNAUTHENTICATED 401; PERMISSION_DENIED 403; NOT_FOUND 404; ALREADY_EXISTS,
// ABORTED 409; RESOURCE_EXHAUSTED 429; CANCELLED 499; UNIMPLEMENTED 501; UNAVAILABLE 503; DEADLINE_EXCEEDED 504; all
// others 500. Headers are the header and trailer metadata of the handler, and bytes are those of its messages, if they
// are protocol buffers. If a handler panics, or fails after its client has left or its deadline has passed, the outcome
// is unknown: the call counts, and costs its estimate. [Settle] overrides the outcome.
//
// # Requests in flight
//
// A rule with in_flight counts a call, unary or a stream, until its handler has returned. It does not count messages of a
// stream.
//
// # Clients
//
// [Client] delays calls until the limits that the server has reported have room, and repeats unary calls that were denied
// with RetryInfo or the pushback, as package client does for HTTP: no earlier than that, with a random delay, within
// MaxWait, the deadline of the call and a budget.
//
//	waits := &grpclimit.Client{}
//	cc, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(waits.Unary), grpc.WithChainStreamInterceptor(waits.Stream))
package grpclimit
