package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
)

// Faults of the shared store, under an open loop of requests to two instances. What is
// counted is asserted always. How long things take is asserted in the long form ("make
// chaos"), on a machine that has nothing else to do; both forms print it.
//
// What is promised, and where it is shown besides:
//
//	killed and started again            here                    failover TestRedisKilled
//	frozen                              here                    failover TestRedisFrozen
//	on_error allow, deny, local         here, a test each       failover TestAllow, TestDeny, TestLocal…
//	over-admission, write-back          here                    failover writeback_test.go
//	replies lost, nothing charged twice –                       failover TestRedisLosesAnswers, redisstore TestCluster
//	latency below the deadline          here                    failover TestRedisLatency
//	connections after a restart         here                    failover TestRedisReconnects
//	clients that leave                  here                    failover TestCancelledCallers
//	flapping, resets, a byte a second   TestChaosMixed          failover TestRedisNetwork
//	cluster, master killed              here                    failover TestRedisClusterMaster
//	resharding, planned failover        –                       redisstore TestCluster
//	memory full, read-only, busy        here                    failover TestRedisRefuses
//	loading                             –                       redisstore TestFaults
//	script gone                         here                    failover TestRedisForgetsTheScript
//	clock that jumps                    –                       storetest (clocks that step both ways)
//	nothing left                        exit code, connections  failover TestRedisNothingIsLeft
var long = os.Getenv("SLUICE_CHAOS") != ""

// sized returns a size for the short or the long form.
func sized[T any](short, full T) T {
	if long {
		return full
	}
	return short
}

// timed says that a test measures times, and has the machine to itself in the long form.
func timed(t *testing.T) {
	if !long {
		t.Parallel()
	}
}

// limit reports a time, and fails a long run if it is longer than it may be.
func limit(t *testing.T, what string, got, most time.Duration) {
	t.Helper()
	t.Logf("%s: %v, at most %v", what, got, most)
	if long && got > most {
		t.Errorf("%s: %v, at most %v is right", what, got, most)
	}
}

// pair starts two instances over a store, and waits until they know of each other.
func pair(t *testing.T, policy, store string, args ...string) (both [2]*gateway) {
	t.Helper()
	path := write(t, "policy.yaml", policy)
	for i := range both {
		both[i] = serve(t, append([]string{"--policy", path, "--upstream", "sample", "--store", store, "--degraded-field"}, args...)...)
	}
	for _, g := range both {
		redistest.Eventually(t, "the instances know each other", func() bool { return metric(t, g, "sluice_store_instances") == 2 })
	}
	return both
}

// metric reads one number from /metrics.
func metric(t *testing.T, g *gateway, name string) float64 {
	t.Helper()
	_, text := get(t, g.admin+"/metrics")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/metrics has no %s", name)
	return 0
}

// byWhom returns how many decisions the store and the stand-in have made.
func byWhom(t *testing.T, both [2]*gateway) (store, standIn float64) {
	t.Helper()
	for _, g := range both {
		store += metric(t, g, `sluice_store_decisions_total{by="store"}`)
		standIn += metric(t, g, `sluice_store_decisions_total{by="stand_in"}`)
	}
	return store, standIn
}

func away(r record) bool { return strings.HasPrefix(r.Msg, "shared store is away") }
func back(r record) bool { return strings.HasPrefix(r.Msg, "shared store is used again") }

// awaitBoth waits until both instances have logged it since they last forgot, and returns
// how long that took.
func awaitBoth(both [2]*gateway, what string, fits func(record) bool) time.Duration {
	begin := time.Now()
	for _, g := range both {
		g.t.Helper()
		g.await(what, fits)
	}
	return time.Since(begin)
}

func forget(both [2]*gateway) {
	for _, g := range both {
		g.forget()
	}
}

// changes returns how often the state has changed since the instances last forgot.
func changesOf(both [2]*gateway) (n int) {
	for _, g := range both {
		g.mu.Lock()
		for _, r := range g.logs {
			if away(r) || back(r) {
				n++
			}
		}
		g.mu.Unlock()
	}
	return n
}

