package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

// fill makes a store open many connections, most of which are idle afterwards.
func fill(t *testing.T, store sluice.Store, p *sluice.Plan) {
	t.Helper()
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 20 {
				if err := tryFor(t, patient, store, "k", p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// No call fails because the server has closed idle connections.
func TestIdleConnectionsDie(t *testing.T) {
	t.Parallel()
	p := plan(t, sluice.TokenBucket, "1000000/second")
	restart := func(s *redistest.Server) { s.Restart() }
	cutOff := func(s *redistest.Server) { s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
	certs := newCerts(t)
	for name, test := range map[string]struct {
		tls   string
		close func(s *redistest.Server)
	}{
		"restarted":       {"", restart},
		"cut off":         {"", cutOff},
		"TLS 1.3 cut off": {"TLSv1.3", cutOff},
		"TLS 1.2 cut off": {"TLSv1.2", cutOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var settings []string
			if test.tls != "" {
				settings = append(certs.settings(t), "--tls-protocols", test.tls)
			}
			server := redistest.Start(t, settings...)
			url := server.URL()
			if test.tls != "" {
				url = "rediss://" + server.TLSAddr + "?ca=" + certs.CA + "&cert=" + certs.Cert + "&key=" + certs.Key
			}
			store := open(t, url)
			fill(t, store, p)
			for range 3 {
				test.close(server)
				fill(t, store, p) // fails the test for any error
				if _, err := store.Heartbeat(t.Context(), "me"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Connections on which no answer ever arrives do not prevent new connections.
func TestConnectionsLeadNowhere(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	px := redistest.StartProxy(t, server.Addr)
	store := open(t, "redis://"+px.Addr+fmt.Sprint("/", server.DB))
	p := plan(t, sluice.TokenBucket, "1000000/second")
	fill(t, store, p)
	px.Mute()
	recovers(t, store, p)
}

// Close ends calls of a server that does not answer, without waiting for their timeout.
func TestCloseCutsOff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.TokenBucket, "1000000/second")
	take(t, store, "k", p)
	testkit.Await(t, "its call has returned", func() bool { return !store.InFlight() })
	server.Freeze()
	defer server.Thaw()
	results := make(chan error)
	go func() {
		results <- store.Take(context.Background(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
	}()
	testkit.Await(t, "the request is in flight", store.InFlight)
	_ = store.Close()
	if err := <-results; kindOf(err) != redisstore.Unknown || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the Take returned %v", err)
	}
}

// One answer in ten is lost. By the counts on the servers, every admitted unit is counted, every counted unit was
// admitted or has an unknown outcome, and nothing is counted twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		px := redistest.StartProxy(t, server.Addr)
		testLostAnswers(t, "redis://"+px.Addr, []*redistest.Server{server}, px)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 0)
		proxies, url := startProxies(t, c)
		testLostAnswers(t, url, c.Masters, proxies...)
	})
}

func testLostAnswers(t *testing.T, url string, servers []*redistest.Server, proxies ...*redistest.Proxy) {
	const keys, callers, each = 16, 8, 250
	store := open(t, url)
	p := plan(t, sluice.FixedWindow, "1000000/10d")
	for _, px := range proxies {
		px.Reset(0.1)
	}
	var admitted, unknown [keys]atomic.Int64
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				k := (c + i) % keys
				switch err := tryFor(t, patient, store, fmt.Sprintf("{key%d}", k), p); {
				case err == nil:
					admitted[k].Add(1)
				case !notCharged(err):
					unknown[k].Add(1)
				}
			}
		})
	}
	all.Wait()
	var sure, open int64
	for k := range keys {
		n, least, most := counted(t, servers, fmt.Sprintf("{key%d}", k)), admitted[k].Load(), unknown[k].Load()
		sure, open = sure+least, open+most
		if most += least; n < least || n > most {
			t.Errorf("key %d: %d are counted, want %d to %d", k, n, least, most)
		}
	}
	if open < callers*each/50 || sure < callers*each/2 {
		t.Errorf("premise: of %d answers, %d arrived, and %d are lost with an unknown outcome", callers*each, sure, open)
	}
}

