//go:build long

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
	"github.com/sluicehq/sluice/internal/testkit"
)

// Faults of the shared store, under an open loop of requests to two instances. Counts are always checked. Durations,
// request rates and the number of state changes are checked only in the long form ("make chaos"), on a machine that
// does nothing else; both forms print them.
//
// The guarantees, the tests here that check each of them, and tests elsewhere:
//
//	killed and started again            here                    failover TestRedis
//	frozen                              here                    failover TestRedis
//	on_error allow, deny, local         here                    failover TestHistories
//	over-admission, write-back          here                    failover TestHistories, writeback_test.go
//	answers lost, nothing charged twice faults_long_test.go     redisstore TestLostAnswers, single and cluster
//	latency below the deadline          here                    failover TestHistories
//	connections after a restart         here                    –
//	clients that leave                  here                    failover TestCancelledCallers
//	flapping, resets, a byte a second   faults_long_test.go     failover TestRedis
//	cluster, master killed              here                    failover TestShards
//	resharding, planned failover        faults_long_test.go     redisstore TestCluster
//	memory full, read-only, busy        here                    failover TestRedis
//	loading                             here                    redisstore TestFaults
//	script gone                         here                    redisstore TestCluster
//	start-up, queues                    outage_long_test.go     redisstore TestOpen, TestDangers
//	readiness, reload                   script/stores.txtar     –
//	gateways killed, requests in flight inflight_long_test.go   –
//	eight minutes, memory               TestLongChaosMixed      –
//	clock that jumps                    –                       redisstore TestServerClockJumps, storetest
//	nothing leaked                      after each test         failover TestMain
var long = os.Getenv("SLUICE_CHAOS") != ""

// sized returns short in the short form, and full in the long form.
func sized[T any](short, full T) T {
	if long {
		return full
	}
	return short
}

// timed is called by tests that measure times. In the long form, they do not run in parallel with other tests.
func timed(t *testing.T) {
	if !long {
		t.Parallel()
	}
}

// limit logs a duration. In the long form, it fails the test if the duration is longer than most.
func limit(t *testing.T, what string, got, most time.Duration) {
	t.Helper()
	t.Logf("%s: %v, at most %v", what, got, most)
	if long && got > most {
		t.Errorf("%s: %v, want at most %v", what, got, most)
	}
}

// limitLatency limits a quantile of the response times during a fault. The limit is most plus twice the quantile before
// the fault, because a busy machine delays both.
func limitLatency(t *testing.T, calm, fault answers, q float64, most time.Duration) {
	t.Helper()
	limit(t, fmt.Sprintf("quantile %v", q), fault.quantile(q), most+2*calm.quantile(q))
}

func TestLongChaosKilled(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("20/second burst 60"), server.URL())
	l := fire(t, rate(), spread(both, open, shared, closed))
	cycles := sized(2, 20)
	var opens, closes time.Duration
	for range cycles {
		time.Sleep(300 * time.Millisecond)
		server.Kill()
		opens = max(opens, awaitBoth(both, "the circuit opens", unavailable))
		server.Restart()
		closes = max(closes, awaitBoth(both, "the circuit closes", back))
	}
	time.Sleep(300 * time.Millisecond)
	l.done()
	limit(t, "slowest to open", opens, time.Second)
	limit(t, "slowest to close", closes, 2*time.Second)
	const perSecond, burst = 20, 60
	elapsed := time.Since(l.begin).Seconds()
	for _, key := range []string{"k0", "k1"} {
		// Each restart of the store loses the count of at most one burst, and each outage admits at most one more.
		n, right := l.admitted(shared, key), perSecond*elapsed+burst
		t.Logf("%s: %d admitted in %.1f s, the limit is %.0f: %+.2f bursts per outage", key, n, elapsed, right, (float64(n)-right)/burst/float64(cycles))
		if most := right + 2*burst*float64(cycles); float64(n) > most || long && float64(n) < 0.7*perSecond*elapsed {
			t.Errorf("%s: %d admitted, want at most %.0f", key, n, most)
		}
	}
}

