// Package sluice limits rates exactly. The stores, package policy and the packages for HTTP and gRPC import it. It
// imports package kernel, which has the integer arithmetic.
//
// A [Limit] is what people write, "100/minute burst 20", and a [Plan] is that limit compiled to integers. There are no
// floats: the arithmetic is exact to the plan's unit of time, a microsecond for most limits (see Tick in
// [kernel.Plan]).
//
// A [Store] keeps the counts. It takes several charges at once, all or none, so that a request denied by one limit uses
// up none of the others. Package memory has a store for one process, and package redisstore has a store for many; both
// give the same answers.
//
// For one limit, or a few that are charged together, use a [Limiter]:
//
//	limit, err := sluice.ParseLimit("100/minute burst 20")
//	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
//	decision, err := limiter.Take(ctx, "alice", 1)
//	if !decision.Allowed {
//		// denied: it fits after decision.RetryAfter
//	}
//
// A [Penalty] locks out a key that exceeds a limit. A [Semaphore] limits how many calls, jobs or connections run at
// the same time.
//
// To limit HTTP requests, use package httplimit. For many limits at once, written in a file, use packages policy
// and policyfile. To write a store, use packages kernel and storetest.
package sluice
