package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	openFor    = 4 * time.Second // timeout of Open
	connectFor = 2 * time.Second // timeout of connecting, including TLS and the first commands
	// callFor is the timeout of a call of the script. During a planned change of its role, a server may pause its
	// clients for this long. If a server is gone, TCP detects it sooner.
	callFor = 5 * time.Second
)

// Open connects to the server at a URL (see [ParseURL] for the forms). It takes about five seconds at most. If the
// settings are wrong, its error names the one to change.
func Open(ctx context.Context, url string) (*Store, error) {
	c, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	return c.Open(ctx)
}

// Open connects to the server. It takes about five seconds at most. The error is an [*Error]. Its kind is
// Misconfigured if another attempt with the same settings would fail, too.
func (c Config) Open(ctx context.Context) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openFor)
	defer cancel()
	conns := new(conns)
	client, err := c.connect(ctx, conns)
	if err != nil {
		return nil, c.explain(err, true)
	}
	if err := c.inspect(ctx, client); err != nil {
		client.Close()
		return nil, c.explain(err, true)
	}
	warm(ctx, client)
	return newStore(client, false, conns, c), nil
}

// warm makes connections in advance, so that no decision has to wait for one. It sends PINGs at the same time, and
// each PING without a free connection gets a new one. So the farther away the server is, the more connections are
// made.
func warm(ctx context.Context, client rueidis.Client) {
	ctx, cancel := context.WithTimeout(ctx, connectFor/2)
	defer cancel()
	var greetings sync.WaitGroup
	for _, node := range client.Nodes() {
		for range maxWorkers {
			greetings.Go(func() { _ = node.Do(ctx, node.B().Arbitrary("PING").Build()).Error() })
		}
	}
	greetings.Wait()
}

func (c Config) options(conns *conns) rueidis.ClientOption {
	dialer := net.Dialer{
		Timeout:         connectFor,
		KeepAlive:       15 * time.Second, // how often rueidis pings its own idle connections
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3},
	}
	return rueidis.ClientOption{
		InitAddress:       c.Addrs,
		Username:          c.Username,
		Password:          c.Password,
		SelectDB:          c.DB,
		TLSConfig:         c.TLS,
		Dialer:            dialer,
		DialCtxFn:         conns.dial,
		ConnWriteTimeout:  callFor,
		ForceSingleClient: !c.Cluster && c.Master == "",
		Sentinel: rueidis.SentinelOption{
			Dialer: dialer, TLSConfig: c.TLS, MasterSet: c.Master,
			Username: c.SentinelUsername, Password: c.SentinelPassword,
			TopologyRefreshInterval: nodesEvery,
		},
		ClusterOption: rueidis.ClusterOption{MaxMovedRedirections: 8, ShardsRefreshInterval: nodesEvery},
		// Each call has its own connection: the worker writes the call and reads the answer, without other
		// goroutines in between.
		DisableAutoPipelining: true,
		BlockingPoolSize:      maxWorkers + maxLost + 2, // and two for other commands
		ReadBufferEachConn:    1 << 16,
		WriteBufferEachConn:   1 << 16,
		RingScaleEachConn:     6,
		// Commands are not repeated. The library follows MOVED and ASK nevertheless.
		DisableRetry:  true,
		DisableCache:  true,
		ClientSetInfo: rueidis.DisableClientSetInfo,
	}
}

// connect calls rueidis.NewClient, and returns an error if ctx ends first.
func (c Config) connect(ctx context.Context, conns *conns) (rueidis.Client, error) {
	type result struct {
		client rueidis.Client
		err    error
	}
	connected := make(chan result, 1)
	go func() {
		client, err := rueidis.NewClient(c.options(conns))
		if err != nil && client != nil {
			client.Close()
		}
		if err == nil && ctx.Err() != nil {
			client.Close()
		}
		connected <- result{careful{client}, err}
	}()
	select {
	case r := <-connected:
		return r.client, r.err
	case <-ctx.Done():
		return nil, &dialError{errors.New("no answer in time")}
	}
}

// inspect checks that the server is a single server, a cluster or a master, as c requires, and that the user has
// the permissions. It loads the script.
func (c Config) inspect(ctx context.Context, client rueidis.Client) error {
	if c.Cluster && client.Mode() != rueidis.ClientModeCluster {
		return &Error{Misconfigured, fmt.Errorf("%s is not a node of a cluster: use redis:// instead of redis-cluster://", c.Addrs[0])}
	}
	if !c.Cluster && c.Master == "" {
		if err := c.inspectSingle(ctx, client); err != nil {
			return err
		}
	}
	return c.prepareAll(ctx, client)
}

// inspectSingle checks the mode and the role of a single server.
func (c Config) inspectSingle(ctx context.Context, client rueidis.Client) error {
	var problem string
	switch mode, replica := greet(ctx, client); {
	case mode == "cluster":
		problem = "is a node of a cluster: use redis-cluster:// (Config.Cluster)"
	case mode == "sentinel":
		problem = "is a Sentinel: use redis-sentinel://, with the name of the master after the address (Config.Master)"
	case replica:
		problem = "is a replica and takes no writes: give the address of its master, or of Sentinels with redis-sentinel://"
	default:
		return nil
	}
	return &Error{Misconfigured, fmt.Errorf("%s %s", c.Addrs[0], problem)}
}

// greet returns the mode of the server that gets the client's writes, and whether it is a replica. Old servers do not
// report them.
func greet(ctx context.Context, client rueidis.Client) (mode string, replica bool) {
	hello, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).ToMap()
	if err != nil {
		return "", false
	}
	field := func(name string) string {
		m := hello[name]
		text, _ := m.ToString()
		return text
	}
	role := field("role")
	return field("mode"), role == "replica" || role == "slave"
}

// prepareAll prepares all nodes that answer in time. It fails if no node answers, or if a node refuses commands
// that decisions need: each node has its own users. A node that joins later gets the script with its first call:
// see [worker.send].
func (c Config) prepareAll(ctx context.Context, client rueidis.Client) error {
	nodes := client.Nodes()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	errs := make(chan error, len(nodes))
	for address, node := range nodes {
		go func() { errs <- c.prepare(ctx, address, node) }()
	}
	ready := false
	var failed error
	for range nodes {
		err := <-errs
		switch {
		case err == nil:
			ready = true
		case failed == nil || denied(err):
			failed = err
		}
	}
	if ready && !denied(failed) {
		return nil
	}
	return failed
}

// denied reports whether an error of [Config.prepare] means that the user lacks permissions.
func denied(err error) bool {
	if err == nil {
		return false
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind == Misconfigured
	}
	return failure(err).Kind == Denied
}
