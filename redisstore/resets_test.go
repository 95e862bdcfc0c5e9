package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// channel is the channel for resets of stores with the default prefix.
const channel = redisstore.DefaultPrefix + "resets"

// listeners returns the number of connections to servers that are subscribed to a channel.
func listeners(channel string, servers ...*redistest.Server) int {
	n := 0
	for _, s := range servers {
		var one int
		reply, _ := s.Try("PUBSUB", "NUMSUB", channel) // fails while a replica becomes a master
		_, _ = fmt.Sscanf(reply, channel+"\n%d", &one)
		n += one
	}
	return n
}

func waitForListeners(t testing.TB, want int, servers ...*redistest.Server) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("%d stores are subscribed", want), func() bool { return listeners(channel, servers...) == want })
}

// resetter has two stores. One remembers denials, and the other resets or refunds the denied keys.
type resetter struct {
	t            testing.TB
	asked, other *redisstore.Store
	back         int64 // cost of the reset or refund
	n            int
}

func (r *resetter) take(s *redisstore.Store, p *sluice.Plan, key string, cost int64) sluice.Receipt {
	r.t.Helper()
	return plantest.One(r.t, s, key, p, cost)
}

// noticed makes the first store remember a denial and the other store give units back. It returns the time from before
// the denial until a unit fits in the first store.
func (r *resetter) noticed(p *sluice.Plan) (after time.Duration) {
	r.t.Helper()
	r.n++
	key := fmt.Sprint("k", r.n)
	r.take(r.asked, p, key, p.Capacity)
	begin := time.Now()
	if r.take(r.asked, p, key, 1).Fits || r.take(r.asked, p, key, 1).Origin != sluice.ByDenyCache {
		return sluice.Never // more than a second has passed
	}
	r.take(r.other, p, key, r.back)
	testkit.Await(r.t, "a refund is noticed", func() bool { return r.take(r.asked, p, key, 1).Fits })
	return time.Since(begin)
}

// expectHeard fails the test unless a refund is noticed within a second: without a message, the denial would be
// remembered for longer. A busy machine may need another try.
func (r *resetter) expectHeard(p *sluice.Plan) {
	r.t.Helper()
	testkit.Await(r.t, "a refund is noticed within a second", func() bool { return r.noticed(p) < time.Second })
}

func TestResetHeard(t *testing.T) {
	t.Parallel()
	pooled := func(o rueidis.ClientOption) rueidis.ClientOption {
		o.DisableAutoPipelining, o.BlockingPoolSize = true, 1
		return o
	}
	resp2 := func(o rueidis.ClientOption) rueidis.ClientOption {
		o.AlwaysRESP2, o.DisableCache = true, true
		return o
	}
	usual := func(o rueidis.ClientOption) rueidis.ClientOption { return o }
	var opened func(o rueidis.ClientOption) rueidis.ClientOption
	for name, test := range map[string]struct {
		asked, other func(o rueidis.ClientOption) rueidis.ClientOption
		secret       string
	}{
		"opened":      {opened, opened, ""},
		"hashed":      {opened, usual, "0123456789abcdef"},
		"own client":  {usual, opened, ""},
		"its pool":    {pooled, pooled, ""},
		"its RESP2":   {resp2, resp2, ""},
		"opened, own": {opened, usual, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			made := func(option func(o rueidis.ClientOption) rueidis.ClientOption) *redisstore.Store {
				if option != nil {
					return over(t, option(clientOf(server)), redisstore.Keys{HashKey: []byte(test.secret)})
				}
				s, err := redisstore.Config{Addrs: []string{server.Addr}, HashKey: []byte(test.secret)}.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			r := &resetter{t: t, asked: made(test.asked), other: made(test.other)}
			waitForListeners(t, 2, server)
			for _, r.back = range []int64{sluice.All, -1} {
				for _, a := range sluice.Algorithms() {
					r.expectHeard(plan(t, a, "3/10d"))
				}
				r.expectHeard(plan(t, sluice.FixedWindow, "3/month"))
			}
		})
	}
}

// On a cluster, a message arrives whichever nodes the stores publish to and subscribe to.
func TestResetHeardInCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	r := &resetter{t: t, back: sluice.All, asked: open(t, c.URL()), other: over(t, clientOf(c.Nodes[0]), redisstore.Keys{})}
	waitForListeners(t, 2, c.Nodes...)
	for range 10 { // keys of several slots
		r.expectHeard(plan(t, sluice.TokenBucket, "3/10d burst 3"))
	}
}

