package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Cluster is a running Redis Cluster.
type Cluster struct {
	Nodes    []*Server // masters first, as they were at the start
	Masters  []*Server
	Replicas []*Server // Replicas[i] replicates Masters[i % len(Masters)]
}

// StartCluster starts a cluster of some masters, and as many replicas for each. Its node
// timeout is five seconds, so that a busy machine is not taken for nodes that have failed.
func StartCluster(t testing.TB, masters, replicas int, settings ...string) *Cluster {
	t.Helper()
	c := new(Cluster)
	for range masters * (1 + replicas) {
		c.Nodes = append(c.Nodes, Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-port", strconv.Itoa(FreePort(t)),
			"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0",
		}, settings...)...))
	}
	c.Masters, c.Replicas = c.Nodes[:masters], c.Nodes[masters:]
	for i, s := range c.Masters {
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*16384/masters), strconv.Itoa((i+1)*16384/masters-1))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range c.Nodes[1:] {
		c.Nodes[0].Do("CLUSTER", "MEET", s.Host, strconv.Itoa(s.Port), busPort(s))
	}
	c.waitOK(t)
	for i, s := range c.Replicas {
		id := c.Masters[i%masters].Do("CLUSTER", "MYID")
		Eventually(t, "the replica knows its master", func() bool {
			_, err := s.Try("CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	for _, s := range c.Replicas {
		Eventually(t, "the replica follows", func() bool { return s.Info("master_link_status") == "up" })
	}
	c.waitOK(t)
	return c
}

func busPort(s *Server) string {
	for i, a := range s.args {
		if a == "--cluster-port" {
			return s.args[i+1]
		}
	}
	return ""
}

// waitOK waits until every node knows all nodes and thinks that all is well.
func (c *Cluster) waitOK(t testing.TB) {
	t.Helper()
	for _, s := range c.Nodes {
		Eventually(t, "the cluster is up", func() bool {
			info := s.Do("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes)))
		})
	}
}

// Settle waits until all nodes agree who has which slots. Changes that come faster than
// the nodes talk to each other leave them at odds for long.
func (c *Cluster) Settle(t testing.TB) {
	t.Helper()
	Eventually(t, "the nodes agree", func() bool {
		views := map[string]bool{}
		for _, s := range c.Nodes {
			views[c.view(s)] = true
		}
		return len(views) == 1
	})
}

// view returns what a node thinks that the masters have, and in which epoch.
func (c *Cluster) view(s *Server) string {
	var masters []string
	for line := range strings.Lines(s.Do("CLUSTER", "NODES")) {
		f := strings.Fields(line) // id, address, flags, master, ping, pong, epoch, state, slots
		if !strings.Contains(f[2], "master") {
			continue
		}
		own := slices.DeleteFunc(f[8:], func(slots string) bool { return strings.HasPrefix(slots, "[") })
		masters = append(masters, f[0]+" "+f[6]+" "+strings.Join(own, " "))
	}
	slices.Sort(masters)
	return strings.Join(masters, "\n")
}

// URL returns the store URL of the cluster.
func (c *Cluster) URL() string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	return "redis-cluster://" + strings.Join(addrs, ",")
}

// StartProxies puts a proxy in front of each node, of which the nodes tell their clients,
// and returns the store URL that begins with them. Replicas would follow through them.
func (c *Cluster) StartProxies(t testing.TB) (proxies []*Proxy, url string) {
	t.Helper()
	var addrs []string
	for _, s := range c.Nodes {
		p := StartProxy(t, s.Addr)
		_, port, _ := net.SplitHostPort(p.Addr)
		s.Do("CONFIG", "SET", "cluster-announce-port", port)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr)
	}
	for _, s := range c.Nodes {
		Eventually(t, "the nodes announce the proxies", func() bool {
			nodes := s.Do("CLUSTER", "NODES")
			return !slices.ContainsFunc(addrs, func(a string) bool { return !strings.Contains(nodes, a+"@") })
		})
	}
	return proxies, "redis-cluster://" + strings.Join(addrs, ",")
}

// Sentinel is a master with a replica and a Sentinel that watches them.
type Sentinel struct {
	*Server // the Sentinel
	Master  *Server
	Replica *Server
}

// StartSentinel starts a Sentinel that watches a master under a name. A master that is
// silent for a second is replaced.
func StartSentinel(t testing.TB, name string) *Sentinel {
	t.Helper()
	master := Start(t, "--repl-diskless-sync-delay", "0")
	replica := Start(t, "--replicaof", master.Host+" "+strconv.Itoa(master.Port), "--repl-diskless-sync-delay", "0")
	Eventually(t, "the replica follows", func() bool { return replica.Info("master_link_status") == "up" })
	s := newServer(t, "redis-server")
	config := fmt.Sprintf(`port %d
bind %s
dir %s
unixsocket %s
sentinel monitor %s %s %d 1
sentinel down-after-milliseconds %s 1000
sentinel failover-timeout %s 3000
`, s.Port, s.Host, s.Dir, s.Socket, name, master.Host, master.Port, name, name)
	s.args = []string{s.write("sentinel.conf", config), "--sentinel"}
	s.start()
	w := &Sentinel{s, master, replica}
	Eventually(t, "the Sentinel knows the replica", func() bool {
		return strings.Contains(s.Do("SENTINEL", "REPLICAS", name), strconv.Itoa(replica.Port))
	})
	return w
}

// Silent returns the address of a server that takes connections and says nothing.
func Silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		for _, c := range conns {
			c.Close()
		}
	}()
	return l.Addr().String()
}