// settled waits until the store decides everything and nothing is owed.
func settled(t *testing.T, both [2]*gateway) {
	t.Helper()
	for _, g := range both {
		redistest.Eventually(t, "all is settled", func() bool {
			return metric(t, g, "sluice_store_away") == 0 && metric(t, g, "sluice_store_owing_keys") == 0
		})
	}
}

// spread aims at both instances and all paths in turn, for two keys.
func spread(both [2]*gateway, paths ...string) func(n int) shot {
	return func(n int) shot {
		return shot{both[n%2], paths[n/2%len(paths)], fmt.Sprint("k", n/2/len(paths)%2)}
	}
}

func rate() int { return sized(300, 2000) }

func TestChaosKilled(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("20/second burst 20"), server.URL())
	l := fire(t, rate(), spread(both, open, shared, closed))
	cycles := sized(2, 20)
	var opens, closes time.Duration
	for range cycles {
		time.Sleep(300 * time.Millisecond)
		forget(both)
		server.Kill()
		opens = max(opens, awaitBoth(both, "the circuit opens", away))
		server.Restart()
		closes = max(closes, awaitBoth(both, "the circuit closes", back))
	}
	time.Sleep(300 * time.Millisecond)
	l.done()
	limit(t, "slowest to open", opens, time.Second)
	limit(t, "slowest to close", closes, 2*time.Second)
	const perSecond, burst = 20, 20
	elapsed := time.Since(l.begin).Seconds()
	for _, key := range []string{"k0", "k1"} {
		// Each restart forgets a burst, and each outage is worth one at most.
		n, right := l.admitted(shared, key), perSecond*elapsed+burst
		t.Logf("%s: %d admitted in %.1f s, the limit is %.0f: %+.2f bursts per outage", key, n, elapsed, right, (float64(n)-right)/burst/float64(cycles))
		if most := right + 2*burst*float64(cycles); float64(n) > most || float64(n) < 0.7*perSecond*elapsed {
			t.Errorf("%s: %d admitted, at most %.0f are right", key, n, most)
		}
	}
}

func TestChaosFrozen(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("20/second burst 20"), server.URL())
	l := fire(t, rate(), spread(both, open, shared, closed))
	time.Sleep(time.Second)
	forget(both)
	begin := time.Now()
	server.Freeze()
	limit(t, "opens", awaitBoth(both, "the circuit opens", away), time.Second)
	time.Sleep(time.Until(begin.Add(sized(time.Second, 5*time.Second))))
	end := time.Now()
	server.Thaw()
	limit(t, "closes", awaitBoth(both, "the circuit closes", back), 2*time.Second)
	settled(t, both)
	l.done()

	fault := answers(l.where(sentWithin(begin, end)))
	t.Logf("before the fault: %v", answers(l.where(within(l.begin.Add(300*time.Millisecond), begin))))
	t.Logf("in the fault: %v", fault)
	limit(t, "longest", fault.quantile(1), 100*time.Millisecond)
	limit(t, "p99", fault.quantile(0.99), 55*time.Millisecond)
	limit(t, "p50", fault.quantile(0.5), time.Millisecond)
	later := answers(l.where(sentWithin(begin.Add(time.Second), end)))
	limit(t, "p99 after the first second", later.quantile(0.99), 5*time.Millisecond)

	elapsed := time.Since(l.begin).Seconds()
	for _, key := range []string{"k0", "k1"} {
		n, right := l.admitted(shared, key), 20*elapsed+20
		t.Logf("%s: %d admitted in %.1f s, the limit is %.0f: %+.2f bursts", key, n, elapsed, right, (float64(n)-right)/20)
		if float64(n) > right+20 || float64(n) < 0.7*20*elapsed {
			t.Errorf("%s: %d admitted, right are %.0f and a burst", key, n, right)
		}
	}
}

