// Package telemetry counts the decisions of an engine. It reports how many requests each rule allowed, delayed and
// denied over the last minute, hour and day, which subjects sent them, and which alerts are active. The console and
// package promlimit import it. It imports package policy.
//
// [Watch] attaches a [Recorder] to an engine. The Recorder counts every decision, except peeks and refunds. It keeps
// the keys of a bounded number of subjects: those with the most denials and those with the most requests. A [Fleet]
// adds up the counts of several instances in a [View]; the instances exchange them through a [Board]. [LogRefusals]
// and [KeepRefusals] record single denials.
//
// # What it costs
//
// A decision increments a few counters for each rule that applied, and a few for its door, which is the integration
// through which the request came. Cores do not share counters, so a decision takes no lock. It allocates nothing. Once
// a second, and whenever a View is made, the counters are added to a [Series], which has counts for steps of ten
// seconds and of five minutes. With Config.Subjects, a decision also waits for the lock of each rule that applied, and
// allocates the key of a subject that had no request in the last ten seconds.
//
// Memory is bounded, whatever requests contain and however many rules there are:
//
//   - Counters take 2 MiB: 128 bytes for each rule (at most 1,002: [MaxRules], [OtherRules] and [CallerRule]) in each
//     of at most 16 copies for different cores.
//   - A series takes 29 KiB: 32 bytes for each of 360 + 577 steps. All requests together have a series, and each of
//     these rules with traffic has one: 29 MiB at most, and 1.5 MiB for 50 rules.
//   - A door takes 5 KiB. At most 16 doors are counted separately, and all others as one.
//   - A View of 1,000 such rules takes 43 MiB while it is in use, and 29 MiB more while it is made.
//   - Subjects, if they are kept, take up to 41 MiB with 64 rules, and at most 60 MiB with any number of rules. This is
//     without costs from responses. If the responses of all these rules report their cost, subjects take half as much
//     again, and the costs of each such rule take 32 KiB.
//   - An upstream of a gateway takes 200 KiB, and there are at most 101.
//   - The automatic limits of a rule with "in_flight: auto" take 73 KiB.
//
// Each instance posts its counts of the last six minutes every two seconds, or less often if this would be more
// than 16 KiB a second. It posts all of its series once a minute, and its subjects (in some 256 KiB at most), costs and
// automatic limits every five seconds. It posts the latest denials that it keeps, in at most 192 KiB, when there are
// new ones. It also reads the posts of the other instances every two seconds, or only every ten seconds while no View
// is requested. A post has at most 512 KiB: if not all rules fit, the rules at the end of the document are left out. An
// instance ignores posts that it cannot read, such as posts of other versions. No decision waits for this exchange.
// While the shared store is unavailable, a View has the counts of its own instance, and the last posts of the other
// instances.
//
// # What it reports
//
// A [Headline] is bad while a rule denies more requests than usual. Times with an unusual rate do not change the usual
// rate. So a long attack does not become usual, and the alert ends only when the denials decrease. Denials by a block
// do not count. While a large part of many requests is denied, the headline is never good.
//
// A headline is also bad while a large part of the requests to an upstream fails, or while the upstream is slower
// than usual. The usual latency is measured over the latest times in which the upstream was not slow, for an hour in
// total. A few requests never cause an alert. The histograms of all gateways are added up, so the quantiles are those
// of all requests.
//
// A denial is counted for the subject of the rule that denied the request. If the policy has tiers, the denial is
// also counted for the customer that sent the request, under the customer's tier, even if that rule has no tiers.
// [Tier] defines the customer. Different spellings of a name are counted together, and the name is shown in
// one of these spellings.
//
// Counts are exact: the counts of a View are the sums over all instances. Each instance assigns its counts to steps by
// its own clock; the clocks are assumed to agree. A decision may appear up to a second after it was made. A step counts
// up to 2^32-1. An instance without a post for 15 seconds is stale: its later counts are missing. After ten minutes
// without a post, it is removed from the View. It is removed earlier if it reports that it ends, or if another process
// takes its name. Its counts stay for two days.
package telemetry
