// Package grpclimit limits the calls to a gRPC server, by a whole policy or by one limit, and has a client
// interceptor that waits as servers ask. Programs are above it, packages answer and policy are below.
//
//	rules, err := policyfile.Load("api.yaml")
//	limits := grpclimit.Policy(policy.NewEngine(memory.New(), rules))
//	server := grpc.NewServer(limits.Options()...)
//
// Where there are other interceptors, put [Server.Unary] and [Server.Stream] among them: before
// what is expensive, and behind what finds out who the caller is, if Attributes tell that.
//
// # What rules see
//
// A call is a POST whose path is its full method, as in "match: /shop.Orders/Create", or
// "/shop.Orders/" for all of a service. Metadata are headers, -bin ones with the bytes that they
// stand for; the host is the :authority, which clients may choose. The client is the other end of
// the connection, or whom a trusted proxy names in x-forwarded-for. There is no query and no body:
// rules that go by them have nothing to go by. Health checks and reflection are calls like any
// other: exempt "/grpc.health.v1.Health/" where they are not to count.
//
// A stream counts once, when it is opened, and each of its messages from the client with [Config]
// PerMessage. Calls wait for their turn in a queue, within their deadline; the turn of a
// client that leaves goes to a later call.
//
// # What clients are told
//
// Calls that pass have the fields of package answer as header metadata, such as ratelimit. Refusals
// have them as trailers, and no header, since clients repeat only such calls; and a status:
//
//	RESOURCE_EXHAUSTED  it does not fit: with RetryInfo and QuotaFailure
//	UNAVAILABLE         the store is away, and the rule says deny: with RetryInfo
//	INVALID_ARGUMENT    it lacks what a rule counts by, or says it in two ways
//	PERMISSION_DENIED   it is blocked
//
// The first two have grpc-retry-pushback-ms, too, which clients of gRPC with a retry policy for that
// code obey: it is the time of RetryInfo, or -1 for what will never pass. Answers of the policy's own
// are for HTTP, and not sent.
//
// # Outcomes
//
// A rule with a count, or with a cost that the response tells, is settled when the handler has
// returned, for a unary call before the client has its answer. The status is the one that gateways
// make of a code: OK 200; INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE 400; UNAUTHENTICATED
// 401; PERMISSION_DENIED 403; NOT_FOUND 404; ALREADY_EXISTS, ABORTED 409; RESOURCE_EXHAUSTED 429;
// CANCELLED 499; UNIMPLEMENTED 501; UNAVAILABLE 503; DEADLINE_EXCEEDED 504; all others 500. Headers
// are the header and trailer metadata that the handler has set, and bytes are those of its messages,
// if they are protocol buffers. A handler that has panicked, and one that fails after its client has
// left or its deadline has passed, leave an outcome that nobody knows: the call counts, and costs
// what was estimated. A handler that knows better says so with [Settle].
//
// # Requests in flight
//
// A rule with in_flight counts a call, unary or a stream, until its handler has returned. Messages of a
// stream count for no such rule.
//
// # Clients
//
// [Client] waits before a call for what the server has told of its limits, and repeats unary calls
// that were refused with RetryInfo or the pushback, as package client does for HTTP: no earlier than
// they say, a little later by chance, within MaxWait, the deadline of the call and a budget.
//
//	waits := &grpclimit.Client{}
//	cc, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(waits.Unary), grpc.WithChainStreamInterceptor(waits.Stream))
package grpclimit
