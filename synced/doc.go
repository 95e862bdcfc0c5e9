// Package synced lets each process count for itself and report to the others ten times a second. Of the
// three ways to count it is the least exact, and calls the shared store least. Package failover wraps it;
// it wraps package lease or redisstore.
//
// A [Store] wraps a shared store, such as Redis, and is wrapped by a failover.Store:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	counts := synced.New(shared)
//	defer counts.Close()
//	store := failover.New(counts, failover.Config{})
//
// Charges that are [sluice.Synced] are decided here, from the shared store's last answer and what
// this process has taken since. All other charges are passed on, as are those whose plan [Can]
// rejects and those that a [sluice.Penalty] watches. A Take of both kinds is all or nothing. Receipts that come from memory have the Origin [sluice.BySync].
//
// Every 100 ms ([Every]), one call has a charge for each key in use: it tells
// the shared store what was taken here, and returns what is known there. So a key costs each process
// at most ten charges a second, however often it is asked for. If the last answer
// about a key is older than 300 ms, the shared store is asked before deciding, so that a key in rare
// use costs a call each time, and one charge later on. Up to 65,536 keys are counted here; any more
// are counted strictly.
//
// # How much too much
//
// What the others have taken and not yet told is admitted once more. With N processes a limit is
// exceeded by at most
//
//	(N − 1) · (B + r·A)
//
// units, where B is the burst, r the rate, and A how old what a process knows may be, 300 ms. Of a
// window it is (N − 1)·B with the count of the window as B. [Excess] returns it. It is reached where
// all processes are asked for a whole burst of the same key before they have heard of each other. A
// process never lets pass more above the limit than the others have in the 400 ms and the time of a
// call before, and in the 200 ms before for a key that is asked for all the time.
//
// Proof. When a process i lets a unit pass, what it knows of is at most the limit: all that was told
// until τ, when it heard last, and its own. What it does not know of another process j is what j had
// not told at τ, and what j has let pass since. When j tells p units at σ, the level that it hears, V,
// is at least p; until it tells again it lets pass at most Size − V and what drains. So what j tells
// after τ, and has let pass and not told, is at most Size and what drains in A: B + r·A units. Telling
// units later than they were let pass never makes the level lower, so the exact level of all is at
// most what i knows of and the sum of these over the others. ∎
//
// Units above the limit are reported as well, as costs that are owed ([sluice.Charge].Owe), and all requests are
// refused until they have drained: over a longer time no more passes than the limit allows. A
// plan that is counted strictly by another process under the same key forgets what is above its
// Most; have all processes use the same policy. A cost that is owed counts here at once, and is
// reported like any other.
//
// # Clocks that step back
//
// A bucket whose store's clock steps back looks fuller than it is, by what drains in the length of the step. It is
// cut to what it may hold: its burst, what may be owed, and [Excess] for as many processes as share the store.
// So no key waits longer than that takes to drain. The number of processes comes from the heartbeats, which a
// failover.Store sends every second. A process that has just started assumes at least 4 for three seconds. Until all
// have heard of a new one, which takes a second, what is above the limit may be cut to the number before.
//
// In the other direction, a little is lost. What was taken within the last 100 ms drains from when it
// was told, so a process may be refused while up to what drains in that time is free; limits with a
// burst of less than twice that, and windows of less than a second, are counted strictly. What is
// on its way at the end of a window is counted in the next one.
//
// # When the shared store goes away
//
// For 300 ms a process decides from what it knows; then it asks, and the failover.Store takes over.
// What it has taken and not told by then is at most B + r·A. It is told when the store is back,
// unless it has drained or its window is over by then. What was being told at that moment may have
// been counted, and is not told again: nothing is counted twice. What a process that is killed has
// not told is not counted. One that is closed tells all of it.
package synced
