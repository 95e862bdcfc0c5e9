// Package grpclimit limits the calls to a gRPC server, by a whole policy or by one limit, and has interceptors for
// clients that obey the limits of servers. Programs import it. It imports packages answer and policy.
//
//	rules, err := policyfile.Load("api.yaml")
//	limits := grpclimit.Policy(policy.NewEngine(memory.New(), rules))
//	server := grpc.NewServer(limits.Options()...)
//
// If the server has other interceptors, put [Server.Unary] and [Server.Stream] before expensive ones, and after
// authentication if it sets the Attributes that rules use.
//
// # What rules see
//
// Rules see a call as a POST request with the full method as its path, for example "match: /shop.Orders/Create", or
// "/shop.Orders/" for all methods of a service. Metadata counts as headers; the values of -bin metadata are the decoded
// bytes. The host is the :authority, which clients may choose. The client is the peer of the connection, or the
// client that a trusted proxy names in x-forwarded-for. Calls have no query and no body: if the key of a rule uses
// them, that key part is missing. Health checks and reflection are calls like any other: exempt
// "/grpc.health.v1.Health/" if they should not count.
//
// A stream counts once, when it is opened. With Config.PerMessage, each message from the client counts, too.
// Calls in a queue wait for their turn, within their deadline. If a client leaves, a later call gets its turn.
//
// # Answers to clients
//
// Responses to allowed calls have the fields of package answer, such as ratelimit, as header metadata. Responses to
// denied calls have them as trailers, and no header metadata, because gRPC clients do not repeat a call after they
// have received header metadata. The status is one of:
//
//	RESOURCE_EXHAUSTED  the limit is exceeded: with RetryInfo and QuotaFailure
//	UNAVAILABLE         the store does not answer and on_error is deny, or the server is overloaded: with RetryInfo
//	INVALID_ARGUMENT    a part of a rule's key is missing, or sent twice
//	PERMISSION_DENIED   the client is blocked
//
// The first two statuses also come with a trailer grpc-retry-pushback-ms, which gRPC clients obey if they have a
// retry policy for that status. The trailer has the time of RetryInfo, or -1 for a call that can never fit. A
// policy's "answers" setting is only for HTTP, and has no effect on calls.
//
// # Outcomes
//
// The charge of a rule with the setting count, or with a cost from the response, is corrected (settled) when the
// handler has returned. For a unary call, this is before the client gets the response. Rules see the outcome as
// follows. [Settle] overrides it.
//
//   - The status is the one to which gateways map the code: OK 200; INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE
//     400; UNAUTHENTICATED 401; PERMISSION_DENIED 403; NOT_FOUND 404; ALREADY_EXISTS, ABORTED 409; RESOURCE_EXHAUSTED
//     429; CANCELLED 499; UNIMPLEMENTED 501; UNAVAILABLE 503; DEADLINE_EXCEEDED 504; all others 500.
//   - The headers are the header and trailer metadata of the handler.
//   - The bytes are those of the handler's messages, if these are protocol buffers.
//   - If the handler panics, or fails after its client has left or its deadline has passed, the outcome is unknown: the
//     call counts, and costs its estimate.
//
// # Requests in flight
//
// A rule with in_flight counts a unary call or a stream until its handler has returned. It does not count the
// messages of a stream.
//
// # Clients
//
// [Client] delays calls until the limits that the server has reported have room, as package client does for HTTP.
// It repeats unary calls that were denied with RetryInfo or the pushback. It waits for the time that the server
// reported and a random delay, and repeats a call only within MaxWait, the call's deadline and a budget of retries.
//
//	waits := &grpclimit.Client{}
//	cc, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(waits.Unary), grpc.WithChainStreamInterceptor(waits.Stream))
package grpclimit