// outage kills the store, and returns what was asked after that on a path. The first
// requests, whose outcome may be unknown, are those for a key of their own, "early"; the
// others come when both instances know that the store is away, for "k".
func outage(t *testing.T, both [2]*gateway, server *redistest.Server, path string) answers {
	t.Helper()
	forget(both)
	server.Kill()
	begin := time.Now()
	var known atomic.Bool
	l := fire(t, sized(200, 1000), func(n int) shot {
		if known.Load() {
			return shot{both[n%2], path, "k"}
		}
		return shot{both[n%2], path, "early"}
	})
	limit(t, "opens", awaitBoth(both, "the circuit opens", away), time.Second)
	known.Store(true)
	time.Sleep(sized(500*time.Millisecond, 2*time.Second))
	l.done()
	found := answers(l.where(sentWithin(begin, time.Now())))
	t.Logf("in the outage: %v", found)
	for _, a := range found {
		if !a.degraded {
			t.Fatalf("an answer without the store does not say that it is degraded: %+v", a)
		}
	}
	return found
}

// count returns how many have a status.
func (all answers) count(status int) (n int) {
	for _, a := range all {
		if a.status == status {
			n++
		}
	}
	return n
}

func TestChaosAllow(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("10/day"), server.URL())
	found := outage(t, both, server, open)
	if n := found.count(http.StatusOK); n != len(found) || n < 30 {
		t.Errorf("%d of %d have passed", n, len(found))
	}
}

func TestChaosDeny(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("100000/second"), server.URL())
	found := outage(t, both, server, closed)
	if n := found.count(http.StatusServiceUnavailable); n != len(found) || n < 30 {
		t.Errorf("%d of %d were refused because the store is away", n, len(found))
	}
	server.Restart()
	awaitBoth(both, "the circuit closes", back)
	if a := (shot{both[0], closed, "k"}).fire(newClient(t)); a.status != http.StatusOK || a.degraded {
		t.Errorf("afterwards: %+v", a)
	}
}

// Each of two instances has half of the limit. What they use is written back.
func TestChaosLocal(t *testing.T) {
	timed(t)
	awayFromMidnight(t)
	server := redistest.Start(t)
	text := strings.ReplaceAll(byRule("10/day"), "limit:", "algorithm: fixed_window, limit:")
	both := pair(t, text, server.URL())
	found := outage(t, both, server, shared)
	for _, g := range both {
		own := answers(nil)
		for _, a := range found {
			if a.gateway == g && a.key == "k" {
				own = append(own, a)
			}
		}
		if n := own.count(http.StatusOK); n != 5 || own.count(http.StatusTooManyRequests) != len(own)-5 {
			t.Errorf("%d of %d have passed, want 5", n, len(own))
		}
	}
	server.Restart()
	awaitBoth(both, "the circuit closes", back)
	settled(t, both)
	for _, g := range both {
		if a := (shot{g, shared, "k"}).fire(newClient(t)); a.status != http.StatusTooManyRequests || a.degraded {
			t.Errorf("after the shares were written back: %+v", a)
		}
	}
}

// A slow network is not a dead server.
func TestChaosLatency(t *testing.T) {
	timed(t)
	for _, ms := range sized([]int{20}, []int{5, 20, 40}) {
		t.Run(fmt.Sprint(ms, "ms"), func(t *testing.T) {
			server := redistest.Start(t)
			px := newTCPProxy(t, server.Addr)
			both := pair(t, byRule("100000/second"), "redis://"+px.addr)
			px.delay.Store(int64(time.Duration(ms) * time.Millisecond))
			forget(both)
			l := fire(t, sized(200, 1000), spread(both, open, shared, closed))
			time.Sleep(sized(time.Second, 6*time.Second))
			l.done()
			store, standIn := byWhom(t, both)
			t.Logf("%v; by the store %.0f, without it %.0f: %.3f %%", answers(l.all), store, standIn, 100*standIn/(store+standIn))
			if standIn > (store+standIn)/100 {
				t.Errorf("%.0f of %.0f decisions were made without the store", standIn, store+standIn)
			}
			if p50 := answers(l.all).quantile(0.5); p50 < time.Duration(ms)*time.Millisecond {
				t.Errorf("p50 %v: the answers were not held up", p50)
			}
			if n := changesOf(both); n > 0 {
				t.Errorf("the circuit has changed %d times", n)
			}
		})
	}
}

