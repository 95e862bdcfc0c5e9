// Package resp is the integration for Redis clients: CL.THROTTLE, compatible with redis-cell, and SLUICE.CHECK,
// SLUICE.PEEK and SLUICE.RESET for the rules of the policy, in RESP2 and RESP3.
//
//	CL.THROTTLE key max_burst count period [quantity]
//
// returns five integers: 1 if limited, else 0; the limit, which is max_burst+1; the remaining units; the seconds
// until quantity fits, or -1 if it fits now or never will; and the seconds until the whole limit is available.
// Seconds are rounded up. A quantity of 0 changes nothing. The rate is exact. If a key is used with another rate,
// its count starts from zero; with another burst, its count is kept.
//
//	SLUICE.CHECK rule [part value ...] [COST n] [ID id]
//	SLUICE.PEEK rule [part value ...] [COST n]
//	SLUICE.RESET rule [part value ...]
//
// name a subject by the key parts of the rule, as written in the policy. Parts and values alternate, so a value
// cannot be taken for an option. CHECK and PEEK return a map, which is an array of names and values in RESP2:
//
//	allowed      1 or 0
//	reason       the reason for a denial: "limit", "blocked", "unavailable" (the store), or "malformed"
//	             (the policy has just changed); "marked" if an allowed request exceeds a rule with
//	             "over: mark"; else ""
//	rule         the name of the most restrictive limit, which the next numbers describe, or of the
//	             rule that blocks
//	limit        the number of units that the limit allows at once
//	remaining    the number of units that remain
//	retry_after  the seconds until the cost fits, rounded up; 0 means now, -1 means never
//	reset_after  the seconds until the whole limit is available, rounded up
//	delay_ms     the milliseconds to wait for a turn in the queue of a leaky bucket
//	limits       an array for each limit of the rule: rule, allowed, limit, remaining, retry_after
//	             and reset_after
//
// The package also answers the commands that clients send when they connect.
package resp
