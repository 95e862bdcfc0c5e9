package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

// TestMain checks that no goroutine is left after all tests. It ignores those in which a cluster client waits for some
// seconds before it refreshes the list of nodes or closes connections to removed nodes: these end by themselves.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil { // most tests wait for servers
		log.Fatal(err)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

var (
	plan     = plantest.As // with an algorithm and a limit such as "5/hour"
	lockOf   = plantest.Lock
	inFlight = plantest.InFlight
	takeAll  = plantest.Take
)

// open opens a store. It tries again if a busy machine does not answer within the timeout of Open.
func open(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), url)
	for range 5 {
		if kindOf(err) != redisstore.Unavailable {
			break
		}
		s, err = redisstore.Open(t.Context(), url)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// timed opens a store of a server, with a time set by the test.
func timed(t testing.TB, server *redistest.Server) *redisstore.TimedStore {
	t.Helper()
	return redisstore.Timed(open(t, fmt.Sprintf("unix://%s?db=%d", server.Socket, server.DB)))
}

// clientOf returns the options of a client of a server.
func clientOf(server *redistest.Server) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{server.Addr}, SelectDB: server.DB}
}

// client returns a new client, and closes it after the test.
func client(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// over opens a store that uses a client of the test.
func over(t testing.TB, o rueidis.ClientOption, k redisstore.Keys) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(t.Context(), client(t, o), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// kindOf returns the kind of an error, or 0 if it has none.
func kindOf(err error) redisstore.Kind {
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		return e.Kind
	}
	return 0
}

// notCharged reports whether the error err guarantees that nothing was charged.
func notCharged(err error) bool {
	e, ok := errors.AsType[*redisstore.Error](err)
	return ok && e.NotCharged()
}

// foreign returns the ForeignState in err, and fails the test if there is none. The message contains the further
// arguments.
func foreign(t *testing.T, err error, of ...any) *redisstore.ForeignState {
	t.Helper()
	f, named := errors.AsType[*redisstore.ForeignState](err)
	if !named || kindOf(err) != redisstore.Foreign || !notCharged(err) || len(f.Keys) != len(f.Unreadable()) || len(f.Deleted) != len(f.Keys) {
		t.Fatalf("%v: error %v, want a foreign state", of, err)
	}
	return f
}

// take takes one unit and returns whether it fitted.
func take(t testing.TB, s sluice.Store, key string, p *sluice.Plan) bool {
	t.Helper()
	return plantest.One(t, s, key, p, 1).Fits
}

// used returns how many units of a window or log are used.
func used(t testing.TB, s sluice.Store, key string, p *sluice.Plan) int64 {
	t.Helper()
	return plantest.One(t, s, key, p, 0).Used
}

// aPlace returns a charge that takes a permit, or gives it back if cost is negative.
func aPlace(t testing.TB, key string, places int64, number uint64, cost int64) sluice.Charge {
	t.Helper()
	return sluice.Charge{Key: key, Plan: inFlight(t, places), Permit: number, Cost: cost}
}

// try takes one unit, with a timeout of a second.
func try(t testing.TB, s sluice.Store, key string, p *sluice.Plan) error {
	t.Helper()
	return tryFor(t, time.Second, s, key, p)
}

// patient is a timeout that no successful Take reaches, even on a busy machine.
const patient = time.Minute

func tryFor(t testing.TB, wait time.Duration, s sluice.Store, key string, p *sluice.Plan) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return s.Take(ctx, []sluice.Charge{{Key: key, Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
}

// becomes waits until a Take fails with an error of the given kind.
func becomes(t *testing.T, s sluice.Store, p *sluice.Plan, kind redisstore.Kind) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("the last error was %v", last)
		}
	}()
	testkit.Await(t, "a Take fails: "+kind.String(), func() bool {
		last = try(t, s, "k", p)
		return kindOf(last) == kind
	})
}

// recovers waits until Takes succeed again.
func recovers(t *testing.T, s sluice.Store, p *sluice.Plan) {
	t.Helper()
	testkit.Await(t, "the store answers again", func() bool { return try(t, s, "k", p) == nil })
}

// number sends a command and returns its reply, which is a number.
func number(t testing.TB, s *redistest.Server, args ...string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.Do(args...), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// commandCalls returns how often servers have run a command.
func commandCalls(command string, servers ...*redistest.Server) (sum int64) {
	for _, s := range servers {
		var n int64
		_, _ = fmt.Sscanf(s.Info("cmdstat_"+command), "calls=%d,", &n)
		sum += n
	}
	return sum
}

// hammer runs concurrent callers that take units of a few keys, and returns how many units of each key were admitted.
func hammer(t *testing.T, s sluice.Store, p *sluice.Plan, callers, takes, keys int) []int64 {
	t.Helper()
	admitted := make([]atomic.Int64, keys)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var r [1]sluice.Receipt
			for i := range takes {
				k := (c + i) % keys
				if err := s.Take(t.Context(), []sluice.Charge{{Key: fmt.Sprint("key", k), Plan: p, Cost: 1}}, r[:]); err != nil {
					t.Error(err)
					return
				}
				if r[0].Fits {
					admitted[k].Add(1)
				}
			}
		})
	}
	wg.Wait()
	counts := make([]int64, keys)
	for i := range admitted {
		counts[i] = admitted[i].Load()
	}
	return counts
}

// startProxies starts a proxy in front of each node. The nodes announce the proxies to clients. It returns the proxies
// and a store URL with their addresses. Replicas would connect through the proxies, too.
func startProxies(t testing.TB, c *redistest.Cluster) (proxies []*redistest.Proxy, url string) {
	t.Helper()
	var addrs []string
	for _, s := range c.Nodes {
		p := redistest.StartProxy(t, s.Addr)
		_, port, _ := net.SplitHostPort(p.Addr)
		s.Do("CONFIG", "SET", "cluster-announce-port", port)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr)
	}
	for _, s := range c.Nodes {
		testkit.Await(t, "the nodes announce the proxies", func() bool {
			nodes := s.Do("CLUSTER", "NODES")
			return !slices.ContainsFunc(addrs, func(a string) bool { return !strings.Contains(nodes, a+"@") })
		})
	}
	return proxies, "redis-cluster://" + strings.Join(addrs, ",")
}

// silent returns the address of a listener on which nothing reads or writes: the system still accepts connections.
func silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// certs are PEM files: a CA certificate, and a certificate for 127.0.0.1 that it has signed, for servers and clients,
// with its key.
type certs struct{ CA, Cert, Key string }

// newCerts creates certificates that are valid for an hour.
func newCerts(t testing.TB) certs {
	t.Helper()
	a := testkit.NewAuthority(t)
	cert, key := a.Make("redisstore")
	return certs{a.CA, cert, key}
}

// settings returns the settings of [redistest.Start] for a server with TLS that verifies client certificates: see
// [redistest.Server.TLSAddr].
func (c certs) settings(t testing.TB) []string {
	t.Helper()
	return []string{
		"--tls-port", strconv.Itoa(testkit.Port(t)), "--tls-ca-cert-file", c.CA,
		"--tls-cert-file", c.Cert, "--tls-key-file", c.Key,
	}
}