// All callers want a connection after a restart. Few are made.
func TestChaosReconnects(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("100000/second"), server.URL())
	l := fire(t, rate(), spread(both, open, shared, closed))
	time.Sleep(300 * time.Millisecond)
	clients, err := strconv.Atoi(server.Info("connected_clients"))
	if err != nil {
		t.Fatal(err)
	}
	forget(both)
	server.Kill()
	awaitBoth(both, "the circuit opens", away)
	server.Restart()
	time.Sleep(time.Second)
	received, err := strconv.Atoi(server.Info("total_connections_received"))
	if err != nil {
		t.Fatal(err)
	}
	awaitBoth(both, "the circuit closes", back)
	l.done()
	pool, made := clients-1, received-2 // this test has asked once before, and twice after
	t.Logf("%d connections before, %d new ones in the first second", pool, made)
	if pool < 2 || made > 2*pool {
		t.Errorf("%d new connections for a pool of %d", made, pool)
	}
}

// Clients that leave do not speak against the store.
func TestChaosClientsLeave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	px := newTCPProxy(t, server.Addr)
	both := pair(t, byRule("1000000/second"), "redis://"+px.addr)
	px.delay.Store(int64(20 * time.Millisecond))
	forget(both)
	client := newClient(t)
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			for range sized(25, 500) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				r, _ := http.NewRequestWithContext(ctx, "GET", both[i%2].url+shared, nil)
				if resp, err := client.Do(r); err == nil {
					resp.Body.Close()
					t.Error("an answer came before the client left")
				}
				cancel()
			}
		})
	}
	callers.Wait()
	for _, g := range both {
		if n := metric(t, g, "sluice_store_away"); n != 0 {
			t.Error("the circuit is open")
		}
	}
	if n := changesOf(both); n > 0 {
		t.Errorf("the circuit has changed %d times", n)
	}
	asked := calls(server, "evalsha")
	t.Logf("the store was asked %d times for clients that left", asked)
	if asked < 20 {
		t.Errorf("the store was asked %d times: the clients left too early", asked)
	}
	px.heal()
	a := shot{both[0], shared, "k"}.fire(client)
	if a.status != http.StatusOK || a.degraded {
		t.Errorf("afterwards: %+v", a)
	}
}

// Servers that answer and do not count are away.
func TestChaosRefusals(t *testing.T) {
	timed(t)
	for name, fault := range map[string]struct{ begin, end func(s *redistest.Server) }{
		"memory full": {
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") },
		},
		"read-only": {
			func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") },
		},
		"busy": {
			func(s *redistest.Server) {
				s.Do("CONFIG", "SET", "lua-time-limit", "10")
				go s.Try("EVAL", "while true do end", "0")
			},
			func(s *redistest.Server) { s.Do("SCRIPT", "KILL") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			both := pair(t, byRule("100000/second"), server.URL())
			l := fire(t, rate(), spread(both, open, shared, closed))
			time.Sleep(200 * time.Millisecond)
			forget(both)
			fault.begin(server)
			limit(t, "opens", awaitBoth(both, "the circuit opens", away), time.Second)
			begin := time.Now()
			time.Sleep(sized(300*time.Millisecond, time.Second))
			end := time.Now()
			fault.end(server)
			limit(t, "closes", awaitBoth(both, "the circuit closes", back), 2*time.Second)
			l.done()
			for _, a := range l.where(within(begin, end)) {
				if want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[a.path == closed]; a.status != want {
					t.Fatalf("GET %s while the store refuses: %d, want %d", a.path, a.status, want)
				}
			}
		})
	}
}

