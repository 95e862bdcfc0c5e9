// Package redisstore keeps the counts of many processes in Redis or Valkey: one server, Sentinels, or a cluster. Packages
// lease, synced and failover wrap it; package sluice is below it.
//
//	store, err := redisstore.Open(ctx, "redis://localhost:6379")
//	defer store.Close()
//	limiter, err := sluice.NewLimiter(store, "api", limit)
//
// [New] does the same with an existing rueidis client.
//
// Its answers are those of package memory, bit for bit: one Lua script has the same arithmetic as the kernels, and uses
// the time of the server. A Take is one round trip for any number of charges, all or nothing. The server must be Redis
// 6.2 or later, or Valkey.
//
// # Batching
//
// Takes that arrive while others are under way wait for them and are then sent together, in one call of the script, which
// decides each of them separately. Batching adds no delay: a Take that arrives when nothing is under way is sent at once.
// Identical Takes of one call are merged, and get the same answers, so a hot key costs the server little; those of a log
// are not merged.
//
// # Denials
//
// The server's answer to a denied request is remembered for at most a second. As admissions only add to what is
// used, later requests are denied exactly, at any cost, without a call: a client that keeps retrying costs the
// server one call a second in each process. A log is read again when a unit has expired, and for a cost that waits
// for another unit. Permits in flight are always requested from the server, because they are given back all the
// time; if another limit denies, their receipt has the number of permits at the last request. Receipts from memory
// may lack units that other processes have taken since, mostly those of limits that do not deny.
//
// Refunds by this process take effect at once. Resets by another process (a cost of [sluice.All]) take effect
// within milliseconds: they are published on the channel prefix + "resets", and each store subscribes to it.
// Refunds by others take effect within some 60 ms: they are collected for 50 ms, so a process publishes at most 20
// messages a second, and fewer if more than ten processes subscribe. A refund after which more than ten times its
// units remain is not published, because the key was hardly denied before. Such a refund takes effect when the
// remembered denial expires, after a second at most. So does a loss of the server's counts. The same holds for
// resets and refunds without a subscription: before the first one, while a lost one is retried (at once, then less
// often, down to every half minute), without the permissions (see [Store.Dangers]), behind a proxy that does not
// support it, and for more than 4096 states a second. None of this is an error. The message has the key, encrypted
// if a HashKey is set.
//
// # Keys
//
// A state is a short string under the prefix, a fingerprint of the kind of limit, and the charge's key: see
// [Config]. It expires when it is equal to the empty state, or somewhat later: by up to an eighth of the limit's
// period, or of the time to drain a full bucket. Permits in flight and distinct values are a sorted set: the
// members are their numbers (8 bytes each), and the scores the times when they expire, in microseconds. The set
// expires [kernel.PermitLasts], or the period of the values, after the last of these times.
//
// # Posts
//
// Instances may leave messages for each other next to the counts: see [Store.Post]. They are encrypted if a HashKey is
// set. Any client with write permission on the server may post anything.
//
// # Errors
//
// Take returns an [*Error] if it could not decide; package failover decides then. If a key holds a value that this
// package did not write, only Takes of that key fail: see [ForeignState]. A request that may have been executed is never
// sent again. It is retried only when the server reports that it did not run (NOSCRIPT, MOVED, ASK).
//
// # Cluster
//
// Charges of one Take are atomic if their keys start with the same hash tag: see [Store.Take]. Other charges take a round
// trip for each hash slot, one after the other, all within the context of the Take: first the slots that denied before,
// then lower rates before higher ones. Slots may move at any time.
//
// # The client library
//
// It is rueidis. With calls of a script that decides 64 requests at once, measured on one machine, it took two thirds of
// the CPU time of go-redis for 1.4 times the decisions. It never repeats a command that writes, and follows MOVED and
// ASK; go-redis by default retries commands that may have been executed. Its automatic pipelining is disabled: this
// package batches requests, and a call with its own connection does not need one goroutine to write and another to read.
// As neither library always honours a context, callers wait on a channel of this package, and not for the library.
package redisstore
