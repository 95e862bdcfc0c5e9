// Package failover keeps a limiter answering while its shared store is unavailable. It wraps package synced, lease
// or redisstore, and falls back to package memory.
//
// A [Store] wraps a shared [sluice.Store], such as Redis, and is a store itself:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	store := failover.New(shared, failover.Config{})
//	defer store.Close()
//
// While the shared store answers, the Store returns its receipts. If the shared store is down, slow, or refuses writes,
// the OnError of each charge decides without delay, and the receipts' Origin shows it:
//
//   - Deny: the request is denied. If any charge of a Take that is not a shadow has Deny, nothing is counted.
//   - Local: a local allowance, which is a fraction of the limit, decides in a fallback in memory.
//   - Allow: the charge is allowed, and counted in the fallback as well.
//
// OnError is a field of a [sluice.Limiter], and on_error in a rule of a policy.
//
// A shared store that answers is healthy, even if it cannot read the value of a key: see [Unreadable]. The charges
// of that key are decided by their OnError, as in an outage. The store decides the other charges of the Take, all
// or none. No circuit breaker opens. The log names at most ten such keys a minute.
//
// During an outage, charges that give back are always allowed, and go to the fallback. Units taken before the outage are
// not given back in the shared store.
//
// # Detection and recovery
//
// A decision waits for the shared store until the deadline, 50 ms by default. At most 1,024 decisions wait at the
// same time. Further ones are decided at once, from the shared store's memory or else locally. This bounds memory
// in the first moments of an outage. Denials from the deny cache of the shared store need no wait, and do not prove
// that its server is alive.
//
// Each part of the store (each master of a cluster) has a circuit breaker. It opens when half of at least 20 calls
// within a second have failed, or when at least five calls over at least 300 ms have failed and none has succeeded.
// A single failure starts probes, at most 80 a second, so an outage is detected within a second even with few
// callers, or with callers that do not wait for the deadline. An idle store is probed once a second. A canceled
// call is not a failure, and a short pause at a high rate does not open the circuit. A store of [OpenLater] is
// unavailable until it is opened.
//
// With a longer deadline D, a store that hangs is detected later: at most half a second after D while there are calls,
// and otherwise five times D after the next probe.
//
// While a circuit is open, a decision needs no network and no wait. A Take with a charge for that part is decided
// locally as a whole. One goroutine sends a probe every 400 to 600 ms. Probes write, because a server that is loading
// or read-only answers reads. The store is used again when all probes within 60 ms have succeeded, less than a second
// after its return. A store that failed again within five seconds has to answer for four times as long, up to 900 ms:
// an unstable store stays unused, and a stable one is used within two seconds. Each change of state is logged in one
// line.
//
// Charges on several masters of a cluster are taken one after the other within one deadline: three charges take three
// round trips. If the masters are far away, keep the keys of a decision together by a common hash tag ("together" in a
// policy), or set a longer deadline. Decisions that reach the deadline in this way do not open a circuit, because each
// master answers in time: every such decision waits for the whole deadline and is then decided locally.
//
// # The local allowance
//
// The fallback counts the limit as the shared store does, except that each unit costs as many units as there are
// instances: of a limit of 7 per second, two instances have 3.5 per second each. The allowance is at least one
// unit. The number of instances comes from the last heartbeat, or from Config.Instances. A lower number takes
// effect only after it has lasted for five seconds. Every instance sends heartbeats, even with Config.Instances. A
// process that starts during an outage, without Config.Instances, assumes that it is alone.
//
// An allowance starts at the level that the shared store had when this instance last used the key, or reserved
// units of it ([Overheard]). An instance remembers about the last 16,000 keys. A log is assumed to stay as full as
// it was until its newest unit expires.
//
// A key that owed the shared store more than its limit ([sluice.Charge].Owe) when the store was last reached owes
// this to each allowance, too. Debts that arise in an outage are charged to the shared store after it, in addition
// to the units below, even if OnError is Deny or Allow.
//
// After an outage, the use of allowances is written back, at most 500 keys a second. For each key, this is at most
// the allowance of one burst, so at most one burst from all instances. Units that have drained or expired since are
// left out. A key that waits for its turn is decided locally, for at most two seconds. If the answer to a decision
// was lost, the decision counts in the allowance and is not written back, because the shared store may have counted
// it, and nothing is charged twice. For the same reason a request that Deny denied after a lost or late answer may
// have been counted, and nothing is given back. A key with only lost answers has one allowance until the shared
// store answers for it. A debt is not sent again if its answer was lost. At most 65,536 keys are kept; further keys
// are limited, but start with a full allowance and are not written back. Allowances and debts are lost when the
// process ends.
//
// A [kernel.Lock] cannot be divided: each instance keeps the penalties of its own allowance, and does not exchange them
// with the shared store. So a key that is locked there has an allowance during an outage, and a key that is locked here
// is free after it.
//
// The allowance of permits in flight ([sluice.NewInFlight]) and of distinct values ([sluice.NewDistinct]) is an Nth of
// the limit, and at least one. Neither is taken over or written back: the holder of a permit takes it again within
// seconds, in either direction, and permits that are not taken again expire. A value that is first used in an outage
// counts only there. A permit that is given back during an outage stays taken in the shared store until it expires.
//
// # Bounds on excess
//
// With a burst B (the count of a window), a rate r, N instances, and an outage of T for the instances, a key is allowed
// at most
//
//	(1 − 1/N)·B + (1 − 1/N)·min(B, r·T) + r·t + u
//
// units above the exact limit during and after the outage. The first term is for allowances of instances that have not
// seen the use by others; it is zero if each instance sees each key. The second term is the use by others that is not
// yet written back when the first instance recovers. t is that delay: at most the difference between the times at which
// instances detect the outage or its end, mostly less than half a second, plus n/500 seconds if n keys wait. u is the
// number of requested decisions that the store did not count, from its failure until the circuit opens: at most the
// requests within a deadline, 300 ms and the probes in between, which is half a second with the default deadline.
//
// With two instances this is about one burst at worst. With more it is up to 2·(1 − 1/N) bursts: 1.33 with three,
// and less than two with any number. It is less than one burst with any number if each instance sees each key, for
// example behind a round-robin balancer. In tests the excess was 0 to 0.7 bursts with two instances, and 0 to 0.8
// with up to five. A shared store that loses its counts, such as Redis without persistence at a restart, allows one
// burst more.
//
// Packages lease and synced decide without a call for each charge. They continue while the parts of the store are
// in use, and for at most 300 ms after its last answer. [sluice.Leased] charges add nothing, because the store has
// counted the units before they are spent; t is up to 250 ms longer for them. [sluice.Synced] charges add two
// terms. The first is their excess with a healthy store, (N − 1)·(B + 0.3 s·r). The second is the units in reports
// that are lost if the store fails while it receives them: at most the units that each instance has allowed since
// its last report, in all N·(B + 0.3 s·r). With even traffic, these are the units that it allows in a tenth of a
// second. Reports that were not yet sent are sent after the outage.
//
// With a limit of n permits in flight, up to n more may be given each time the store fails or recovers, until the
// earlier ones have been taken again. A [sluice.Holder] takes them again within two seconds. No request is ended
// because of this; while too many are under way, no other starts.
//
// With a limit of n distinct values, n more may be used in an outage, and n more after it, because the store does
// not know the values of the outage.
//
// If the limit is less than N units, allowances of one unit each exceed the limit. With Allow the excess is unbounded.
package failover
