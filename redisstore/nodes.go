package redisstore

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// nodesEvery is how often a store requests the nodes of a cluster and their slots. The client library itself finds
// the node for a command. The store only uses the nodes to gather the requests to each node separately, so that a
// silent node does not delay requests to other nodes.
const nodesEvery = 2 * time.Second

// nodes has a batcher for each master of a cluster.
type nodes struct {
	store *Store
	table atomic.Pointer[[slots]*batcher]

	mu       sync.Mutex
	batchers map[string]*batcher // by address
	closed   bool

	stop    context.CancelFunc
	stopped chan struct{}
}

func newNodes(s *Store) *nodes {
	n := &nodes{store: s, batchers: make(map[string]*batcher), stopped: make(chan struct{})}
	var table [slots]*batcher
	for i := range table {
		table[i] = s.batcher // before the first refresh
	}
	n.table.Store(&table)
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.refresh(ctx)
	go n.watch(ctx)
	return n
}

func (n *nodes) batcher(slot uint16) *batcher { return n.table.Load()[slot] }

func (n *nodes) watch(ctx context.Context) {
	defer close(n.stopped)
	tick := time.NewTicker(nodesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.refresh(ctx)
		}
	}
}

// refresh updates the table. If the cluster does not report its slots, the table stays as it is.
func (n *nodes) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, nodesEvery)
	defer cancel()
	command := n.store.client.B().Arbitrary("CLUSTER", "SLOTS").Build()
	ranges, err := n.store.client.Do(ctx, command).ToArray()
	if err != nil {
		return
	}
	table := *n.table.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range ranges {
		first, last, address, ok := slotRange(r)
		if !ok {
			continue
		}
		b := n.batchers[address]
		if b == nil {
			b = &batcher{store: n.store, index: len(n.batchers), closed: n.closed}
			n.batchers[address] = b
		}
		for i := first; i <= last; i++ {
			table[i] = b
		}
	}
	n.table.Store(&table)
}

// slotRange reads an entry of CLUSTER SLOTS: the first and the last slot, the master (address, port and more), and
// its replicas.
func slotRange(m rueidis.RedisMessage) (first, last int64, address string, ok bool) {
	entry, err := m.ToArray()
	if err != nil || len(entry) < 3 {
		return 0, 0, "", false
	}
	master, err := entry[2].ToArray()
	if err != nil || len(master) < 2 {
		return 0, 0, "", false
	}
	first, err1 := entry[0].AsInt64()
	last, err2 := entry[1].AsInt64()
	port, err3 := master[1].AsInt64()
	host, _ := master[0].ToString() // may be missing if the node does not know it; any unique name works here
	ok = err1 == nil && err2 == nil && err3 == nil && 0 <= first && last < slots
	return first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10)), ok
}

func (n *nodes) close() {
	n.stop()
	<-n.stopped
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, b := range n.batchers {
		b.close()
	}
}
