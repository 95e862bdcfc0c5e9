// Package lease reserves units of a shared store in batches and spends them without further calls, never above the
// limit.
//
// A [Store] wraps a shared store such as Redis, and is wrapped by a failover.Store:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	leased := lease.New(shared)
//	defer leased.Close()
//	store := failover.New(leased, failover.Config{})
//
// It handles [sluice.Leased] charges with a [sluice.Plan.Leasable] plan, and passes all other charges on. For a key
// in frequent use, one call reserves the units for up to a quarter of a second, and requests spend these units. For
// a key in rare use, each request calls the shared store, as without a lease, and is counted exactly.
//
// # The limit is never exceeded
//
// A reservation is a Take like any other, so the shared level never exceeds the limit. The shared level contains
// the admitted units, and the reserved units that are not yet spent. One case must be prevented: a reserved unit
// drains before it is spent, another process takes the free room, and then the reserved unit is spent as well. The
// level of a bucket drains, and a reservation puts its units on top of the level. So a unit may be spent only until
// the level beneath it has drained:
//
//	a unit that was reserved at tick r, at a level of W beneath it, may be spent up to tick
//	r + ⌊(W − G)/Drain⌋, and for [Horizon] at most
//
// where Drain is what drains in a tick, and G is the most that all processes together can give back within
// [Horizon]. G is bounded by a budget: a Take that gives units back also charges them to the budget, which holds
// half of G, and refills by at most the other half within [Horizon].
//
// Proof. Let L be the shared level, U what a unit adds to it, and N the number of units that are reserved and may
// still be spent or given back. Let W be the level beneath the first of these units, which was reserved at r. All
// others were reserved on top of it. So at t the level is at least W − (t − r)·Drain + N·U, less the units beneath
// the first unit that were given back after r, which are at most G. Because the first unit may still be spent, W −
// G ≥ (t − r)·Drain, hence L ≥ N·U. Now let E be the level of an exact limiter, which is charged when units are
// spent. Then E ≤ L − N·U always, because each step preserves the inequality:
//
//   - Draining takes Drain off both sides. If E stops at 0, E is not above the right side, which is never below 0.
//   - A reservation adds U to L and 1 to N for each unit.
//   - Spending a unit adds U to E and takes 1 off N.
//   - Dropping a unit, or losing it with an answer or a process, takes 1 off N.
//   - Giving a unit back takes U off L and 1 off N.
//   - A strict Take adds the same to E and L.
//
// So E ≤ L ≤ Size after each Take: the exact limiter admits every unit that is spent. ∎
//
// The package's tests try all orders of these steps, with late and lost answers. They fail if units can be spent
// for a tick longer, or without a budget.
//
// So leased and strict processes can share a key, a reservation needs no room beyond the limit, and unspent units
// drain like spent ones.
//
// The proof above is for buckets. A unit of a window may be spent as long as the server's time is certainly in its
// window. The limit is not exceeded, because the counts of the exact limiter are never above the shared counts, and
// the weight of the previous window never rises within a window.
//
// An earlier design reserved units above the limit, and gave each unit a time before which it could not be spent.
// Strict processes took the room that this design needed, and processes with little demand wasted their
// reservations.
//
// The bounds of the server's present time follow from a receipt: the server's clock showed Receipt.Now at some
// moment between the sending of the request and the arrival of the receipt. The time since then is measured by this
// machine's monotonic clock, whose speed is assumed to differ from the speed of the server's clock by at most one
// part in 512. A unit is spent if the latest time that the server's clock can show is early enough. This latest
// time is also the Now of the new receipt: if an exact limiter were charged at the Nows of all receipts, it would
// admit everything that all processes have admitted.
//
// A cost that is owed ([sluice.Charge].Owe) goes to the store, and may raise the level above the limit. The process
// that sends it ends its lease of the key, and gives back its reserved units. Units are reserved only by Takes that
// fit, so no process reserves units until the debt has drained.
//
// A process does not see the debts, refunds and resets of other processes. For at most [Horizon] after such a
// change, each process can spend or give back the units that it had reserved before. This is also true after a
// server has lost its counts, and after its clock was set, or slewed by more than one part in 512. It is true after
// a change of a burst, too: until all processes have the new burst, they disagree about the size of the bucket and
// about the budget.
//
// # What it costs
//
// Reserved units that are not spent in time are lost, as if they had been admitted. A killed process loses its
// reserved units, and a process loses some when demand falls. An idle or closing process gives back the units that
// could be spent, within the budget. If the level is so low that reserved units would drain before they are spent, a
// process first raises the level: it reserves more units than it needs, at most half of the free ones. So if a
// leased bucket is far below its limit, a quarter to a half of its burst is not available. Until the level has been
// raised, the store decides.
//
// The horizon of a limit is the time for which its units are reserved ([Ahead]): [Horizon], or a quarter of the
// time in which a full bucket drains, if that is shorter.
//
// At its limit, a key is divided among the processes unevenly: a process that gets fewer units than it requested
// tries again a quarter of the horizon later at the earliest, and denies until then. Receipts from this process
// show the time until it tries again as the wait, and its reserved units as the remaining units. For a window that
// is used up, they show the wait of the store's receipt. But the process tries again after at most a second,
// because other processes may have given back units.
//
// For a sliding window counter, the process tries again after a sixteenth of the horizon. Units become free until
// the window ends. Those that no process has reserved by then are lost, because the next window also admits at most
// Count units in total. So such a limit admits up to 3 % less. Near the end of a window, fewer units are reserved.
//
// bench/RESULTS-fleet.md has the saved calls and the lost units, for 2 to 1,000 processes and several horizons.
//
// A lease starts when a process has requested 8 units of a key in a quarter of a second, and at a rate of at least
// three units in a horizon. The limit must allow at least four units in a horizon. With a small burst, the horizon
// is short. If many processes share such a limit, each requests too few units in a horizon for a lease. A larger
// burst makes the horizon longer. No further units of a bucket are reserved while the process requests fewer than 8 of
// them in a horizon, or fewer than 4 if the bucket is less than half full. The lease ends when the process requests
// nothing for a second, or fewer than 2 units in a horizon. A charge of more than a quarter of the units that pass in a
// horizon goes to the store. A process leases at most 4,096 keys at a time. A charge that gives back,
// or resets, ends the lease of its key in this process, and the reserved units of the lease are lost. So do not
// lease keys with frequent refunds; a policy that does so is rejected.
//
// The bounds of the server's time hold only while this machine's monotonic clock runs: a machine that was suspended
// can spend its reserved units too late.
package lease