func TestLongChaosFrozen(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("20/second burst 60"), server.URL())
	l := fire(t, rate(), spread(both, open, shared, closed))
	time.Sleep(time.Second)
	begin := time.Now()
	server.Freeze()
	limit(t, "opens", awaitBoth(both, "the circuit opens", unavailable), 2*time.Second)
	time.Sleep(time.Until(begin.Add(sized(time.Second, 5*time.Second))))
	end := time.Now()
	server.Thaw()
	limit(t, "closes", awaitBoth(both, "the circuit closes", back), 4*time.Second)
	settled(t, both)
	l.done()

	fault := answers(l.where(sentWithin(begin, end)))
	calm := answers(l.where(within(l.begin.Add(300*time.Millisecond), begin)))
	t.Logf("before the fault: %v", calm)
	t.Logf("in the fault: %v", fault)
	limitLatency(t, calm, fault, 1, 100*time.Millisecond)
	limitLatency(t, calm, fault, 0.99, 55*time.Millisecond)
	limitLatency(t, calm, fault, 0.5, time.Millisecond)
	limitLatency(t, calm, answers(l.where(sentWithin(begin.Add(time.Second), end))), 0.99, 5*time.Millisecond)

	elapsed := time.Since(l.begin).Seconds()
	for _, key := range []string{"k0", "k1"} {
		n, right := l.admitted(shared, key), 20*elapsed+60
		t.Logf("%s: %d admitted in %.1f s, the limit is %.0f: %+.2f bursts", key, n, elapsed, right, (float64(n)-right)/60)
		if float64(n) > right+60 || long && float64(n) < 0.7*20*elapsed {
			t.Errorf("%s: %d admitted, want %.0f, or at most a burst more", key, n, right)
		}
	}
}

// outage kills the store, and returns the answers to the requests that were then sent to a path. The first of these
// requests have the key "early", because the store may have counted them or not. Requests with the key "k" are sent
// when both instances have logged that the store is unavailable.
func outage(t *testing.T, both [2]*gateway, server *redistest.Server, path string) answers {
	t.Helper()
	server.Kill()
	begin := time.Now()
	var known atomic.Bool
	l := fire(t, sized(200, 1000), func(n int) shot {
		if known.Load() {
			return shot{both[n%2], path, "k"}
		}
		return shot{both[n%2], path, "early"}
	})
	limit(t, "opens", awaitBoth(both, "the circuit opens", unavailable), 2*time.Second)
	known.Store(true)
	testkit.Await(t, "each instance has answered enough requests", func() bool {
		for _, g := range both {
			if l.count(func(a answer) bool { return a.gateway == g && a.key == "k" }) < sized(50, 1000) {
				return false
			}
		}
		return true
	})
	l.done()
	found := answers(l.where(sentWithin(begin, time.Now())))
	t.Logf("in the outage: %v", found)
	for _, a := range found {
		if !a.degraded {
			t.Fatalf("an answer without the store is not marked as degraded: %+v", a)
		}
	}
	return found
}

// count returns the number of answers with a status.
func (all answers) count(status int) (n int) {
	for _, a := range all {
		if a.status == status {
			n++
		}
	}
	return n
}

// Until the store is back, "on_error: allow" lets all requests pass, and "on_error: deny" none.
func TestLongChaosOnError(t *testing.T) {
	t.Parallel()
	for path, test := range map[string]struct {
		limit  string
		status int
	}{open: {"10/day", http.StatusOK}, closed: {"100000/second", http.StatusServiceUnavailable}} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			both := pair(t, byRule(test.limit), server.URL())
			found := outage(t, both, server, path)
			if n := found.count(test.status); n != len(found) {
				t.Errorf("%d of %d were answered with %d", n, len(found), test.status)
			}
			if path == open {
				return // the admitted requests are written back, and use up the limit
			}
			server.Restart()
			awaitBoth(both, "the circuit closes", back)
			decides(t, shot{both[0], path, "k"}, http.StatusOK)
		})
	}
}

// During an outage, each of two instances has half of the limit. The units that they use are written back.
func TestLongChaosLocal(t *testing.T) {
	t.Parallel()
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
		decides(t, shot{g, shared, "k"}, http.StatusTooManyRequests)
	}
}