// counted returns the units in the window of a key, summed over the servers.
func counted(t *testing.T, servers []*redistest.Server, key string) (n int64) {
	t.Helper()
	for _, s := range servers {
		for name := range strings.Lines(s.Do("KEYS", "*"+key)) {
			var window, count int64
			if _, err := fmt.Sscanf(s.Do("GET", strings.TrimSpace(name)), "%d:%d", &window, &count); err != nil {
				t.Errorf("the state of %s: %v", key, err)
			}
			n += count
		}
	}
	return n
}

// However many answers are lost by a server that answers other calls, later callers do not wait for the lost ones.
func TestLostAnswersHoldUpNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	store := open(t, "redis://"+px.Addr)
	p := plan(t, sluice.TokenBucket, "1000000/day")
	take(t, store, "k", p)
	const losses = 40 // more than can be given up at a time
	var lose atomic.Bool
	px.Spoil(func() (time.Duration, bool) {
		if lose.Load() {
			return 4 * time.Second, false
		}
		return 0, false
	})
	for n := 0; n < losses; {
		lose.Store(true)
		err := tryFor(t, 40*time.Millisecond, store, "k", p)
		lose.Store(false)
		if kindOf(err) == 0 {
			t.Fatalf("premise: the answer was not lost: %v", err)
		} else if !notCharged(err) { // it was sent in time
			n++
		}
		for range 2 {
			take(t, store, "k", p)
		}
	}
	testkit.Await(t, "no worker is waited for", func() bool {
		take(t, store, "k", p)
		workers, _ := store.Workers()
		return workers <= 1
	})
}

// Gathered requests are decided one by one, exactly, and in the order of their arrival, in as few calls as their
// charges fit in.
func TestGathering(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.TokenBucket, "500/10d burst 500")
	for k, n := range hammer(t, store, p, 200, 20, 4) {
		if n != 500 {
			t.Errorf("key %d: %d admitted of a limit of 500", k, n)
		}
	}
	if calls := commandCalls("evalsha", server); calls > 3000 {
		t.Errorf("%d calls for 4000 requests: they were not gathered", calls)
	}
	for charges, want := range map[int]int64{1: 1, 2: 2, 3: 3} {
		calls := make([]sluice.TakeCall, 1000)
		for i := range calls {
			key := fmt.Sprint("all", charges)
			for j := range charges {
				calls[i].Charges = append(calls[i].Charges, sluice.Charge{Key: key, Plan: p, Cost: 1})
				key = fmt.Sprint(charges, "/", i, "/", j)
			}
			calls[i].Receipts = make([]sluice.Receipt, charges)
		}
		before := commandCalls("evalsha", server)
		sluice.TakeEach(t.Context(), store, calls)
		if n := commandCalls("evalsha", server) - before; n != want {
			t.Errorf("1000 Takes of %d charges took %d calls, want %d", charges, n, want)
		}
		for i, c := range calls {
			if fits := c.Receipts[0].Fits; c.Err != nil || fits != (i < 500) {
				t.Fatalf("with %d charges Take %d fits: %v, %v", charges, i, fits, c.Err)
			}
		}
	}
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	testScriptFlush(t, server.URL(), server)
}

