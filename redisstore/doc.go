// Package redisstore keeps the counts of many processes in Redis or Valkey: one server,
// Sentinels, or a cluster.
//
//	store, err := redisstore.Open(ctx, "redis://localhost:6379")
//	defer store.Close()
//	limiter, err := sluice.NewLimiter(store, "api", limit)
//
// [New] does the same over a rueidis client that a program has already.
//
// Its answers are those of package memory, bit for bit: one Lua script has the same
// arithmetic as the kernels, and the time is the server's. A Take is one round trip
// however many charges it has, and all or nothing. Redis 6.2 or later is needed.
//
// # Gathering
//
// Takes that come while others are under way wait for those and are then sent together,
// in one call of the script that decides each of them for itself. Nothing waits on
// purpose: a Take that comes when nothing is under way is sent at once. Takes of one call
// that ask for the same are coalesced, with the same answers, so that a hot key costs the
// server little; those of a log are not.
//
// # Refusals
//
// What the server has said of a request that it refused is remembered for at most a second.
// As admissions only add to what is used, later requests are refused exactly, at any cost,
// and without a call: one who keeps asking costs the server a call a second in each
// process. A log is asked again when a unit has expired, and for a cost that waits for
// another unit than the last did. A leaky bucket is always asked: its places are given back
// whenever a client hangs up. So are places in flight, which are given back all the time; how many
// were taken when the server was last asked is told where another limit refuses. In such a receipt, what others have meanwhile taken may be
// missing, most of all from layers that do not refuse.
//
// What this process gives back counts at once. So does, within milliseconds, what another process
// resets (a cost of [sluice.All]): it is told on the channel prefix + "resets", to which each store
// subscribes (go test -run '^$' -bench ResetHeard ./redisstore). Refunds by others, and a server
// that has lost its counts, are noticed after that second. So are resets while there is no
// subscription: before the first one, while one that was lost is asked for again (at once, then
// less and less often, down to every half a minute), without the rights (see [Store.Dangers]), and
// behind a proxy that has none; and so are resets beyond 4096 states a second. None of this is an
// error. The message has the key, encrypted if there is a HashKey.
//
// # Keys
//
// A state is a short string under the prefix, a fingerprint of the kind of limit, and
// the charge's key: see [Config]. It expires when it says no more than the empty state,
// or up to an eighth of the limit's period or of the time to drain a full bucket later.
// Places in flight are a sorted set of their numbers (8 bytes each) by when they end, in
// microseconds. It expires [sluice.PlaceLasts] after the last has ended.
//
// # Posts
//
// Instances may leave what they have to say for each other next to the counts: see [Store.Post].
// They are encrypted if there is a HashKey. Whoever may write to the server may post anything.
//
// # Errors
//
// Take returns an [*Error] where it could not decide. What to do then is for package
// failover to say. Where a key holds what is no state of ours, only the Takes of that key get
// one: see [ForeignState]. A request that may have been executed is never sent again. It is
// retried only when the server says that it did not run (NOSCRIPT, MOVED, ASK).
//
// # Cluster
//
// Charges of one Take are atomic if their keys begin with the same hash tag: see
// [Store.Take]. Others take a round trip for each hash slot, one after the other, all
// within the context of the Take: first those that are the most likely to refuse, which is
// what has refused before, and then lower rates before higher ones. Slots may move at any
// time.
//
// # The client library
//
// It is rueidis. With calls of a script that decides 64 requests at once, measured on one
// machine, it took two thirds of the CPU time of go-redis for 1.4 times the decisions. It
// repeats no command that writes, and follows MOVED and ASK, where go-redis repeats by
// default what may have been executed. Its automatic pipelining is switched off: requests
// are gathered here, and a call that has a connection for itself needs no goroutine to
// write and another one to read. As neither library always honours a context, callers do
// not wait for the library but on a channel of ours.
package redisstore
