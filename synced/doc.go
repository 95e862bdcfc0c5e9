// Package synced lets each process count for itself and report to the others ten times a second. Of the three ways to
// count (strict, leased and synced), it is the least exact, and makes the fewest calls to the shared store.
//
// A [Store] wraps a shared store, of package redisstore or lease, and is wrapped by a failover.Store:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	counts := synced.New(shared)
//	defer counts.Close()
//	store := failover.New(counts, failover.Config{})
//
// [sluice.Synced] charges are decided in this process, from the shared store's last answer and the units that this
// process has taken since. All other charges go to the shared store, as do charges with a plan that [Can] rejects and
// charges under a [sluice.Penalty]. A Take that has charges of both groups commits all of them or none. Receipts from
// memory have the Origin [sluice.BySync].
//
// Every 100 ms ([Every]), the Store makes one call, with a charge for each key in use. The charge reports the units
// taken in this process to the shared store, and its receipt has the level in the store. So a key costs each
// process at most ten charges a second, at any rate of requests. If the last answer for a key is older than 300 ms,
// the shared store is called before the decision: a rarely used key costs one call for each decision, and one more
// charge in a later report. Up to 65,536 keys are counted in this way; further keys are counted strictly.
//
// # Bounds on excess
//
// Units that other processes have taken and not yet reported can be allowed a second time. With N processes, a limit is
// exceeded by at most
//
//	(N − 1) · (B + r·A)
//
// units, where B is the burst, r the rate, and A = 300 ms the maximum age of the answers from which a process
// decides. For a window, the bound is (N − 1)·B with the count of the window as B. [Excess] returns the bound. It
// is reached if all processes get requests for a whole burst of the same key before their first reports. The excess
// that one process allows is at most the number of units that the others have taken recently: within the duration of
// one call and 400 ms, or 200 ms for a key in constant use.
//
// Proof. When a process i allows a unit, the level that i knows is at most the limit. Let τ be the time of i's last
// answer. The level consists of all reports until τ and of i's own units. i does not know the units that another
// process j had not reported at τ, or has allowed since. When j reports p units at σ, the level V that j receives
// is at least p; until its next report, j allows at most B − V units, plus what drains. So the units that j
// reports after τ, or has allowed and not reported, are at most B plus what drains in A: B + r·A units.
// Reporting units later than they were allowed never lowers the level, so the exact level is at most the level that
// i knows plus, for each other process, these B + r·A units. ∎
//
// Units above the limit are reported as well, as costs that are owed ([sluice.Charge].Owe), and all requests are denied
// until these units have drained: over a longer time, no more than the limit is allowed. If another process counts a
// plan strictly under the same key, units above the Most of that plan ([kernel.Plan]) are lost; use the same policy in
// all processes. A cost that is owed counts in this process at once, and is reported like any other.
//
// # Clocks that step back
//
// When the clock of the store steps back, a bucket counts more units as used than were used. The difference is what
// drains in a time as long as the step. So the level is cut to the sum of the burst, the allowed debt, and the
// [Excess] for the processes that share the store. No key is denied for longer than this level takes to drain. The
// number of processes comes from the heartbeats, which a failover.Store sends every second. A process that has just
// started assumes at least 4 for three seconds. A second after a process has started, all others know of it. Until
// then, the level may be cut to the sum for the earlier number of processes.
//
// A process can also deny slightly too many requests. Units of the last 100 ms drain only from the time of their
// report, so as many units as drain in 100 ms may count as used although they are free. Limits with a burst that
// drains within 200 ms, and windows of less than a second, are counted strictly. Reports under way at the end of a
// window count in the next window.
//
// # Outages of the shared store
//
// For 300 ms, a process decides from memory; then it calls the store, the call fails, and the failover.Store takes
// over. At that time, the process has at most B + r·A unreported units of a key. It reports them after the outage,
// unless they have drained or their window is over. A report under way at the start of the outage may have been
// counted, so it is not sent again: nothing is counted twice. Unreported units of a process that is killed are lost.
// Close reports all of them.
package synced
