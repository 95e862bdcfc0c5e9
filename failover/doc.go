// Package failover keeps a limiter answering when the shared store does not. Policies and limiters ask it;
// it wraps package synced, lease or redisstore, and package memory is its fallback.
//
// A [Store] wraps a shared [sluice.Store], such as Redis, and is a store itself:
//
//	shared, err := redisstore.Open(ctx, "redis://127.0.0.1")
//	store := failover.New(shared, failover.Config{})
//	defer store.Close()
//
// While the shared store answers, its receipts are passed on. If it does not, because it
// is down, slow, or refuses writes, the charge's OnError decides, at once, and
// the receipts' Origin says so:
//
//   - Deny: the request is refused. If any charge of a Take that is not a shadow says so,
//     nothing is counted.
//   - Local: a share of the limit decides, in a stand-in in memory.
//   - Allow: the charge passes, and is counted in the stand-in as well.
//
// A [sluice.Limiter] has it as a field, and a rule of a policy as on_error.
//
// A shared store that answers is healthy, even if it cannot read what it has under a key:
// see [Unreadable]. Such a charge is decided by its OnError, as while the store is away,
// and the others of its Take by the store, all or none. No circuit opens. The log names
// the key, at most ten in a minute.
//
// In an outage, charges that give back always pass, and go to the stand-in. Units taken before the
// outage are not given back in the shared store.
//
// # Away, and back
//
// A decision waits for the shared store until the deadline, 50 ms. At most 1,024 wait at
// the same time, and others are decided locally at once, so that the first moments of an
// outage cost little memory. Refusals from the shared store's deny cache need no wait,
// and do not count as a sign of life. A circuit breaker for each part of the store (each master
// of a cluster) opens when half of at least 20 calls within a second have failed, or when
// five or more have failed, over at least 300 ms, and none has succeeded meanwhile. A single failure is followed up by probes, at
// most 80 a second, so that an outage is also detected within a second if there are few callers, or
// callers that do not wait for the deadline. An idle store is
// probed once a second. A caller that goes away is no failure, and a hiccup at a high rate
// does not open the circuit. A store of [OpenLater] that has not been opened is away from
// the start.
//
// With a longer deadline D, a store that hangs is detected later: at most half a second after D
// if there are callers, and five times D after the next probe if there are none.
//
// While a circuit is open, a decision costs no network and no wait, and a Take with a
// charge for that part is decided locally as a whole. Every 400 to 600 ms a probe is
// sent, by one goroutine and not by callers. Probes write, since a server that is
// loading or read-only answers reads. When all of those sent within 60 ms have
// succeeded the store is in use again, less than a second after its return. A store that
// failed again within five seconds has to answer for four times as long, up to 900 ms:
// one that comes and goes stays away, and one that is back for good is used within two
// seconds. Each change of state is one line in the log.
//
// Charges that are on several masters of a cluster are taken one after the other, within
// one deadline: three of them are three round trips. Where the masters are far away, keep
// the keys of a decision together by a common hash tag ("together" in a policy), or set a
// longer deadline. Decisions that run out of time in this way do not open a circuit,
// because each master answers in time by itself: every one of them waits for the whole
// deadline, and is decided locally.
//
// # The local share
//
// A share is counted as the limit is, but every unit costs as much as there are instances:
// 7 per second by two is 3.5 per second. It is at least one unit. The number of instances
// is that of the last heartbeat, or Config.Instances; a lower count has to last for
// five seconds first. Every instance sends heartbeats, also one with that setting. A service that starts while the
// shared store is away, without that setting, assumes that it is alone.
//
// A share begins where the shared store was when this instance saw the key last, or reserved units of
// it ([Overheard]), as far as it is remembered (about the last 16,000 keys). A log is taken to be as
// full as it was until its newest unit expires.
//
// A key that owed the shared store more than its limit when the store was last seen
// ([sluice.Charge].Owe) owes each share that, too. What it comes to owe during an outage is owed to the
// shared store on return, in addition to what follows, even where OnError is Deny or Allow.
//
// On return, what a share has used is written back: at most a share of one burst for each
// key, so at most one burst from all instances, nothing that time has given back already,
// and at most 500 keys a second. A key that waits for that is decided locally, for at most
// two seconds. Decisions whose outcome is unknown, because the shared store was asked and
// did not answer, are counted in the share and not written back: it may have counted them,
// and nothing is charged twice. So a request that Deny has refused because the answer was
// lost or late may have been counted all the same, and nothing is given back: whether it was
// counted cannot be known. A key of which all decisions end like that has one share
// until the shared store answers for it. Nor is a debt sent again whose answer was lost.
// Up to 65,536 keys are kept; those above it are limited, but begin with a full share and
// are not written back. Shares and debts are lost when the process ends.
//
// A [kernel.Lock] has no parts: each instance keeps the penalties of its own share. They are
// neither taken over from the shared store nor written back. So a key locked out there has a share of
// the limit while the store is away, and one locked out here is free when the store is back.
//
// Of places in flight ([sluice.NewInFlight]) and distinct values ([sluice.NewDistinct]) a share is an Nth of them, and at
// least one. Nothing is
// taken over or written back: whoever holds a place takes it again within seconds, there as here, and
// what nobody takes again ends by itself. A value that is used in an outage counts there only. A place that is given back while the store is away stays
// taken there until its end.
//
// # How much too much
//
// With burst B (the count of a window), rate r, N instances, and an outage of T for the
// instances, a key is admitted beyond the exact limit by at most
//
//	(1 − 1/N)·B + (1 − 1/N)·min(B, r·T) + r·t + u
//
// units in and after the outage. The first term is for shares whose instances have not
// seen what others had used before; it is zero if each instance sees each key. The
// second is for what others have used and not written back when the first instance is
// back; t is that delay, at most the difference in when the instances find the store away
// or back, mostly below half a second, plus n/500 seconds if n keys wait. u is the number
// of decisions that the store was asked for and has not counted: those between its failure and the
// opening of the circuit, at most what is asked in a deadline, 300 ms and the probes in between, which is
// half a second with the default deadline.
//
// With two instances that is about one burst at the worst. With more it is up to
// 2·(1 − 1/N): 1.33 bursts with three, and below two with any number. It is less than one
// with any number where each instance sees each key, as behind a balancer that deals
// requests out in turn. In tests it was 0 to 0.7 bursts with two, and 0 to 0.8 with up to
// five. A shared store that has forgotten its counts, as Redis without persistence does
// when it is restarted, admits one burst more of its own.
//
// Charges that the shared store is not asked for each time (package lease, package synced) are
// decided as before while its parts are in use, and for 300 ms at the most after it has answered
// last. [sluice.Leased] ones add nothing, since what is spent has been counted before: t is up to
// 250 ms longer for them. [sluice.Synced] ones add what they may be above the limit while the store
// answers, (N − 1)·(B + 0.3 s·r), and what is lost if the store goes down while it is told: of each
// instance at most what it has let pass since it told last, so in all at most N·(B + 0.3 s·r), and
// of traffic that comes evenly what passes in a tenth of a second. What has not been told by then is
// told once the store is back.
//
// Of n places in flight, up to n more may be given each time that the store goes or comes back, until
// those that were held before have been taken again, by a [sluice.Holder] within two seconds. No
// request is ended for that: where those under way are too many, no other begins.
//
// Of n distinct values, n more may be used in an outage, and as many again when the store is back, since it does not
// know those.
//
// Where the limit is less than N units, a share of one unit each is more than the limit.
// With Allow there is no bound: every request passes.
package failover
