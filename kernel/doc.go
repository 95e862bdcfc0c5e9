// Package kernel has the integer arithmetic of limits: what a store does with the state of one key. The stores
// import it, as does package sluice, which compiles a sluice.Limit to a [Plan] and derives a sluice.Decision from a
// [Receipt]. It imports no other package of the module.
//
// Seven algorithms are parameters of five kernels:
//
//   - a meter keeps a level that drains (token bucket, GCRA, leaky bucket),
//   - a window keeps two counts (fixed window, sliding window counter),
//   - a [Log] keeps when units were taken (sliding window log),
//   - a lock keeps the end of the penalty of a key that has exceeded a limit,
//   - [Permits] are held while work is in flight.
//
// To implement a sluice.Store, keep a [State] for each key and [Plan.Fingerprint], and put it through [Plan.Step]:
//
//	state = plan.Step(state, now, cost, &receipt)
//
// [Log] and [Permits] have Step methods of their own. Package storetest holds a store to the rest of the contract.
//
// Time is an argument, in microseconds since the Unix epoch. Every quantity of a plan stays below 2^51, so that
// sums and differences stay below 2^53. Up to there, the doubles of a script, such as that of package redisstore,
// are as exact as int64. This package uses no floats. Nothing here reads a clock, and only [Siblings] is safe for
// concurrent use.
package kernel
