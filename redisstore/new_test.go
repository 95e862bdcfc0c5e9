package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// over opens a store over a client of the test's own, and closes both.
func over(t testing.TB, o rueidis.ClientOption, k redisstore.Keys) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(t.Context(), client(t, o), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func client(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A client as it comes, and one with the options that are worth setting.
func TestNewConformance(t *testing.T) {
	server := redistest.Start(t)
	usual := rueidis.ClientOption{InitAddress: []string{server.Addr}}
	tuned := usual
	tuned.ConnWriteTimeout, tuned.DisableAutoPipelining, tuned.BlockingPoolSize, tuned.DisableCache = 5*time.Second, true, 50, true
	for name, o := range map[string]rueidis.ClientOption{"usual": usual, "tuned": tuned} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) sluice.Store {
				server.Do("FLUSHALL")
				return over(t, o, redisstore.Keys{})
			})
		})
	}
}

// Stores over one client and stores that connect by themselves share their counts, if the
// keys are named alike. Close leaves the client alone.
func TestNewShares(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, rueidis.ClientOption{InitAddress: []string{server.Addr}})
	charges := []sluice.Charge{{Key: "k", Plan: plan(t, sluice.FixedWindow, "10/10d"), Cost: 1}}
	take := func(s sluice.Store) int64 {
		t.Helper()
		var r [1]sluice.Receipt
		if err := s.Take(t.Context(), charges, r[:]); err != nil {
			t.Fatal(err)
		}
		return r[0].Used
	}
	for want := int64(1); want <= 3; want++ {
		s, err := redisstore.New(t.Context(), c, redisstore.Keys{Prefix: "mine:", HashKey: []byte("secret")})
		if err != nil {
			t.Fatal(err)
		}
		if used := take(s); used != want {
			t.Errorf("store %d: %d are used", want, used)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Take(t.Context(), charges, make([]sluice.Receipt, 1)); err == nil {
			t.Error("a closed store takes")
		}
	}
	config, err := redisstore.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.Prefix, config.HashKey = "mine:", []byte("secret")
	opened, err := config.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if used := take(opened); used != 4 {
		t.Errorf("a store that connects by itself: %d are used", used)
	}
	if used := take(over(t, rueidis.ClientOption{InitAddress: []string{server.Addr}}, redisstore.Keys{})); used != 1 {
		t.Errorf("under another prefix: %d are used", used)
	}
}

func TestNewRefuses(t *testing.T) {
	server, replica := redistest.Start(t), redistest.Start(t)
	replica.Do("REPLICAOF", "127.0.0.1", server.Addr[strings.LastIndex(server.Addr, ":")+1:])
	locked := redistest.Start(t)
	single := func(s *redistest.Server) rueidis.Client {
		return client(t, rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true})
	}
	denied := single(locked)
	locked.Do("ACL", "SETUSER", "default", "-eval", "-evalsha", "-script")
	cases := map[string]struct {
		client rueidis.Client
		keys   redisstore.Keys
		says   string
	}{
		"no client": {nil, redisstore.Keys{}, "needs a client"},
		"a brace":   {single(server), redisstore.Keys{Prefix: "{a}"}, "brace"},
		"a replica": {single(replica), redisstore.Keys{}, "replica"},
		"no rights": {denied, redisstore.Keys{}, "SCRIPT"},
	}
	for name, c := range cases {
		s, err := redisstore.New(t.Context(), c.client, c.keys)
		e, ok := errors.AsType[*redisstore.Error](err)
		if !ok || e.Kind != redisstore.Misconfigured || !strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(c.says)) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// What is lost with a server is an error with the right kind, callers wait no longer than
// their context, and Close no longer than for a client that is closed.
func TestNewServerAway(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	c := client(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr}, ConnWriteTimeout: time.Minute})
	s, err := redisstore.New(t.Context(), c, redisstore.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	charges := []sluice.Charge{{Key: "k", Plan: plan(t, sluice.TokenBucket, "1000/10d"), Cost: 1}}
	take := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return s.Take(ctx, charges, make([]sluice.Receipt, 1))
	}
	if err := take(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	if e, ok := errors.AsType[*redisstore.Error](take(50 * time.Millisecond)); !ok || e.Kind != redisstore.Unknown {
		t.Errorf("frozen: %v", e)
	}
	server.Thaw()
	redistest.Eventually(t, "the store answers again", func() bool { return take(time.Second) == nil })
	proxy.Target(testkit.Addr(t))
	proxy.Cut()
	redistest.Eventually(t, "an error says that the server is away", func() bool { return take(time.Second) != nil })
	proxy.Target(server.Addr)
	redistest.Eventually(t, "the store answers again", func() bool { return take(time.Second) == nil })
	server.Freeze()
	defer server.Thaw()
	_ = take(time.Millisecond)
	closed := make(chan struct{})
	go func() { c.Close(); s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("Close waits for a server that does not answer")
	}
}

// pipes are goroutines of a client.
var pipes = func() (all []goleak.Option) {
	for _, f := range []string{"_background", "_backgroundRead", "_backgroundWrite", "backgroundPing.func1", "backgroundPing.func1.2", "Do.func2"} {
		all = append(all, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)."+f))
	}
	return all
}()

// Close leaves no goroutine behind, also where the server does not answer, and the client goes on.
func TestNewCloseEnds(t *testing.T) {
	server := redistest.Start(t)
	usual := rueidis.ClientOption{InitAddress: []string{server.Addr}, ConnWriteTimeout: 3 * time.Second}
	pooled := usual
	pooled.DisableAutoPipelining, pooled.BlockingPoolSize = true, 50
	for name, o := range map[string]rueidis.ClientOption{"usual": usual, "pooled": pooled} {
		t.Run(name, func(t *testing.T) {
			c := client(t, o)
			others := goleak.IgnoreCurrent()
			s, err := redisstore.New(t.Context(), c, redisstore.Keys{})
			if err != nil {
				t.Fatal(err)
			}
			server.Freeze()
			defer server.Thaw()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					charge := sluice.Charge{Key: "k", Plan: plan(t, sluice.TokenBucket, "1000/10d"), Cost: 1}
					if err := s.Take(ctx, []sluice.Charge{charge}, make([]sluice.Receipt, 1)); err == nil {
						t.Error("a frozen server has answered")
					}
				})
			}
			wg.Wait()
			s.Close()
			// The client's own are not meant.
			goleak.VerifyNone(t, append(pipes, others)...)
			server.Thaw()
			redistest.Eventually(t, "the client goes on", func() bool { return c.Do(t.Context(), c.B().Ping().Build()).Error() == nil })
		})
	}
}
