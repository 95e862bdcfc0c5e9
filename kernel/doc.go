// Package kernel has the integer arithmetic of limits: it computes how a charge changes the state of one key. The
// stores import it, as does package sluice, which compiles a sluice.Limit to a [Plan] and derives a sluice.Decision
// from a [Receipt]. It imports no other package of the module.
//
// Five kernels implement the seven algorithms of package sluice, penalties and permits:
//
//   - a meter keeps a level that drains (token bucket, GCRA, leaky bucket),
//   - a window keeps two counts (fixed window, sliding window counter),
//   - a [Log] keeps when units were taken (sliding window log),
//   - a lock keeps the end of the penalty of a key that has exceeded a limit,
//   - [Permits] keep which requests are in flight, or which distinct values were used.
//
// To implement a sluice.Store, keep a [State] for each key and [Plan.Fingerprint], and put it through [Plan.Step]:
//
//	state = plan.Step(state, now, cost, &receipt)
//
// [Log] and [Permits] have Step methods of their own. Package storetest tests the rest of a store's contract.
//
// Time is an argument, in microseconds since the Unix epoch. Every quantity of a plan is at most 2^51, so that
// sums and differences stay below 2^53. Integers below 2^53 are exact in doubles, too, so scripts can use them, for
// example the Lua script of package redisstore. This package uses no floats, and reads no clock. Of its types that
// change, only [Siblings] is safe for concurrent use.
package kernel
