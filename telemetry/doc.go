// Package telemetry counts what an engine decides: how many requests each rule let pass, delayed and
// denied, now, an hour ago and yesterday; whose requests; and which of it needs attention. The console and
// promlimit are above it, package policy is below.
//
// [Watch] has a [Recorder] look at every decision of an engine. Only subjects that are refused or ask
// most are kept by their keys, and only a bounded number of them. A [Fleet] joins what several
// instances have seen into a [View], by way of a store that they share.
//
// # What it costs
//
// A decision adds one for each rule that it met, and a few for its door, to counters that cores do
// not share; it takes no lock and allocates nothing. Once a second, and when somebody looks, what was
// added goes into the series.
//
// Memory is bounded, whatever requests say and however many rules there are. Counters take 64 bytes
// for each of at most 1,002 rules ([MaxRules], [OtherRules], [CallerRule]) and 16 stripes: 1 MiB. A
// series takes 28 bytes for each of 360 + 577 steps: 26 KiB, for each of these rules that has traffic
// and for all requests: 26 MiB at the most, and 1.3 MiB for 50 rules. There are at most 17 doors, of
// 5 KiB each. A View of 1,000 such rules takes 36 MiB while it is in use, and 52 MiB more while it
// is made. Subjects, if they are kept, come on top.
//
// Instances post their counts of the last six minutes every two seconds, less often if that would be
// more than 16 KiB a second; all series once a minute; and who is refused and asks most every five
// seconds, in at most 256 KiB. Each reads what the others post, every ten seconds while nobody looks. A
// post is at most 512 KiB; the rules at the end of the document are missing from a larger one. Only
// this exchange waits for the shared store: while it is away, a View shows its own instance, and the
// last that the others said.
//
// # What it tells
//
// A [Headline] is bad news while a rule refuses more than usual. The usual is learned from time that was
// not itself unusual, so an attack that lasts does not become the usual, and the alert ends when the
// refusals fall. Refusals by a block are no news. While a large share of all requests is refused, the
// headline is never good.
//
// A refusal is counted for the subject of its rule, and for the customer that sent the request, by the
// customer's tier: a rule without tiers refuses customers, too. Names are folded to be counted, and shown
// as they were sent.
//
// Counts are exact: those of a View are what all its instances have counted, by the steps of their
// clocks, which are assumed to agree; a decision may appear up to a second after it was made. A step
// counts up to 2^32-1. An instance that has not been heard from for 15 seconds is stale, and what it
// has counted since is missing. After ten minutes, or when another run takes its name, it is no longer
// an instance; one that ends says so. What they counted stays for two days.
package telemetry
