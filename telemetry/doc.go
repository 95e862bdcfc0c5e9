// Package telemetry adds up what an engine decides: how many requests each rule let pass, held up
// and refused, now, an hour ago and yesterday; who is refused, and who asks most; and what that
// looks like to somebody who has to do something about it.
//
// [Watch] has a [Recorder] look at every decision of an engine. Only those that are refused or ask
// most are told of by their keys, and of these there is a bounded number. A [Fleet] joins what
// several instances have seen, by way of what they share, into a [View].
//
// # What it costs
//
// A decision adds one for each rule that it met, and a few for its door, to counters that cores do
// not share; it takes no lock and no memory. Once a second, and when somebody looks, what was added
// goes into the series.
//
// Memory is bounded, whatever requests say and however many rules there are. Counters take 64 bytes
// for each of at most 1,002 rules ([MaxRules], [OtherRules], [CallerRule]) and 16 stripes: 1 MiB. A
// series takes 24 bytes for each of 360 + 577 steps: 22 KiB, for each of these rules that has traffic
// and for all requests: 22 MiB at the most, and 1.1 MiB for 50 rules. Doors are at most 17, of 5 KiB. A View of 1,000 such rules takes 36 MiB for as long as it is
// in use, and as much again while it is made. What subjects take comes on top, if they are kept.
//
// Instances post what they count of the last six minutes every two seconds, less often if that is
// more than 16 KiB a second, all series once a minute, and who is refused and asks most every five
// seconds, in 256 KiB at most; each reads what others post, every ten seconds while nobody looks. A post has at most 512 KiB; rules that come later in the document are
// missing in a larger one. Nobody waits for the shared store but this exchange: while it is away, a
// View tells of its own instance, and of others what they had said.
//
// # What it tells
//
// Counts are exact: those of a View are what all its instances have counted, by the steps of their
// clocks, which are taken to agree; a decision may be told in the second after it was made. A step
// counts up to 2^32-1. An instance that has not been heard of for 15 seconds is stale, and what it
// has counted since is missing. After ten minutes, or when another run has its name, it is no instance any
// more; one that ends says so. What they had counted stays for two days.
package telemetry
