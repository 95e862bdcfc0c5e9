package redistest

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Cluster is a running Redis Cluster.
type Cluster struct {
	Nodes    []*Server // all nodes; those that were masters at the start come first
	Masters  []*Server
	Replicas []*Server // Replicas[i] replicates Masters[i % len(Masters)]
	// Prefix is the prefix of the test's keys in a shared cluster. It is empty in other clusters.
	Prefix string

	elections map[*Server]time.Time // by node: when FailOver last made the node hold an election
}

// nodeTimeout is so long that nodes on a busy machine do not consider each other failed.
const nodeTimeout = 5 * time.Second

// StartCluster starts a cluster of a number of masters, each with a number of replicas.
func StartCluster(t testing.TB, masters, replicas int, settings ...string) *Cluster {
	t.Helper()
	c := prepareCluster(t, masters, replicas, settings...)
	for _, s := range c.Nodes {
		s.start()
	}
	c.waitOK(t)
	for _, s := range c.Replicas {
		testkit.Await(t, "the replica is connected to its master", func() bool { return s.Info("master_link_status") == "up" })
	}
	return c
}

// prepareCluster returns a cluster that has not yet been started.
func prepareCluster(t testing.TB, masters, replicas int, settings ...string) *Cluster {
	t.Helper()
	c := new(Cluster)
	for range masters * (1 + replicas) {
		c.Nodes = append(c.Nodes, prepare(t, Binaries(t)[0], append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10), "--cluster-port", strconv.Itoa(testkit.Port(t)),
			"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0",
		}, settings...)...))
	}
	c.Masters, c.Replicas = c.Nodes[:masters], c.Nodes[masters:]
	name := rand.Uint64() // so that no node mistakes a node of another cluster for one of its own
	for i, s := range c.Nodes {
		s.write("nodes.conf", c.config(name, i))
	}
	return c
}

// config returns the configuration with which a node starts. It contains the whole cluster. Nodes that had to meet
// each other would learn the cluster gradually, and meanwhile give clients only a part of it.
func (c *Cluster) config(name uint64, myself int) string {
	masters, shards := len(c.Masters), c.Nodes[0].hasShards()
	id := func(i int) string { return fmt.Sprintf("%016x%024x", name, i) }
	var b strings.Builder
	for i, s := range c.Nodes {
		flags := ""
		if i == myself {
			flags = "myself,"
		}
		fmt.Fprintf(&b, "%s %s@%s", id(i), s.Addr, busPort(s))
		if shards {
			fmt.Fprintf(&b, ",,shard-id=%s", id(i%masters))
		}
		b.WriteByte(' ')
		if i < masters {
			fmt.Fprintf(&b, "%smaster - 0 0 %d connected %d-%d\n", flags, i+1, i*16384/masters, (i+1)*16384/masters-1)
		} else {
			fmt.Fprintf(&b, "%sslave %s 0 0 %d connected\n", flags, id(i%masters), i%masters+1)
		}
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", masters)
	return b.String()
}

// hasShards reports whether the server's configuration contains the shard of each node, as in Redis since 7.2 and
// in Valkey. A node without this entry invents a shard, and then a replica is in a different shard than its master.
func (s *Server) hasShards() bool {
	s.t.Helper()
	out, err := exec.Command(s.Binary, "--version").Output()
	if err != nil {
		s.t.Fatalf("%s --version: %v", s.Binary, err)
	}
	_, version, _ := strings.Cut(string(out), " v=")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		s.t.Fatalf("%s --version says %q: %v", s.Binary, out, err)
	}
	return major > 7 || major == 7 && minor >= 2
}

func busPort(s *Server) string {
	return s.args[slices.Index(s.args, "--cluster-port")+1]
}

// waitOK waits until every node reports that the cluster is ok, and knows the owner of each slot and the replicas
// of each master. Then every node gives clients the whole cluster.
func (c *Cluster) waitOK(t testing.TB) {
	t.Helper()
	for _, s := range c.Nodes {
		for _, want := range []string{
			"cluster_state:ok", "cluster_slots_assigned:16384", "cluster_slots_ok:16384", fmt.Sprint("cluster_known_nodes:", len(c.Nodes)),
		} {
			testkit.Await(t, s.Addr+" reports "+want, func() bool { return slices.Contains(strings.Fields(s.Do("CLUSTER", "INFO")), want) })
		}
	}
	c.Settle(t)
}

// Settle waits until all nodes agree on the owners of slots, and on replicas. If changes are faster than the gossip
// of the nodes, the nodes disagree for a long time.
func (c *Cluster) Settle(t testing.TB) {
	t.Helper()
	testkit.Await(t, "the nodes agree", func() bool {
		views := map[string]bool{}
		for _, s := range c.Nodes {
			views[c.view(s)] = true
		}
		return len(views) == 1
	})
}

// view returns a node's view of the cluster: the slots and epochs of the masters, and the masters of the replicas.
func (c *Cluster) view(s *Server) string {
	var nodes []string
	for line := range strings.Lines(s.Do("CLUSTER", "NODES")) {
		f := strings.Fields(line) // id, address, flags, master, ping, pong, epoch, state, slots
		if !strings.Contains(f[2], "master") {
			nodes = append(nodes, f[0]+" follows "+f[3])
			continue
		}
		own := slices.DeleteFunc(f[8:], func(slots string) bool { return strings.HasPrefix(slots, "[") })
		nodes = append(nodes, f[0]+" "+f[6]+" "+strings.Join(own, " "))
	}
	slices.Sort(nodes)
	return strings.Join(nodes, "\n")
}

// URL returns the store URL of the cluster.
func (c *Cluster) URL() string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	url := "redis-cluster://" + strings.Join(addrs, ",")
	if c.Prefix != "" {
		url += "?prefix=" + c.Prefix
	}
	return url
}

// Sentinel is a Redis Sentinel, with the master and the replica that it watches.
type Sentinel struct {
	*Server // the Sentinel itself
	Master  *Server
	Replica *Server
}

// StartSentinel starts a master, a replica, and a Sentinel that watches the master under the given name. The
// Sentinel replaces a master that does not answer for three seconds.
func StartSentinel(t testing.TB, name string) *Sentinel {
	t.Helper()
	master := Start(t, "--repl-diskless-sync-delay", "0")
	replica := Start(t, "--replicaof", master.Host+" "+strconv.Itoa(master.Port), "--repl-diskless-sync-delay", "0")
	testkit.Await(t, "the replica is connected to its master", func() bool { return replica.Info("master_link_status") == "up" })
	s := newServer(t, Binaries(t)[0])
	config := fmt.Sprintf(`port %d
bind %s
dir %s
unixsocket %s
sentinel monitor %s %s %d 1
sentinel down-after-milliseconds %s 3000
sentinel failover-timeout %s 3000
`, s.Port, s.Host, s.Dir, s.Socket, name, master.Host, master.Port, name, name)
	s.args = []string{s.write("sentinel.conf", config), "--sentinel"}
	s.start()
	w := &Sentinel{s, master, replica}
	testkit.Await(t, "the Sentinel knows the replica", func() bool {
		return strings.Contains(s.Do("SENTINEL", "REPLICAS", name), strconv.Itoa(replica.Port))
	})
	return w
}