// A slow network is not treated as a dead server. The deadline of the short form is four hundred times longer, because
// a busy machine delays answers, too.
func TestLongChaosLatency(t *testing.T) {
	timed(t)
	deadline := sized(20*time.Second, 50*time.Millisecond)
	for _, percent := range sized([]int64{1}, []int64{10, 40, 80}) {
		delay := deadline * time.Duration(percent) / 100
		t.Run(delay.String(), func(t *testing.T) {
			server := redistest.Start(t)
			px := redistest.StartProxy(t, server.Addr)
			both := pair(t, byRule("100000/second"), "redis://"+px.Addr, "--store-timeout", deadline.String())
			px.Delay(delay)
			forget(both)
			l := fire(t, sized(200, 1000), spread(both, open, shared, closed))
			time.Sleep(sized(time.Second, 3*time.Second))
			l.done()
			store, standIn := byWhom(t, both)
			t.Logf("%v; by the store %.0f, without it %.0f: %.3f %%", answers(l.all), store, standIn, 100*standIn/(store+standIn))
			if standIn > (store+standIn)/100 {
				t.Errorf("%.0f of %.0f decisions were made without the store", standIn, store+standIn)
			}
			if p50 := answers(l.all).quantile(0.5); p50 < delay {
				t.Errorf("p50 %v: the answers were not delayed", p50)
			}
			if n := changesOf(both); n > 0 {
				t.Errorf("the circuit has changed %d times", n)
			}
		})
	}
}

// After a restart, all callers need a connection. The instances open at most as many a second as they had before.
func TestLongChaosReconnects(t *testing.T) {
	timed(t)
	server := redistest.Start(t)
	both := pair(t, byRule("100000/second"), server.URL())
	l := fire(t, rate(), spread(both, open, shared, closed))
	time.Sleep(300 * time.Millisecond)
	clients, err := strconv.Atoi(server.Info("connected_clients"))
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	awaitBoth(both, "the circuit opens", unavailable)
	restarted := time.Now()
	server.Restart()
	time.Sleep(time.Second)
	received, err := strconv.Atoi(server.Info("total_connections_received"))
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(restarted)
	awaitBoth(both, "the circuit closes", back)
	l.done()
	pool, made := clients-1, received-2 // this test itself has opened one connection before, and two afterwards
	t.Logf("%d connections before, %d new ones in %v", pool, made, took)
	if pool < 2 || made > pool*(1+int(took.Seconds())) {
		t.Errorf("%d new connections in %v for a pool of %d", made, took, pool)
	}
}

// Clients that leave do not count as failures of the store.
func TestLongChaosClientsLeave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	// On a busy machine, calls may take longer than the usual deadline, which would count as a failure.
	both := pair(t, byRule("1000000/second"), "redis://"+px.Addr, "--store-timeout", "20s")
	// In the short form, clients leave later and answers come much later, because the machine may be busy.
	px.Delay(sized(5*time.Second, 20*time.Millisecond))
	forget(both)
	client := newClient(t)
	each := sized(5, 500)
	var stayed atomic.Int64 // clients that left too late, and got an answer
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), sized(200*time.Millisecond, 5*time.Millisecond))
				r, _ := http.NewRequestWithContext(ctx, "GET", both[i%2].URL+shared, nil)
				if resp, err := client.Do(r); err == nil {
					resp.Body.Close()
					stayed.Add(1)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	for _, g := range both {
		if n := g.Metric("sluice_store_unavailable"); n != 0 {
			t.Error("the circuit is open")
		}
	}
	if n := changesOf(both); n > 0 {
		t.Errorf("the circuit has changed %d times", n)
	}
	asked := calls(server, "evalsha")
	t.Logf("%d clients, %d did not leave, the store got %d calls", 20*each, stayed.Load(), asked)
	if asked < sized(1, 20) || stayed.Load() > int64(20*each/10) {
		t.Error("the test checked nothing: the clients left too early or too late")
	}
	px.Heal()
	a := shot{both[0], shared, "k"}.fire(client)
	if a.status != http.StatusOK || a.degraded {
		t.Errorf("afterwards: %+v", a)
	}
}

