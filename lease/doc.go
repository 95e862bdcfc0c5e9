// Package lease spends units of a shared store without asking it for each, and never above the limit.
// Packages synced and failover wrap it; it wraps package redisstore.
//
// A [Store] wraps a shared store such as Redis, and is wrapped by a failover.Store:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	leased := lease.New(shared)
//	defer leased.Close()
//	store := failover.New(leased, failover.Config{})
//
// It handles charges that are [sluice.Leased] and whose plan is [sluice.Plan.Leasable], and passes all
// others on. For a key in frequent use, it takes units for the next quarter of a second with one call,
// and spends them on requests as they come. A key in rare use costs a call for each request, as it
// would without a lease, and is counted exactly.
//
// # Nothing is ever admitted above the limit
//
// A reservation is a Take like any other, so the shared level never exceeds the limit, whoever takes.
// It exceeds what has been admitted by the units reserved and not yet spent. All that could go wrong
// is that such a unit drains before it is spent: its room would be given to another process, and
// then it would be spent on top of that. So a unit of a meter may be spent until the level that was
// beneath it when it was reserved would have drained, and not later:
//
//	a unit that was reserved at tick r, at a level of W beneath it, may be spent up to tick
//	r + ⌊(W − G)/Drain⌋, and for [Horizon] at most
//
// where G is as much as all processes together may give back within the horizon: giving back is
// charged to a budget in the same Take, which holds and refills half of that.
//
// Proof. Let L be the shared level, U what a unit adds to it, and N the number of units that are
// reserved and may still be spent or given back. Of these, let W be the level beneath the one that was
// reserved first, at r. All others were reserved on top of it. So at t the level is at least
// W − (t − r)·Drain + N·U, less what was given back since of units beneath it, which is at most G. As
// the first one may still be spent, W − G ≥ (t − r)·Drain, hence L ≥ N·U. Now let E be the level of
// the exact limiter, which is asked at the moments of spending. Then E ≤ L − N·U always: draining takes
// Drain off both sides, and stops at 0 only on the left, as the right side is not below 0; a reservation
// adds U to L and 1 to N; spending adds U to E and takes 1 off N; a unit that is dropped, or lost with
// an answer or a process, takes 1 off N; giving one back takes U off L and 1 off N; and a strict Take
// adds the same to both. So E ≤ L ≤ Size after each Take: the exact limiter admits them all. ∎
//
// The package's tests go through all orders of these steps, with answers late and lost, and find the
// mistake if units live a tick too long, or if the budget is left out.
//
// So leased and strict processes may share a key, reservations need no room of their own, and what
// is not spent drains as if it had been. A unit of a window may be spent as long as the
// server's time is surely in its window: the counts of the exact limiter are never above the shared
// ones, and the previous window only weighs less with time.
//
// An earlier design reserved above the limit, each unit with a time before which it could not be spent.
// Strict processes took the room that it needed, and processes with little demand wasted what they had
// reserved.
//
// The server's time at a moment of this process lies between bounds that follow from a receipt: it
// was Receipt.Now at some time between sending and hearing, by this machine's monotonic clock, which is
// taken to run as fast as the server's to a part in 512. A unit is spent if the latest that the server's
// clock may show is early enough. That is the Now of the receipt, too: at the Nows of all their receipts,
// the exact limiter admits what all processes have admitted.
//
// A cost that is owed ([sluice.Charge].Owe) goes to the store, which may raise the level above the
// limit, and ends the lease of its key in this process, which gives back what it had reserved. Units are reserved only
// by Takes that fit, so no process reserves any until the debt has drained.
//
// What others owe or give back of units that they had spent, and what they reset, is not known here: after
// that, each process may spend, or give back, what it had reserved before, for [Horizon] at most. The same
// holds for a server that has lost its counts, or whose clock was set or is made to run faster than
// that, and when a burst is changed: until all processes have the new one, they do not agree on the size of the
// bucket, nor on the budget.
//
// # What it costs
//
// Units that a process has reserved and does not spend in time are lost, as if they had been admitted:
// what a killed process held, and the rest where demand falls. A process that is idle, or closes, gives
// back what may still be spent, within the budget. Where a level is so low that units would drain
// before they are spent, a process fills it up with units of its own, to at most half of what is free:
// so a bucket that is leased and asked for far below its limit has a quarter to a half less than its
// burst left. Until the level is that high, the store decides.
//
// The horizon of a limit is the time for which its units are reserved ([Ahead]): a quarter of that in
// which a full bucket drains, or [Horizon] if that is less.
//
// At its limit a key is shared in lumps: a process that gets less than it asked for asks again
// a quarter of the horizon later at the soonest, and refuses until then. Its receipts have that as the
// wait, and as what remains what this process has reserved. Where a window is used up they have the
// wait that the store has told of, though it is asked again after a second at most, since others may
// have given back.
//
// Turns of a sliding window counter are a quarter as long. What it has free at one moment and nobody
// takes is not there later: it admits up to 3 % less. Near the end of a window less is reserved.
//
// What calls it saves, and how much less is admitted, for 2 to 1,000 processes and several horizons, is in
// bench/RESULTS-fleet.md.
//
// A key is leased once a process has asked for 8 units of it in a quarter of a second, and for three a horizon,
// if the limit lets at least four pass in that. So many processes with a small burst, whose horizon is short,
// save no calls; a larger burst makes it longer. If it then asks for fewer than 8 units of a bucket in a horizon,
// or for fewer than 4 while the bucket is less than half full, the store decides again. A charge of more than a
// quarter of what passes in a horizon asks the store. At most 4,096 keys are leased at a time in a process. A charge that gives back, or
// resets, ends the lease of its key in this process, and what is reserved is lost: do not lease what is given
// back to often. Policies refuse that.
//
// The bounds of the server's time hold as long as this machine's monotonic clock runs: a machine that is
// suspended may spend what it held when it wakes.
package lease
