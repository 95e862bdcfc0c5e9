// Package telemetry counts the decisions of an engine. It reports how many requests each rule allowed, delayed
// and denied over the last minute, hour and day, which subjects sent them, and which alerts are active. The
// console and promlimit are above it, package policy is below.
//
// [Watch] attaches a [Recorder] to an engine, which sees every decision. It keeps the keys of the subjects that are
// refused or ask most, and a bounded number of them. A [Fleet] joins what several instances have counted into a
// [View], by way of a [Board] that they share. [LogRefusals] and [KeepRefusals] keep single refusals.
//
// # What it costs
//
// A decision adds one for each rule that it met, and a few for its door, to counters that cores do
// not share; it takes no lock and allocates nothing. The series take up these counters once a second, and
// for each View. With subjects, a decision also waits for the lock of each rule that it met, and a subject that was
// not seen in the last ten seconds allocates its key.
//
// Memory is bounded, whatever requests contain and however many rules there are. Counters take 128 bytes
// for each of at most 1,002 rules ([MaxRules], [OtherRules], [CallerRule]) and 16 stripes: 2 MiB. A
// series takes 32 bytes for each of 360 + 577 steps: 29 KiB, for each of these rules that has traffic
// and for all requests: 29 MiB at most, and 1.5 MiB for 50 rules. There are at most 17 doors, of
// 5 KiB each. A View of 1,000 such rules takes 43 MiB while it is in use, and 29 MiB more while it
// is made. Subjects, if they are kept, take 41 MiB more for up to 64 rules, and at most 60 MiB; half of
// that again if the responses of all these rules report their cost. The costs of such a rule take 32 KiB.
// An upstream of a gateway takes 200 KiB, and there are at most 101.
//
// Instances post their counts of the last six minutes every two seconds, less often if that would be
// more than 16 KiB a second; all series once a minute; and the subjects every five seconds, in some 256
// KiB at most. Each reads the posts of the others, every ten seconds while no View is requested. A post is at
// most 512 KiB; the rules at the end of the document are missing from a larger one. An instance ignores posts that
// it cannot read, such as those of other versions. Only this exchange waits for the shared store: while the store is
// unavailable, a View has its own instance, and the last posts of the others.
//
// # What it reports
//
// A [Headline] is bad news while a rule refuses more than usual. The usual is learned from time that was
// not itself unusual, so an attack that lasts does not become the usual, and the alert ends when the
// refusals fall. Refusals by a block are no news. While a large part of all requests is refused, the
// headline is never good.
//
// An upstream is bad news while a large part of its requests fails, or while it is slower than usual, which is the last
// hour in which it was not slow. A few requests are never news. Gateways add up their histograms, so the quantiles are
// those of all requests.
//
// A refusal is counted for the subject of its rule, and for the customer that sent the request, by the
// customer's tier: a rule without tiers refuses customers, too. Names are folded to be counted, and shown
// as they were sent.
//
// Counts are exact: those of a View are the sum of all its instances, by the steps of their
// clocks, which are assumed to agree; a decision may appear up to a second after it was made. A step
// counts up to 2^32-1. An instance that has not been heard from for 15 seconds is stale, and what it
// has counted since is missing. After ten minutes, or when another run takes its name, it is no longer
// an instance; one that ends reports it. Their counts stay for two days.
package telemetry
