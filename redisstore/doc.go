// Package redisstore keeps the counts of many processes in Redis or Valkey: one server, Sentinels, or a cluster.
// Packages lease, synced and failover wrap its [Store]. It imports package sluice.
//
//	store, err := redisstore.Open(ctx, "redis://localhost:6379")
//	defer store.Close()
//	limiter, err := sluice.NewLimiter(store, "api", limit)
//
// [New] makes a store from an existing rueidis client.
//
// The server's answers are the same as those of package memory, bit for bit: a Lua script does the same arithmetic as
// package kernel, by the clock of the server. For answers without a call to the server, see Denials. A Take is one
// round trip, and commits all of its charges or none. The server must be Redis 6.2 or later, or Valkey.
//
// # Batching
//
// While fewer than two calls of the script are running, a Take is sent at once, so batching adds no delay. Further
// Takes wait. When a call returns, or when no call was sent for 2 ms, they are sent together in one call, which decides
// each of them separately. Identical Takes in a call are sent as one, together with the number of Takes, so a hot key
// costs the server little. The answers are the same as if they had been decided one after the other. Takes are merged
// only if all of their charges are of buckets and windows, and none of them peeks, refunds or sets Owe.
//
// # Denials
//
// The store remembers the server's answer to a denied request for at most a second. Other processes can only add to the
// units in use, unless they give units back. So the store can compute whether a later request, of any cost, is certain
// to be denied, and then denies it without a call: a client that keeps retrying costs the server one call a second in
// each process. For a log, the store calls the server again as soon as a unit has expired. It also calls the server if
// it does not know when enough units for the request will have expired. A lack of permits in flight is never remembered
// as a denial, because permits are given back all the time. If a request takes a permit, too, and is denied from memory
// because of another limit, its receipt for the permit reports how many permits were held at the last call. A Take that
// charges distinct values is never denied from memory. Receipts from memory may lack units that other processes have
// taken since the last call. This mostly affects the receipts of limits that do not deny the request.
//
// Refunds by this process take effect at once. Resets by another process (a cost of [sluice.All]) take effect within
// milliseconds: they are published on the channel prefix + "resets", to which each store subscribes. Refunds by other
// processes are collected for 50 ms and take effect within some 60 ms, so a process publishes at most 20 messages a
// second. With more than ten subscribers, refunds are collected for 5 ms times the number of subscribers: with 20
// processes, for 100 ms. The messages have the keys, encrypted if a HashKey is set.
//
// In the following cases, denials may be outdated until the remembered answer expires, after a second at most. None
// of these cases is an error:
//
//   - The server has lost its counts.
//   - Another process made a small refund and did not publish it. A process does not publish a refund if the key then
//     has more than ten times as many free units as were refunded, because such a key was probably not being denied.
//   - The store has no subscription. It has not subscribed yet; or it has lost its subscription and is retrying, at
//     once and then at growing intervals of up to 45 seconds; or the user lacks the permissions (see [Store.Dangers]);
//     or a proxy in front of the server does not support subscriptions.
//   - Other processes publish resets and refunds of more than 4096 keys in a second.
//
// # Keys
//
// The state of most limits is a short string. Its name in Redis consists of the prefix, a fingerprint of the kind of
// limit, and the charge's key or, if the key is long, a hash of it: see [Config]. The state of a window expires when
// nothing of its count is left, the state of a log up to an eighth of the period later, and the state of a bucket up to
// an eighth of the time in which a full bucket drains. The state of a window or a log that is more than half used stays
// longer still, so that volatile-ttl does not evict it before other keys. The additional time is an eighth of the
// period for a fixed window, nine eighths for a sliding window, and a whole period for a log. The state of permits in
// flight and of distinct values is a sorted set: the members are the numbers of the permits or values (8 bytes each),
// and the scores are the times when they expire, in microseconds. A set of permits expires [kernel.PermitLasts] after
// the last of these times. A set of values expires one period after the last of its times.
//
// # Posts
//
// Instances can leave messages for each other next to the counts: see [Store.Post]. The messages are encrypted if a
// HashKey is set. Any client with write permission on the server can post anything.
//
// # Errors
//
// Take returns an [*Error] if it could not decide. Then package failover decides. If a key contains a value that
// this package did not write, only Takes of that key fail: see [ForeignState]. A call is sent again only if it did
// not run: the server replied with NOSCRIPT, TRYAGAIN, MOVED or ASK, or no node has the hash slot at the moment.
//
// # Cluster
//
// Charges of one Take are atomic if their keys start with the same hash tag: see [Store.Take]. Other charges take a
// round trip for each hash slot, one after the other, all within the context of the Take. Slots that denied before come
// first. Of the other slots, those with the limits of the lowest rates come first. Slots may move to other masters at
// any time.
//
// # The client library
//
// The client library is rueidis. In a measurement on one machine, with calls of a script that decides 64 requests
// at once, rueidis made 1.4 times as many decisions as go-redis, and took two thirds of its CPU time. rueidis never
// repeats a command that writes, and follows MOVED and ASK. By default, go-redis retries commands that may have
// been executed. The automatic pipelining of rueidis is disabled: this package batches requests, and a call with
// its own connection does not need one goroutine to write and another to read. Because neither library always
// honors a context, callers wait on a channel of this package, and not for the library.
package redisstore
