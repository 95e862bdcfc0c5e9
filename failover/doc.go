// Package failover keeps a limiter answering while its shared store is unavailable. It wraps a store of package
// synced, lease or redisstore, and falls back to a store of package memory.
//
// A [Store] wraps a shared [sluice.Store], such as Redis, and is a store itself:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	store := failover.New(shared, failover.Config{})
//	defer store.Close()
//
// While the shared store answers, the Store returns its receipts. If the shared store is down, slow, or refuses
// writes, the OnError of each charge decides without delay. The Origin of a receipt shows this. OnError is one of:
//
//   - Deny: the request is denied. If a Take has a charge with Deny that is not a shadow, none of its charges is
//     counted.
//   - Local: a local allowance, which is a fraction of the limit, decides in a fallback in memory.
//   - Allow: the charge is allowed, and counted in the fallback as well.
//
// OnError is a field of a [sluice.Limiter], and on_error in a rule of a policy.
//
// A shared store that answers is healthy, even if it cannot read the value of a key: see [Unreadable]. The charges
// of that key are decided by their OnError, as in an outage. The store decides the other charges of the Take. No
// circuit breaker opens. The log gets at most ten lines a minute about such keys.
//
// During an outage, charges that give back are always allowed, and go to the fallback. Units taken before the outage are
// not given back in the shared store.
//
// # Detection and recovery
//
// A decision waits for the shared store until the deadline, 50 ms by default. At most 1,024 decisions wait at the
// same time. This bounds memory in the first moments of an outage. Further decisions are made at once: by the
// shared store if it can decide without a call to its server, and otherwise locally. Denials from the deny cache of
// the shared store need no wait, and do not prove that its server is alive.
//
// Each part of the store (each master of a cluster) has a circuit breaker. The circuit opens when there were at
// least 20 calls within a second and at least half of them have failed. It also opens when at least five calls in a
// row have failed over a time of at least 300 ms. A single failure starts probes, at most 80 a second, so an outage
// is detected within a second even with few callers, or with callers that do not wait for the deadline. An idle
// store is probed once a second. A canceled call is not a failure, and a short pause of the store does not open the
// circuit, even at a high rate of requests. A store of [OpenLater] is unavailable until it is opened.
//
// With a longer deadline D, it takes longer to detect that a store hangs. While requests arrive, it takes at most D
// plus half a second from the moment when the store begins to hang. Otherwise, it takes about five times D from the
// next probe.
//
// While the circuit of a part is open, a Take with a charge for that part is decided locally as a whole, without
// network and without waiting. One goroutine sends a probe every 400 to 600 ms. Probes write, because a server that
// is loading or read-only still answers reads. After a probe has succeeded, more follow about every 25 ms. When all
// have succeeded for 60 ms, the store is used again. This is less than a second after the server is back. A store
// that fails again within five seconds has to answer for four times as long, up to 900 ms. So an unstable store
// stays unused, and a stable one is used again within two seconds. Each change of state is logged in one line.
//
// Charges in several slots of a cluster are taken slot by slot within one deadline: charges in three slots take
// three round trips. If the masters are far away, keep the keys of a decision together by a common hash tag
// ("together" in a policy), or set a longer deadline. If the slots belong to several masters, decisions that reach the
// deadline in this way do not open a circuit, because each master answers in time. So every such decision waits for
// the whole deadline, and is then made locally.
//
// # The local allowance
//
// The fallback counts as the shared store does, but multiplies each cost by the number of instances: of a limit of
// 7 per second, each of two instances allows 3.5 per second. The allowance is at least one unit. The number of
// instances comes from the last heartbeat, or from Config.Instances. A lower number takes effect only after it has
// lasted for five seconds. Every instance sends heartbeats, even with Config.Instances. A process that starts
// during an outage, without Config.Instances, assumes that it is alone.
//
// An allowance starts at the level that the shared store had when this instance last charged the key or reserved
// units for it ([Observable]). An instance remembers about the last 16,000 keys. A log is assumed to stay as full as
// it was until its newest unit expires.
//
// If a key was in debt ([sluice.Charge].Owe) when the shared store last answered for it, each allowance starts with
// the same debt. Debts that arise in an outage are charged to the shared store after the outage, in addition to the
// use of allowances, even if OnError is Deny or Allow.
//
// After an outage, the use of allowances is written back, at most 500 keys a second. For each key, an instance
// writes back at most its fraction of one burst, so all instances together write back at most one burst. Units that
// have drained or expired in the meantime are left out. Until a key is written back, it continues to be decided
// locally, for at most two seconds. If the shared store's answer to a Take was lost, the Take counts in the
// allowance and is not written back: the shared store may have counted it, and nothing is charged twice. Nor is
// anything given back for a request that Deny denied after a lost or late answer, although the shared store may
// have counted the request. Normally, each outage starts a new allowance. But if every answer for a key is lost, the
// key keeps its allowance until the shared store has answered for it, because each new allowance would allow another
// burst. A debt is not sent again if the answer to it was lost. At most 65,536 keys of up to 1,024 bytes are kept. All
// other keys are limited, too, but start with a full allowance and are not written back. Allowances and debts are lost
// when the process ends.
//
// A penalty ([kernel.Lock]) cannot be divided: during an outage, each instance imposes penalties for offences
// against its own allowance, and does not exchange them with the shared store. So a key that is locked in the
// shared store is not locked during an outage, and a key that is locked in an outage is free after it.
//
// The allowance of permits in flight ([sluice.NewInFlight]) and of distinct values ([sluice.NewDistinct]) is the
// limit divided by the number of instances, and at least one. Neither is copied from the shared store at the start
// of an outage, or written back at its end. At the start and at the end of an outage, the holder of a permit takes
// it again within seconds. Permits that are not taken again expire. A value that is first used in an outage counts
// only in the instance that sees it. A permit that is given back during an outage stays taken in the shared store
// until it expires.
//
// # Bounds on excess
//
// Let B be the burst of a limit (for a window, its count), r its rate, N the number of instances, and T the length
// of the outage as the instances see it. Then a key is allowed at most
//
//	(1 − 1/N)·B + (1 − 1/N)·min(B, r·T) + r·t + u
//
// units above the exact limit during and after the outage. The first term is for allowances that start too full,
// because their instances do not know what other instances have used. This term is zero if each instance sees each
// key. The second term is for units that other instances have used, and have not yet written back when the first
// instance recovers. t is the time until the units of the second term are written back. It is at most the
// difference between the times at which instances detect the outage or its end, plus n/500 seconds if n keys have
// to be written back. The difference is usually less than half a second. u is the number of decisions that the
// store did not count between its failure and the opening of the circuit. This is at most the number of requests
// that arrive in the sum of the deadline, 300 ms and the time of the probes. With the default deadline, the sum is
// half a second.
//
// With two instances the excess is about one burst at worst. With N instances it is up to 2·(1 − 1/N) bursts: 1.33
// with three, and less than two with any number. If each instance sees each key, for example behind a round-robin
// balancer, it is less than one burst with any number of instances. In tests the excess was 0 to 0.7 bursts with
// two instances, and 0 to 0.8 with up to five. If the shared store loses its counts, for example when Redis without
// persistence restarts, one more burst is allowed.
//
// Packages lease and synced make most decisions without a call to the server. They continue while the circuits of
// the store are closed, and for at most 300 ms after the store's last answer. [sluice.Leased] charges add nothing,
// because the store has counted the units before they are spent; t is up to 250 ms longer for them. [sluice.Synced]
// charges add two terms. The first is their excess with a healthy store, (N − 1)·(B + 0.3 s·r). The second is for
// reports that are lost if the store fails while it receives them: at most the units that each instance has allowed
// since its last report, for all instances N·(B + 0.3 s·r). With even traffic, these are the units that an instance
// allows in a tenth of a second. Reports that were not yet sent are sent after the outage.
//
// With a limit of n permits in flight, up to n more can be taken each time the store fails or recovers, until the
// holders of earlier permits have taken them again. A [sluice.Holder] takes its permit again within two seconds. No
// running request is stopped because of this, but no further request starts while too many are under way.
//
// With a limit of n distinct values, n further values can be used in an outage, and n more after it, because the
// store does not know the values of the outage.
//
// If the limit is less than N units, allowances of one unit each exceed the limit. With Allow the excess is unbounded.
package failover