// The script is loaded once by each instance, and nobody notices.
func TestChaosScriptGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// A thousand callers may keep a busy machine longer than the usual deadline.
	both := pair(t, byRule("1000000/day"), server.URL(), "--store-timeout", "20s")
	client := newClient(t)
	all := make([]answer, 1000)
	var callers sync.WaitGroup
	for i := range all {
		callers.Go(func() { all[i] = shot{both[i%2], shared, "k"}.fire(client) })
	}
	server.Do("CONFIG", "RESETSTAT")
	server.Do("SCRIPT", "FLUSH")
	callers.Wait()
	// One that certainly comes after the flush.
	all = append(all, shot{both[0], shared, "k"}.fire(client), shot{both[1], shared, "k"}.fire(client))
	for _, a := range all {
		if a.status != http.StatusOK || a.degraded {
			t.Fatalf("%+v", a)
		}
	}
	loads := calls(server, "eval") + calls(server, "script|load")
	t.Logf("the script was loaded %d times", loads)
	if loads < 1 || loads > 4 {
		t.Errorf("the script was loaded %d times, once by each instance is right", loads)
	}
}

// calls returns how often a server was given a command.
func calls(s *redistest.Server, command string) int {
	var n int
	_, _ = fmt.Sscanf(s.Info("cmdstat_"+command), "calls=%d", &n)
	return n
}

// While the store is away policies are loaded, and /readyz says what it was told to say.
func TestChaosReloadAndReady(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	path := write(t, "policy.yaml", limited(100))
	args := []string{"--policy", path, "--upstream", "sample", "--store", server.URL()}
	plain, strict := serve(t, args...), serve(t, append(args, "--strict-ready")...)
	both := [2]*gateway{plain, strict}
	server.Kill()
	for _, g := range both {
		go http.Get(g.url + "/health") // somebody has to notice
		g.await("the circuit opens", away)
	}
	strict.awaitStatus(strict.admin+"/readyz", http.StatusServiceUnavailable)
	for url, want := range map[string]int{plain.admin + "/readyz": 200, strict.admin + "/healthz": 200, strict.admin + "/readyz": 503} {
		if status, _ := get(t, url); status != want {
			t.Errorf("GET %s while the store is away: %d, want %d", url, status, want)
		}
	}
	overwrite(t, path, limited(200))
	for _, g := range both {
		g.await("the change is seen", loaded)
		wantInForce(t, g, 200)
	}
	server.Restart()
	awaitBoth(both, "the circuit closes", back)
	strict.awaitStatus(strict.admin+"/readyz", http.StatusOK)
}

// A queue goes on: those who wait get their turn, and others are decided by the rule.
func TestChaosQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	text := `version: 1
rules:
  - {name: local, match: GET /api/users, limit: 5/second burst 10, algorithm: leaky_bucket, on_error: local}
  - {name: deny, match: GET /api/search, limit: 5/second burst 10, algorithm: leaky_bucket, on_error: deny}
`
	both := pair(t, text, server.URL())
	client := newClient(t)
	waiting := make([]answer, 8)
	var callers sync.WaitGroup
	for i := range waiting {
		callers.Go(func() { waiting[i] = shot{both[i%2], shared, ""}.fire(client) })
	}
	redistest.Eventually(t, "all are in the queue", func() bool {
		store, standIn := byWhom(t, both)
		return store+standIn >= 8
	})
	forget(both)
	server.Kill()
	refused := shot{both[0], closed, ""}.fire(client)
	if refused.status != http.StatusServiceUnavailable || refused.wrong != "" {
		t.Errorf("by on_error deny: %+v", refused)
	}
	late := shot{both[0], shared, ""}.fire(client)
	if late.status != http.StatusOK || !late.degraded {
		t.Errorf("by on_error local: %+v", late)
	}
	callers.Wait()
	var longest time.Duration
	for _, a := range waiting {
		longest = max(longest, a.took)
		if a.status != http.StatusOK || a.degraded {
			t.Errorf("one that was in the queue: %+v", a)
		}
	}
	if longest < time.Second {
		t.Errorf("the last of 8 at 5 a second has waited %v", longest)
	}
}

