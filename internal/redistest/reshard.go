package redistest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Tear is a slot that is being moved from one master to another. Meanwhile, each master has some of its keys.
type Tear struct {
	cluster        *Cluster
	slot           string
	source, target *Server
}

// Tear begins to move the slot of a key.
func (c *Cluster) Tear(t testing.TB, key string) *Tear {
	t.Helper()
	slot := c.Masters[0].Do("CLUSTER", "KEYSLOT", key)
	from := slices.IndexFunc(c.Masters, func(s *Server) bool { return owns(s, slot) })
	if from < 0 {
		t.Fatalf("no master has the slot %s", slot)
	}
	m := &Tear{c, slot, c.Masters[from], c.Masters[(from+1)%len(c.Masters)]}
	m.target.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", m.source.Do("CLUSTER", "MYID"))
	m.source.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", m.target.Do("CLUSTER", "MYID"))
	return m
}

// Migrate moves up to n keys, and reports whether there were any.
func (m *Tear) Migrate(n int) bool {
	keys := strings.Fields(m.source.Do("CLUSTER", "GETKEYSINSLOT", m.slot, strconv.Itoa(n)))
	if len(keys) == 0 {
		return false
	}
	m.source.Do(append([]string{"MIGRATE", m.target.Host, strconv.Itoa(m.target.Port), "", "0", "5000", "KEYS"}, keys...)...)
	return true
}

// Finish moves the remaining keys, and makes the new owner of the slot known to all masters.
func (m *Tear) Finish() {
	m.Migrate(1000)
	id := m.target.Do("CLUSTER", "MYID")
	for _, s := range append([]*Server{m.target, m.source}, m.cluster.Masters...) {
		s.Do("CLUSTER", "SETSLOT", m.slot, "NODE", id)
	}
}

// Move moves the slot of a key to the next master, a few keys at a time, and waits until all nodes know the new
// owner.
func (c *Cluster) Move(t testing.TB, key string) {
	t.Helper()
	m := c.Tear(t, key)
	for m.Migrate(10) {
		time.Sleep(time.Millisecond) // leaves time for requests while the slot is being moved
	}
	m.Finish()
	c.Settle(t)
}

// owns reports whether a node considers itself the owner of a slot.
func owns(s *Server, slot string) bool {
	n, _ := strconv.Atoi(slot)
	for line := range strings.Lines(s.Do("CLUSTER", "NODES")) {
		fields := strings.Fields(line)
		if !strings.Contains(fields[2], "myself") {
			continue
		}
		for _, r := range fields[8:] {
			a, b, found := strings.Cut(r, "-")
			first, err := strconv.Atoi(a)
			last := first
			if found {
				last, _ = strconv.Atoi(b)
			}
			if err == nil && first <= n && n <= last {
				return true
			}
		}
	}
	return false
}

// FailOver makes replica i take over from its master, and waits until all nodes know. Replica and master change
// places in c.
//
// A node starts no election within four node timeouts of its last one, even if it has won that one; if its master
// were asked to step down in that time, the master would pause its clients in vain. So FailOver first waits for
// four node timeouts. A server gives up a planned failover after five seconds, which may be too short on a busy
// machine; then FailOver tries again.
func (c *Cluster) FailOver(t testing.TB, i int) {
	t.Helper()
	const givesUp = 5 * time.Second
	s, m := c.Replicas[i], i%len(c.Masters)
	if last, ok := c.elections[s]; ok {
		time.Sleep(time.Until(last.Add(4*nodeTimeout + time.Second)))
	}
	var asked time.Time
	testkit.Await(t, "the replica is master", func() bool {
		if s.Info("role") == "master" {
			return true
		}
		if time.Since(asked) > givesUp+time.Second {
			asked = time.Now()
			if _, err := s.Try("CLUSTER", "FAILOVER"); err != nil { // it may just have become master
				t.Logf("CLUSTER FAILOVER of %s: %v", s.Addr, err)
			}
		}
		return false
	})
	if c.elections == nil {
		c.elections = map[*Server]time.Time{}
	}
	c.elections[s] = time.Now()
	c.Masters[m], c.Replicas[i] = s, c.Masters[m]
	testkit.Await(t, "the old master is connected to the new one", func() bool { return c.Replicas[i].Info("master_link_status") == "up" })
	c.Settle(t)
}