// Without the permission to subscribe, a reset takes effect after a second, and Dangers returns the missing rights.
func TestResetWithoutRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "3600 1")
	server.Do("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-@pubsub", "resetchannels")
	url := strings.Replace(server.URL(), "://", "://app:pw@", 1)
	r := &resetter{t: t, back: sluice.All, asked: open(t, url), other: open(t, url)}
	found, err := r.asked.Dangers(t.Context())
	rights := "+subscribe +publish &" + channel
	if err != nil || !slices.ContainsFunc(found, func(d string) bool { return strings.Contains(d, rights) }) {
		t.Fatalf("%q, %v, want the rights %s", found, err, rights)
	}
	p := plan(t, sluice.TokenBucket, "3/10d burst 3")
	testkit.Await(t, "a reset is noticed", func() bool {
		after := r.noticed(p)
		return after != sluice.Never && after >= time.Second
	})
	server.Do(append([]string{"ACL", "SETUSER", "app"}, strings.Fields(rights)...)...)
	waitForListeners(t, 2, server)
	r.expectHeard(p)
}

// Close ends the store's subscription, even if its client stays in use. Other stores with that client stay subscribed,
// or subscribe again.
func TestResetCloseEnds(t *testing.T) {
	server := redistest.Start(t)
	for name, o := range map[string]rueidis.ClientOption{
		"usual":  {InitAddress: []string{server.Addr}},
		"pooled": {InitAddress: []string{server.Addr}, DisableAutoPipelining: true},
		"RESP2":  {InitAddress: []string{server.Addr}, AlwaysRESP2: true, DisableCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(t, o)
			defer c.Close()
			others := goleak.IgnoreCurrent()
			made := func(k redisstore.Keys) *redisstore.Store {
				s, err := redisstore.New(t.Context(), c, k)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s, same, another := made(redisstore.Keys{}), made(redisstore.Keys{}), made(redisstore.Keys{Prefix: "other:"})
			mine := func() int { return listeners(channel, server) }
			testkit.Await(t, "all stores are subscribed", func() bool { return mine() == 1 && listeners("other:resets", server) == 1 })
			s.Close()
			r := &resetter{t: t, back: sluice.All, asked: same, other: open(t, server.URL())}
			testkit.Await(t, "the store with the same prefix is subscribed again", func() bool { return mine() == 2 })
			r.expectHeard(plan(t, sluice.FixedWindow, "3/10d"))
			r.other.Close()
			same.Close()
			testkit.Await(t, "no store is subscribed", func() bool { return mine() == 0 })
			if n := listeners("other:resets", server); n != 1 {
				t.Errorf("%d subscriptions for the other prefix, want 1", n)
			}
			another.Close()
			goleak.VerifyNone(t, append(pipes, others)...) // ignores the client's own goroutines
			if err := c.Do(t.Context(), c.B().Ping().Build()).Error(); err != nil {
				t.Error(err)
			}
		})
	}
}

// No published message makes a store deny or fail.
func TestResetForged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := &resetter{t: t, back: sluice.All, asked: open(t, server.URL()), other: open(t, server.URL())}
	waitForListeners(t, 2, server)
	p := plan(t, sluice.FixedWindow, "3/10d")
	for _, m := range []string{"", "x", "12345678", "12345678\x05four", "12345678\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", strings.Repeat("\x00", 1<<20)} {
		server.Do("PUBLISH", channel, m)
		r.expectHeard(p)
	}
}

// Messages do not contain readable keys if HashKey is set.
func TestResetKeepsSecret(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := client(t, clientOf(server))
	p := plan(t, sluice.FixedWindow, "30/10d")
	for secret, shows := range map[string]bool{"": true, "0123456789abcdef": false} {
		prefix, heard := t.Name()+secret+":", make(chan string, 100)
		ctx, stop := context.WithCancel(t.Context())
		var listening sync.WaitGroup
		listening.Go(func() {
			_ = c.Receive(ctx, c.B().Subscribe().Channel(prefix+"resets").Build(), func(m rueidis.PubSubMessage) { heard <- m.Message })
		})
		testkit.Await(t, "the test is subscribed", func() bool { return listeners(prefix+"resets", server) == 1 })
		s := over(t, clientOf(server), redisstore.Keys{Prefix: prefix, HashKey: []byte(secret)})
		for _, cost := range []int64{1, 40, -1, sluice.All} { // only All is published, because the state is not nearly full
			plantest.One(t, s, "alice", p, cost)
		}
		s.Close() // returns when all is published
		if m := <-heard; strings.Contains(m, "alice") != shows || len(heard) > 0 {
			t.Errorf("secret %q: %q was published, and %d more", secret, m, len(heard))
		}
		stop()
		listening.Wait()
	}
}

// Many refunds are published in few messages.
func TestGiveBackGathered(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := &resetter{t: t, asked: open(t, server.URL()), other: open(t, server.URL()), back: -1}
	waitForListeners(t, 2, server)
	p, began := plan(t, sluice.FixedWindow, "3/10d"), time.Now()
	for i := range 1000 {
		r.take(r.other, p, fmt.Sprint("back", i%10), 1)
		r.take(r.other, p, fmt.Sprint("back", i%10), -1)
	}
	r.expectHeard(p) // by then, all earlier refunds are published
	calls := int(commandCalls("publish", server))
	if most := 1 + int(time.Since(began)/redisstore.GatherFor); calls < 1 || calls > most {
		t.Errorf("%d messages, want 1 to %d: one every %v", calls, most, redisstore.GatherFor)
	}
}
