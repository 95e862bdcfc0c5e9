package redistest

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// databases is how many tests of a process can hold a database at once.
const databases = 256

var shared struct {
	sync.Mutex
	server  *Server
	free    []int // the numbers of the databases that no test holds
	cluster *Cluster
	tests   int // the number of tests that have used the cluster
}

// Shared returns a server that all tests of the process share, with an empty database for this test. It starts at
// first use and ends with the process: see [testkit.StartGuarded]. Channels, scripts, INFO and clients belong to
// all tests. Commands that would disturb other tests fail the test; a test that needs them has to use [Start].
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s := prepare(testkit.Lasting(t), Binaries(t)[0], "--databases", strconv.Itoa(databases))
		s.startGuarded()
		shared.server = s
		for i := databases - 1; i > 0; i-- {
			shared.free = append(shared.free, i)
		}
	}
	if len(shared.free) == 0 {
		t.Fatalf("more than %d tests hold a database of the shared server at once", databases-1)
	}
	s := *shared.server
	s.t, s.DB = t, shared.free[len(shared.free)-1]
	shared.free = shared.free[:len(shared.free)-1]
	t.Cleanup(func() {
		s.Do("FLUSHDB")
		shared.Lock()
		defer shared.Unlock()
		shared.free = append(shared.free, s.DB)
	})
	return &s
}

// SharedCluster returns a cluster of three masters that all tests of the process share. Its URL contains a prefix
// for the keys of this test.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		c := prepareCluster(testkit.Lasting(t), 3, 0)
		for _, s := range c.Nodes {
			s.startGuarded()
		}
		c.waitOK(t)
		shared.cluster = c
	}
	shared.tests++
	c := &Cluster{Prefix: fmt.Sprintf("test%d:", shared.tests)}
	for _, s := range shared.cluster.Nodes {
		node := *s
		node.t = t
		c.Nodes = append(c.Nodes, &node)
	}
	c.Masters = c.Nodes
	return c
}

// startGuarded starts a server that runs until the process ends.
func (s *Server) startGuarded() {
	s.t.Helper()
	s.startWith(func(c *exec.Cmd) (func() bool, error) { return testkit.StartGuarded(c, "KILL", s.Dir) })
	s.shared = true
}

// notShared fails the test if the server is shared.
func (s *Server) notShared(what string) {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("the test must not %s a shared server: use redistest.Start or StartCluster", what)
	}
}

// disturbs reports whether a command has an effect on the other tests of a shared server.
func disturbs(args []string) bool {
	switch words := strings.ToUpper(strings.Join(args, " ")) + " "; {
	case slices.ContainsFunc([]string{"CONFIG GET ", "ACL WHOAMI "}, func(p string) bool { return strings.HasPrefix(words, p) }):
		return false
	default:
		return slices.ContainsFunc([]string{
			"ACL ", "CLIENT KILL ", "CLIENT PAUSE ", "CLUSTER ADDSLOTS ", "CLUSTER DELSLOTS ", "CLUSTER FAILOVER ", "CLUSTER SETSLOT ",
			"CONFIG ", "DEBUG ", "FAILOVER ", "FLUSHALL ", "REPLICAOF ", "SCRIPT FLUSH ", "SCRIPT KILL ", "SHUTDOWN ", "SWAPDB ",
		}, func(p string) bool { return strings.HasPrefix(words, p) })
	}
}
