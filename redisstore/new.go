package redisstore

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/rueidis"
)

// Keys has the settings for the names of keys of a [Store] made by [New]: see [Config].
type Keys struct {
	Prefix  string // [DefaultPrefix] if empty
	HashKey []byte
}

// New returns a store over an existing client of a single server, Sentinels or a cluster. New inspects the server
// and loads the script. It returns the same errors as [Config.Open]. [Store.Close] leaves the client open: close
// the client yourself, after the store. If Store.Close has to wait for a server that does not answer, closing the
// client ends the wait.
//
// The client must send writes to masters: it must not have ReplicaOnly, and its SendToReplicas must return false for
// commands that are not read-only. Calls of the script are not repeated, whatever DisableRetry is. These options are
// recommended, and [Open] sets them:
//
//   - ConnWriteTimeout: 5 s. If the answer to a call is lost, the client waits for it this long. Callers do not wait
//     beyond their contexts, but Close does. More than 24 such calls at a time delay other calls.
//   - DisableAutoPipelining, with a BlockingPoolSize of 50: this package gathers requests itself, and a connection for
//     each call costs less.
//
// The store subscribes to the resets of other processes on a connection of the client, and Close unsubscribes.
//
// New cannot check the connections of the client, as Open does. So after a restart of the server, the first calls
// may end with an error of kind Unknown. And a reply that no Redis would send may make the client panic, on a
// goroutine of its own.
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
		c.Master = "the client's" // the client finds it
	}
	if err := c.inspect(ctx, client); err != nil {
		return nil, c.explain(err, false)
	}
	if client.Mode() == rueidis.ClientModeSentinel {
		if _, replica := greet(ctx, client); replica {
			return nil, &Error{Misconfigured, errors.New("the client sends writes to a replica, which takes none: ReplicaOnly must not be set, and SendToReplicas must return false for commands that are not read-only")}
		}
	}
	return newStore(client, true, new(conns), c), nil
}