// Servers that answer, but do not count, are treated as unavailable.
func TestLongChaosRefusals(t *testing.T) {
	t.Parallel()
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
		"loading": {
			func(s *redistest.Server) {
				s.Do("DEBUG", "POPULATE", "20000", "x", "100")
				s.Do("SAVE")
				s.Restart("--key-load-delay", "1000") // µs
			},
			func(s *redistest.Server) {
				if s.Info("loading") != "1" {
					t.Error("premise: the server has finished loading")
				}
				s.Do("CONFIG", "SET", "key-load-delay", "0")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024")
			both := pair(t, byRule("100000/second"), server.URL())
			l := fire(t, rate(), spread(both, open, shared, closed))
			time.Sleep(200 * time.Millisecond)
			fault.begin(server)
			limit(t, "opens", awaitBoth(both, "the circuit opens", unavailable), 2*time.Second)
			begin := time.Now()
			time.Sleep(sized(300*time.Millisecond, time.Second))
			end := time.Now()
			fault.end(server)
			limit(t, "closes", awaitBoth(both, "the circuit closes", back), 4*time.Second)
			l.done()
			for _, a := range l.where(within(begin, end)) {
				if want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[a.path == closed]; a.status != want {
					t.Fatalf("GET %s while the store fails: %d, want %d", a.path, a.status, want)
				}
			}
		})
	}
}

// After the store has lost the script, each instance loads it again at most once, although hundreds of callers need it.
// All requests are decided by the store.
func TestLongChaosScriptGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// On a busy machine, hundreds of callers may take longer than the usual deadline.
	both := pair(t, byRule("1000000/day"), server.URL(), "--store-timeout", "20s")
	client := newClient(t)
	for _, g := range both {
		shot{g, shared, "k"}.fire(client) // loads the script for the first time
		g.Await("the check of the server, which also uses EVAL, is done", func(r testkit.Record) bool { return r.Msg == "unsafe store settings" })
	}
	all := make([]answer, 300)
	var callers sync.WaitGroup
	for i := range all {
		callers.Go(func() { all[i] = shot{both[i%2], shared, "k"}.fire(client) })
	}
	server.Do("CONFIG", "RESETSTAT")
	server.Do("SCRIPT", "FLUSH")
	callers.Wait()
	// These requests certainly come after the flush.
	all = append(all, shot{both[0], shared, "k"}.fire(client), shot{both[1], shared, "k"}.fire(client))
	for _, a := range all {
		if a.status != http.StatusOK || a.degraded {
			t.Fatalf("%+v", a)
		}
	}
	var loads int
	testkit.Await(t, "no other EVAL comes while the calls are counted", func() bool {
		// Heartbeats and posts have one ZADD each, and posts one HSET and one ZRANGE. A read of the posts has one ZRANGE.
		others := func() int { return calls(server, "zadd") + calls(server, "zrange") - calls(server, "hset") }
		before := others()
		loads = calls(server, "eval") + calls(server, "script|load") - before
		return others() == before
	})
	t.Logf("the script was loaded %d times", loads)
	if loads < 1 || loads > 2 {
		t.Errorf("the script was loaded %d times, want at most once by each instance", loads)
	}
}

// A master of a cluster is killed. Until its replica takes over, on_error decides the requests for its keys. The other
// masters decide the requests for their keys without delay.
func TestLongChaosClusterMaster(t *testing.T) {
	timed(t)
	c := redistest.StartCluster(t, 3, 1, "--cluster-node-timeout", "2000")
	both := pair(t, byRule("100000/second"), c.URL())
	l := fire(t, sized(300, 1000), func(n int) shot {
		return shot{both[n%2], []string{open, shared, closed}[n/2%3], fmt.Sprint("k", n%30)}
	})
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	c.Masters[0].Kill()
	limit(t, "opens", awaitBoth(both, "a circuit opens", unavailable), 2*time.Second)
	awaitBoth(both, "it closes", back)
	end := time.Now()
	limit(t, "is shared again", end.Sub(begin), 6*time.Second)
	l.done()
	there := answers(l.where(func(a answer) bool { return !a.degraded && within(begin, end)(a) }))
	gone := answers(l.where(func(a answer) bool { return a.degraded && within(begin, end)(a) }))
	t.Logf("decided by the other masters: %v", there)
	t.Logf("decided without a master: %v", gone)
	// On a busy machine, calls to other masters may also miss the deadline.
	if len(gone) == 0 || len(there) == 0 || long && len(there) < len(gone) {
		t.Errorf("%d decisions were made by a master, %d were not: one master of three is down", len(there), len(gone))
	}
	limitLatency(t, l.where(within(l.begin, begin)), there, 0.99, 10*time.Millisecond)
}

// calls returns how often a server has executed a command.
func calls(s *redistest.Server, command string) int {
	var n int
	_, _ = fmt.Sscanf(s.Info("cmdstat_"+command), "calls=%d", &n)
	return n
}
