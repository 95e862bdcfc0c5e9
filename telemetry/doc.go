// Package telemetry counts the decisions of an engine. It reports how many requests each rule allowed, delayed and
// denied over the last minute, hour and day, which subjects sent them, and which alerts are active.
//
// [Watch] attaches a [Recorder] to an engine. It counts every decision, and keeps the keys of a bounded number of
// subjects: those with the most refusals and requests. A [Fleet] joins the counts of several instances into a
// [View], over a [Board] that they share. [LogRefusals] and [KeepRefusals] keep single refusals.
//
// # What it costs
//
// A decision increments a counter for each rule that counted the request, and a few for its integration. Cores do
// not share these counters; a decision takes no lock and allocates nothing. The counters are moved to the series
// once a second, and for each View. With subjects, a decision also waits for the lock of each of these rules, and a
// subject that was not seen in the last ten seconds allocates its key.
//
// Memory is bounded, whatever requests contain and however many rules there are. Counters take 128 bytes for each
// of at most 1,002 rules ([MaxRules], [OtherRules], [CallerRule]) and 16 stripes: 2 MiB. A series takes 32 bytes
// for each of 360 + 577 steps: 29 KiB, for each of these rules that has traffic and for all requests: 29 MiB at
// most, and 1.5 MiB for 50 rules. At most 17 integrations are counted, with 5 KiB each. A View of 1,000 such rules
// takes 43 MiB while it is in use, and 29 MiB more while it is made. Subjects, if they are kept, take 41 MiB more
// for up to 64 rules, and at most 60 MiB; half of that again if the responses of all these rules report their cost.
// The costs of such a rule take 32 KiB. An upstream of a gateway takes 200 KiB, and at most 101 are counted.
//
// Instances post their counts of the last six minutes every two seconds, less often if that would be more than 16
// KiB a second; all series once a minute; and the subjects every five seconds, in some 256 KiB at most. Each reads
// the posts of the others, every ten seconds while no View is requested. A post is at most 512 KiB; the rules at
// the end of the document are missing from a larger one. An instance ignores posts that it cannot read, such as
// those of other versions. Only this exchange waits for the shared store: while the store is unavailable, a View
// has the counts of its own instance, and the last posts of the others.
//
// # What it reports
//
// A [Headline] is bad while a rule refuses more than usual. The usual rate is learned only from times that were not
// unusual themselves, so a long attack does not become usual, and the alert ends when the refusals fall. Refusals
// by a block never raise an alert. While a large part of all requests is refused, the headline is never good.
//
// The Headline is also bad while a large part of an upstream's requests fails, or while an upstream is slower than
// usual: than in the last hour in which it was not slow. A few requests never raise an alert. Gateways add up their
// histograms, so the quantiles are the quantiles of all requests.
//
// A refusal is counted for the subject of its rule, and for the customer that sent the request, in the customer's
// tier, even if the rule has no tiers. Names are counted in their folded form, and shown as they were sent.
//
// Counts are exact: the counts of a View are the sums over all its instances, by the steps of their clocks, which
// are assumed to agree. A decision may appear up to a second after it was made. A step counts up to 2^32-1. An
// instance is stale if it has not posted for 15 seconds; its counts since then are missing. After ten minutes, or
// when another run takes its name, it is no longer listed; an instance that ends reports that itself. The counts of
// such instances stay for two days.
package telemetry