// After a flush, the store loads the script again, but not for every caller.
func testScriptFlush(t *testing.T, url string, servers ...*redistest.Server) {
	store := open(t, url)
	p := plan(t, sluice.FixedWindow, "50/10d")
	before := commandCalls("eval", servers...)
	const flushes = 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range flushes {
			for _, s := range servers {
				s.Do("SCRIPT", "FLUSH")
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	for k, n := range hammer(t, store, p, 200, 60, 100) {
		if n != 50 {
			t.Errorf("key %d: %d admitted of a limit of 50", k, n)
		}
	}
	<-done
	if n := commandCalls("eval", servers...) - before; n < 1 || n > int64(2*flushes*len(servers)) {
		t.Errorf("%d loads after %d flushes on each of %d servers", n, flushes, len(servers))
	}
}

// A Take returns when its context ends. Its error reports whether the unit may have been charged, and if not, it is not
// charged.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "5000/10d")
	take(t, store, "k", p) // connects

	server.Freeze()
	// The first callers take the workers one after the other, including the workers that replace lost ones. Later
	// callers have to wait.
	var unknown, notSent int64
	for begin := time.Now(); unknown < 2 || notSent < 50; {
		if time.Since(begin) > testkit.Patience {
			t.Fatalf("%d callers have unknown results, %d have sent nothing", unknown, notSent)
		}
		results := leaving(t, store, p)
		unknown, notSent = unknown+results[redisstore.Unknown], notSent+results[redisstore.NotSent]
	}
	server.Thaw()
	// Some of the sent requests reach the server after the thaw, but not those that waited too long for a connection.
	// No others do.
	_ = store.Close() // waits for the calls in flight
	if got := used(t, open(t, server.URL()), "k", p); got < 2 || got > 1+unknown {
		t.Errorf("%d units are used, want 2 to %d", got, 1+unknown)
	}
}

// leaving runs 50 callers with a timeout of 30 ms, and returns how many got each kind of error.
func leaving(t *testing.T, store sluice.Store, p *sluice.Plan) map[redisstore.Kind]int64 {
	t.Helper()
	var mu sync.Mutex
	results := map[redisstore.Kind]int64{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := tryFor(t, 30*time.Millisecond, store, "k", p)
			kind := kindOf(err)
			if kind == 0 || !errors.Is(err, context.DeadlineExceeded) || notCharged(err) != (kind == redisstore.NotSent) {
				t.Errorf("error %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			results[kind]++
		})
	}
	wg.Wait()
	return results
}

func TestClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "1000000/10d")
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for {
				err := tryFor(t, patient, store, "k", p)
				if err == nil {
					admitted.Add(1)
					continue
				}
				if kindOf(err) != redisstore.NotSent {
					t.Errorf("error %v", err)
				}
				refused.Add(1)
				return
			}
		})
	}
	testkit.Await(t, "there is load", func() bool { return admitted.Load() > 1000 })
	if err := errors.Join(store.Close(), store.Close()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	testkit.Await(t, "the closed store has no connections", func() bool {
		return strings.Count(server.Do("CLIENT", "LIST"), " addr=") == 1 // this command's connection
	})
	second := open(t, server.URL())
	if n := used(t, second, "k", p); n != admitted.Load() || refused.Load() != 100 {
		t.Errorf("%d admitted, %d in the store; %d callers got the error of a closed store", admitted.Load(), n, refused.Load())
	}
}

func TestTooManyCharges(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).URL())
	p := plan(t, sluice.SlidingWindowLog, "5/hour")
	for _, n := range []int{1, 1024, 1025} {
		charges := slices.Repeat([]sluice.Charge{{Plan: p, Cost: 1}}, n)
		for i := range charges {
			charges[i].Key = fmt.Sprint("k", i)
		}
		receipts := make([]sluice.Receipt, n)
		if err := store.Take(t.Context(), charges, receipts); (n <= 1024) != (err == nil) || err != nil && !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%d charges: %v", n, err)
		} else if err == nil && (!receipts[n-1].Fits || receipts[n-1].Used == 0) {
			t.Errorf("%d charges: the last has %+v", n, receipts[n-1])
		}
	}
}