func TestChaosStart(t *testing.T) {
	t.Parallel()
	t.Run("without the store", func(t *testing.T) {
		server := redistest.Start(t)
		server.Kill()
		path := write(t, "policy.yaml", byRule("100/second"))
		g := serve(t, "--policy", path, "--upstream", "sample", "--store", server.URL(), "--degraded-field")
		g.await("it is said", func(r record) bool {
			return strings.Contains(r.Msg, "cannot be reached") && strings.Contains(r.Error, "connection refused")
		})
		client := newClient(t)
		for path, want := range map[string]int{open: 200, shared: 200, closed: 503} {
			if a := (shot{g, path, "k"}).fire(client); a.status != want || !a.degraded || a.wrong != "" {
				t.Errorf("without the store: %+v", a)
			}
		}
		server.Restart("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		limit(t, "is used", awaitBoth([2]*gateway{g, g}, "the store is used", back), 4*time.Second)
		if a := (shot{g, closed, "k"}).fire(client); a.status != http.StatusOK || a.degraded {
			t.Errorf("with the store: %+v", a)
		}
		g.await("a danger is named", func(r record) bool { return strings.Contains(r.Msg, "set up dangerously") })
		g.mu.Lock()
		defer g.mu.Unlock()
		if !strings.Contains(g.raw.String(), "allkeys-lru") {
			t.Error("the log does not name the eviction policy")
		}
	})
	locked := redistest.Start(t, "--requirepass", "s3cret")
	plain := redistest.Start(t)
	node := redistest.StartCluster(t, 3, 0).Nodes[0]
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"required":          {[]string{"--store", "redis://127.0.0.1:1", "--require-store"}, "connection refused"},
		"wrong password":    {[]string{"--store", "redis://:wr0ng@" + locked.Addr}, "password is wrong"},
		"TLS to plain":      {[]string{"--store", "rediss://" + plain.Addr}, "use redis://"},
		"cluster as single": {[]string{"--store", "redis://" + node.Addr}, "use redis-cluster://"},
		"no URL":            {[]string{"--store", "localhost:6379"}, "scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			code, stderr := run(t, append([]string{"serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, test.args...)...)
			if code != 1 || !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "--store") || strings.Contains(stderr, "wr0ng") {
				t.Errorf("code %d, want 1 and %q:\n%s", code, test.want, stderr)
			}
			limit(t, "is refused", time.Since(begin), 5*time.Second)
		})
	}
}

// A master of a cluster is killed. Its keys are decided by the rule from the start, the
// others as ever, and its replica takes over.
func TestChaosClusterMaster(t *testing.T) {
	timed(t)
	c := redistest.StartCluster(t, 3, 1, "--cluster-node-timeout", "2000")
	both := pair(t, byRule("100000/second"), c.URL())
	l := fire(t, sized(300, 1000), func(n int) shot {
		return shot{both[n%2], []string{open, shared, closed}[n/2%3], fmt.Sprint("k", n%30)}
	})
	time.Sleep(500 * time.Millisecond)
	forget(both)
	begin := time.Now()
	c.Masters[0].Kill()
	limit(t, "opens", awaitBoth(both, "a circuit opens", away), time.Second)
	awaitBoth(both, "it closes", back)
	end := time.Now()
	limit(t, "is shared again", end.Sub(begin), 6*time.Second)
	l.done()
	there := answers(l.where(func(a answer) bool { return !a.degraded && within(begin, end)(a) }))
	gone := answers(l.where(func(a answer) bool { return a.degraded && within(begin, end)(a) }))
	t.Logf("of the masters that are there: %v", there)
	t.Logf("of the one that is away: %v", gone)
	if len(there) < len(gone) || len(gone) == 0 {
		t.Errorf("%d decisions were shared, %d were not: one master of three is away", len(there), len(gone))
	}
	limit(t, "p99 of the others", there.quantile(0.99), 10*time.Millisecond)
}
