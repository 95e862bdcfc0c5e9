// Package lease reserves units of a shared store in batches and spends them without further calls, never above the
// limit. Packages synced and failover wrap it; it wraps package redisstore.
//
// A [Store] wraps a shared store such as Redis, and is wrapped by a failover.Store:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	leased := lease.New(shared)
//	defer leased.Close()
//	store := failover.New(leased, failover.Config{})
//
// It handles [sluice.Leased] charges with a [sluice.Plan.Leasable] plan, and passes all others on. For a key in
// frequent use, one call reserves units for the next quarter of a second, and requests spend them. A key in rare
// use costs a call for each request, as without a lease, and is counted exactly.
//
// # The limit is never exceeded
//
// A reservation is a Take like any other, so the shared level never exceeds the limit. It exceeds the admitted
// units by those that are reserved and not yet spent. One mistake is possible: such a unit drains before it is
// spent, another process gets its room, and then it is spent as well. So a unit of a meter may be spent only until
// the level beneath it at its reservation has drained:
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
// The package's tests try all orders of these steps, with late and lost answers. They fail if units live a tick too
// long, or if the budget is left out.
//
// So leased and strict processes may share a key, reservations need no additional room, and unspent units drain
// like spent ones. A unit of a window may be spent as long as the server's time is surely in its window: the counts
// of the exact limiter are never above the shared ones, and the previous window only weighs less with time.
//
// An earlier design reserved above the limit, with a time for each unit before which it could not be spent. Strict
// processes took the room that it needed, and processes with little demand wasted their reservations.
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
// A process does not see debts, refunds and resets by others: after one, each process may still spend, or give
// back, the units it had reserved before, for at most [Horizon]. The same applies after a server has lost its counts,
// after its clock was set or slewed faster than that, and after a change of a burst: until all processes have
// the new one, they disagree about the size of the bucket and about the budget.
//
// # What it costs
//
// Reserved units that are not spent in time are lost, as if they had been admitted: those of a killed process, and
// the rest when demand falls. An idle or closing process gives back what may still be spent, within the budget. If
// a level is so low that units would drain before they are spent, a process first fills it up, to at most half of
// what is free: a leased bucket far below its limit has a quarter to a half less left than its burst. Until the
// level is that high, the store decides.
//
// The horizon of a limit is the time for which its units are reserved ([Ahead]): a quarter of the time in which a
// full bucket drains, at most [Horizon].
//
// At its limit a key is divided in lumps: a process that gets less than it requested tries again a quarter of the
// horizon later at the earliest, and denies until then. Its receipts have this as the wait, and the reserved units
// as what remains. For a window that is used up they have the wait of the store's receipt, but the process tries
// again after at most a second, because others may have given back.
//
// Turns of a sliding window counter are a quarter as long. Free units that are not taken at once are lost later: it
// admits up to 3 % less. Near the end of a window less is reserved.
//
// bench/RESULTS-fleet.md has the saved calls and the lost units, for 2 to 1,000 processes and several horizons.
//
// A lease starts once a process has requested 8 units of a key in a quarter of a second, and three in a horizon, if
// the limit allows at least four in a horizon. With a small burst the horizon is short, and many processes save no
// calls; a larger burst makes it longer. The lease ends when the process requests fewer than 8 units of a bucket in
// a horizon, or fewer than 4 while the bucket is less than half full. A charge of more than a quarter of the units
// of a horizon goes to the store. A process leases at most 4,096 keys at a time. A charge that gives back, or
// resets, ends the lease of its key in this process, and its reserved units are lost: do not lease keys with
// frequent refunds. Policies reject that.
//
// The bounds of the server's time hold as long as this machine's monotonic clock runs: a suspended machine may
// spend its reserved units when it wakes.
package lease
