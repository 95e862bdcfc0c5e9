// Package sluice limits rates exactly.
//
// A [Limit] is what people write, "100/minute burst 20", and a [Plan] is that limit
// compiled to integers. Seven algorithms run on three small pieces of arithmetic: a meter
// (token bucket, GCRA, leaky bucket), a window (fixed window, sliding window counter) and
// a log (sliding window log). There are no floats: limits hold exactly, to the tick.
//
// A [Store] counts. It takes any number of charges at once, all or none, so that
// a request refused by one limit uses up none of the others. Package memory has a store
// for one process, package redisstore one for many, with the same answers.
//
// For one limit and nothing else, use a [Limiter]:
//
//	limit, err := sluice.ParseLimit("100/minute burst 20")
//	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
//	decision, err := limiter.Take(ctx, "alice", 1)
//	if !decision.Allowed {
//		// refused: it fits after decision.RetryAfter
//	}
//
// A limiter of several limits charges all or none. [Limiter.TakeLimit] takes the limit as an
// argument. A [Penalty] locks out a key that exceeds a limit, by a fourth piece of arithmetic.
//
// To limit HTTP, use package httplimit. For many limits at once, written in a file, use packages
// policy and policyfile.
package sluice