// Each fault of a server has its own kind of error, and the store recovers afterwards.
func TestFaults(t *testing.T) {
	t.Parallel()
	p := plan(t, sluice.TokenBucket, "1000000/day")
	do := func(args ...string) func(*redistest.Server) { return func(s *redistest.Server) { s.Do(args...) } }
	app := []string{"--user", "app", "on", ">pw", "~*", "+@all"}
	for name, test := range map[string]struct {
		kind       redisstore.Kind
		settings   []string
		begin, end func(*redistest.Server)
	}{
		"killed": {redisstore.Unavailable, nil, (*redistest.Server).Kill, func(s *redistest.Server) { s.Restart() }},
		"frozen": {redisstore.Unknown, nil, (*redistest.Server).Freeze, (*redistest.Server).Thaw},
		"loading": {redisstore.Loading, []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"},
			func(s *redistest.Server) {
				s.Do("DEBUG", "POPULATE", "1500", "x", "100")
				s.Do("SAVE")
				s.Restart("--key-load-delay", "1000")
			},
			func(*redistest.Server) {}},
		"busy": {redisstore.Busy, []string{"--lua-time-limit", "20"},
			func(s *redistest.Server) { go s.Try("EVAL", "while true do end", "0") }, do("SCRIPT", "KILL")},
		"replica": {redisstore.ReadOnly, nil, do("REPLICAOF", "127.0.0.1", "1"), do("REPLICAOF", "NO", "ONE")},
		"cannot save": {redisstore.ReadOnly, []string{"--repl-diskless-sync", "yes"},
			do("CONFIG", "SET", "min-replicas-to-write", "1"), do("CONFIG", "SET", "min-replicas-to-write", "0")},
		"out of memory": {redisstore.OutOfMemory, nil, do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0")},
		"denied":        {redisstore.Denied, app, do("ACL", "SETUSER", "app", "-@scripting"), do("ACL", "SETUSER", "app", "+@all")},
		"password changed": {redisstore.Denied, app,
			func(s *redistest.Server) {
				s.Do("ACL", "SETUSER", "app", "resetpass", ">other")
				s.Do("CLIENT", "KILL", "USER", "app")
			},
			do("ACL", "SETUSER", "app", ">pw")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.settings...)
			url := server.URL()
			if test.kind == redisstore.Denied {
				url = strings.Replace(url, "://", "://app:pw@", 1)
			}
			store := open(t, url)
			take(t, store, "k", p)
			test.begin(server)
			becomes(t, store, p, test.kind)
			test.end(server)
			recovers(t, store, p)
		})
	}
}

// Invalid replies of a server cause an error and admit no request.
func TestWrongReplies(t *testing.T) {
	t.Parallel()
	p := plan(t, sluice.TokenBucket, "10/day")
	bulk := func(b string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(b), b) }
	for _, reply := range []string{
		":1\r\n", "+OK\r\n", "$3\r\nabc\r\n", "$-1\r\n", "$0\r\n\r\n", "*0\r\n", "*2\r\n:1\r\n:2\r\n", "-ERR whatever\r\n", "_\r\n", "#t\r\n", "%1\r\n+a\r\n+b\r\n",
		bulk(strings.Repeat("\xff", 16)), bulk(strings.Repeat("\x00", 8)), bulk(strings.Repeat("\x00", 24)),
		bulk("\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\xe0\x3f"), // 1 and 0.5
		"garbage\r\n", "", "$99999\r\nx",
	} {
		t.Run(fmt.Sprintf("%.20q", reply), func(t *testing.T) {
			t.Parallel()
			m := startImpostor(t, redistest.Shared(t).Addr)
			store := open(t, "redis://"+m.Addr)
			handler := func(w io.Writer, _ string) {
				_, _ = io.WriteString(w, reply)
				if reply == "" || strings.HasPrefix(reply, "$99999") {
					_ = w.(io.Closer).Close()
				}
			}
			m.Handler.Store(&handler)
			var r [1]sluice.Receipt
			err := store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, r[:])
			if kindOf(err) == 0 || notCharged(err) || r[0].Fits {
				t.Errorf("%+v, error %v", r[0], err)
			}
		})
	}
}

// When the master dies, a store with Sentinels switches to the next master, and resets are noticed again.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, "mymaster")
	url := "redis-sentinel://" + s.Addr + "/mymaster"
	r := &resetter{t: t, back: sluice.All, asked: open(t, url), other: open(t, url)}
	waitForListeners(t, 2, s.Master)
	p := plan(t, sluice.FixedWindow, "3/10d")
	r.expectHeard(p)
	s.Master.Kill()
	waitForListeners(t, 2, s.Replica)
	recovers(t, r.asked, p)
	recovers(t, r.other, p)
	r.expectHeard(p)
	if role := s.Replica.Info("role"); role != "master" {
		t.Errorf("the replica is a %s", role)
	}
}
