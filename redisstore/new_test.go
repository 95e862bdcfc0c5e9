package redisstore_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// Stores over one client and stores that connect by themselves share their counts, if the
// keys are named alike. Close leaves the client alone.
func TestNewShares(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c, p := client(t, clientOf(server)), plan(t, sluice.FixedWindow, "10/10d")
	keys := redisstore.Keys{Prefix: "mine:", HashKey: []byte("secret")}
	for want := int64(1); want <= 3; want++ {
		s, err := redisstore.New(t.Context(), c, keys)
		if err != nil {
			t.Fatal(err)
		}
		if r := plantest.One(t, s, "k", p, 1); r.Used != want {
			t.Errorf("store %d: %d are used", want, r.Used)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if try(t, s, "k", p) == nil {
			t.Error("a closed store takes")
		}
	}
	opened, err := redisstore.Config{Addrs: []string{server.Addr}, DB: server.DB, Prefix: keys.Prefix, HashKey: keys.HashKey}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if n := used(t, opened, "k", p); n != 3 {
		t.Errorf("a store that connects by itself: %d are used", n)
	}
	if n := used(t, over(t, clientOf(server), redisstore.Keys{}), "k", p); n != 0 {
		t.Errorf("under another prefix: %d are used", n)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	server, replica, locked := redistest.Shared(t), redistest.Start(t), redistest.Start(t)
	replica.Do("REPLICAOF", server.Host, strconv.Itoa(server.Port))
	single := func(s *redistest.Server) rueidis.Client {
		return client(t, rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true})
	}
	denied := single(locked)
	locked.Do("ACL", "SETUSER", "default", "-eval", "-evalsha", "-script")
	for _, test := range []struct {
		client rueidis.Client
		prefix string
		says   string
	}{{nil, "", "needs a client"}, {single(server), "{a}", "brace"}, {single(replica), "", "replica"}, {denied, "", "script"}} {
		s, err := redisstore.New(t.Context(), test.client, redisstore.Keys{Prefix: test.prefix})
		if kindOf(err) != redisstore.Misconfigured || !strings.Contains(strings.ToLower(err.Error()), test.says) {
			t.Errorf("%v, %v, want %s", s, err, test.says)
		}
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
					err := tryFor(t, 50*time.Millisecond, s, "k", plan(t, sluice.TokenBucket, "1000/10d"))
					if kind := kindOf(err); kind != redisstore.Unknown && kind != redisstore.NotSent {
						t.Errorf("of a frozen server: %v", err)
					}
				})
			}
			wg.Wait()
			soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := s.Post(soon, "now", "a", nil, time.Minute); err == nil {
				t.Error("a frozen server has taken a post")
			}
			s.Close()
			// The client's own are not meant.
			goleak.VerifyNone(t, append(pipes, others)...)
			server.Thaw()
			redistest.Eventually(t, "the client goes on", func() bool { return c.Do(t.Context(), c.B().Ping().Build()).Error() == nil })
		})
	}
}
