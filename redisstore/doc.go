// Package redisstore keeps the counts of many processes in Redis or Valkey: one server, Sentinels, or a
// cluster. Packages lease, synced and failover wrap it; package sluice is below it.
//
//	store, err := redisstore.Open(ctx, "redis://localhost:6379")
//	defer store.Close()
//	limiter, err := sluice.NewLimiter(store, "api", limit)
//
// [New] does the same with an existing rueidis client.
//
// Its answers are those of package memory, bit for bit: one Lua script has the same
// arithmetic as the kernels, and the time is the server's. A Take is one round trip
// however many charges it has, and all or nothing. Redis 6.2 or later is needed.
//
// # Batching
//
// Takes that arrive while others are under way wait for those and are then sent together,
// in one call of the script, which decides each of them separately. There is no artificial
// delay: a Take that arrives when nothing is under way is sent at once. Identical Takes of one
// call are coalesced, and get the same answers, so that a hot key costs the server little;
// those of a log are not.
//
// # Refusals
//
// The server's answer to a refused request is remembered for at most a second.
// As admissions only add to what is used, later requests are refused exactly, at any cost,
// and without a call: a client that keeps retrying costs the server a call a second in each
// process. A log is asked again when a unit has expired, and for a cost that waits for
// another unit than the last did. Places in flight are always asked for, since they are given back all
// the time; if another limit refuses, their receipt says how many were taken when the server was last
// asked. Receipts
// from memory may lack what others have taken since, above all for limits that do not refuse.
//
// What this process gives back counts at once. What another process resets (a cost of [sluice.All])
// counts within milliseconds: it is published on the channel prefix + "resets", to which each store
// subscribes. Refunds by others count within some 60 ms: they are gathered for 50 ms, so that a process publishes at most 20 messages a second,
// and fewer where more than ten processes subscribe. A refund that leaves more than ten times its
// units is not published, since others would hardly have been refused without it. It is noticed after
// that second, and so is a server that has lost its counts. So are resets and refunds while there is no
// subscription: before the first one, while a lost one is retried (at once, then
// less and less often, down to every half minute), without the rights (see [Store.Dangers]), and
// behind a proxy that does not support it; and so are those beyond 4096 states a second. None of this is an
// error. The message has the key, encrypted if there is a HashKey.
//
// # Keys
//
// A state is a short string under the prefix, a fingerprint of the kind of limit, and
// the charge's key: see [Config]. It expires when it is equal to the empty state,
// or up to an eighth of the limit's period or of the time to drain a full bucket later.
// Places in flight and distinct values are a sorted set of their numbers (8 bytes each) by when they end, in
// microseconds. It expires [kernel.PermitLasts], or the period of the values, after the last has ended.
//
// # Posts
//
// Instances may leave messages for each other next to the counts: see [Store.Post].
// They are encrypted if there is a HashKey. Anyone who may write to the server may post anything.
//
// # Errors
//
// Take returns an [*Error] if it could not decide; package failover says what happens then.
// If a key holds a value that this package did not write, only Takes of that key fail: see
// [ForeignState]. A request that may have been executed is never sent again. It is
// retried only when the server says that it did not run (NOSCRIPT, MOVED, ASK).
//
// # Cluster
//
// Charges of one Take are atomic if their keys begin with the same hash tag: see
// [Store.Take]. Others take a round trip for each hash slot, one after the other, all
// within the context of the Take: first those most likely to refuse: those
// that have refused before, then lower rates before higher ones. Slots may move at any
// time.
//
// # The client library
//
// It is rueidis. With calls of a script that decides 64 requests at once, measured on one
// machine, it took two thirds of the CPU time of go-redis for 1.4 times the decisions. It
// repeats no command that writes, and follows MOVED and ASK, where go-redis by
// default retries commands that may have been executed. Its automatic pipelining is switched off:
// requests are batched here, and a call with a connection of its own does not need one goroutine
// to write and another to read. As neither library always honours a context, callers wait on
// a channel of ours, and not for the library.
package redisstore
