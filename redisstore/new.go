package redisstore

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/rueidis"
)

// Keys are how a [Store] of [New] names its keys: see [Config].
type Keys struct {
	Prefix  string // [DefaultPrefix] if empty
	HashKey []byte
}

// New returns a store over an existing client of a single server, Sentinels or a cluster. It inspects the server,
// and loads the script; errors are those of [Config.Open]. Close leaves the client open. Close it afterwards, or
// before: that also ends a wait of Close for a server that does not answer.
//
// Any client will do that sends writes to masters: ReplicaOnly is refused, and SendToReplicas must be false for
// commands that are not read-only. Nothing is sent twice, whatever its DisableRetry. These options are recommended,
// and [Open] sets them:
//
//   - ConnWriteTimeout: 5 s. A call stays under way for this time if its answer is lost. No
//     caller waits for it longer than its context, but Close does, and more than 24 such calls
//     at a time hold up others.
//   - DisableAutoPipelining, with a BlockingPoolSize of 50: requests are gathered here, and a
//     connection for each call costs less.
//
// The store subscribes to the resets of others on a connection of the client, and Close
// unsubscribes.
//
// Unlike Open, New cannot check a connection before it is used: after a restart of the server, the first calls may
// end with an error of kind Unknown. Open also checks replies before the client reads them; a client of its own
// panics at some that no Redis sends.
func New(ctx context.Context, client rueidis.Client, k Keys) (*Store, error) {
	if client == nil {
		return nil, &Error{Misconfigured, errors.New("New needs a client: rueidis.NewClient makes one, and Open connects by itself")}
	}
	client = careful{client}
	ctx, cancel := context.WithTimeout(ctx, openFor)
	defer cancel()
	c := Config{Prefix: k.Prefix, HashKey: k.HashKey, Cluster: client.Mode() == rueidis.ClientModeCluster}
	for address := range client.Nodes() {
		c.Addrs = append(c.Addrs, address)
	}
	slices.Sort(c.Addrs)
	if !c.Cluster {
		c.Addrs = c.Addrs[:min(1, len(c.Addrs))]
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if client.Mode() == rueidis.ClientModeSentinel {
		c.Master = "the client's" // which the client finds
	}
	if err := c.inspect(ctx, client); err != nil {
		return nil, c.explain(err, false)
	}
	return newStore(client, true, new(conns), c), nil
}
