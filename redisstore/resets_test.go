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

// channel is where the resets of stores with the default prefix are told.
const channel = redisstore.DefaultPrefix + "resets"

// listeners returns how many connections to servers have subscribed to a channel.
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
	testkit.Await(t, fmt.Sprintf("%d stores listen", want), func() bool { return listeners(channel, servers...) == want })
}

// resetter has one store remember refusals, and another one reset or give back what is refused.
type resetter struct {
	t            testing.TB
	asked, other *redisstore.Store
	back         int64 // the cost of that
	n            int
}

func (r *resetter) take(s *redisstore.Store, p *sluice.Plan, key string, cost int64) sluice.Receipt {
	r.t.Helper()
	return plantest.One(r.t, s, key, p, cost)
}

// noticed returns how long after the server was asked for a refusal, or sooner, a unit fits: the
// other store has given back meanwhile.
func (r *resetter) noticed(p *sluice.Plan) (after time.Duration) {
	r.t.Helper()
	r.n++
	key := fmt.Sprint("k", r.n)
	r.take(r.asked, p, key, p.Capacity)
	begin := time.Now()
	if r.take(r.asked, p, key, 1).Fits || r.take(r.asked, p, key, 1).Origin != sluice.ByDenyCache {
		return sluice.Never // a second has passed in between
	}
	r.take(r.other, p, key, r.back)
	testkit.Await(r.t, "what was given back is noticed", func() bool { return r.take(r.asked, p, key, 1).Fits })
	return time.Since(begin)
}

// expectHeard fails the test unless what is given back is noticed sooner than it could be without a message:
// what has been asked for at most a second ago is remembered. A busy machine may need another try.
func (r *resetter) expectHeard(p *sluice.Plan) {
	r.t.Helper()
	testkit.Await(r.t, "what was given back is heard of", func() bool { return r.noticed(p) < time.Second })
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

// Whichever node it is told to, and whichever is listened to.
func TestResetHeardInCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	r := &resetter{t: t, back: sluice.All, asked: open(t, c.URL()), other: over(t, clientOf(c.Nodes[0]), redisstore.Keys{})}
	waitForListeners(t, 2, c.Nodes...)
	for range 10 { // keys of several slots
		r.expectHeard(plan(t, sluice.TokenBucket, "3/10d burst 3"))
	}
}

// A user who may not subscribe learns of a reset a second later, and the operator what to change.
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

// Close ends the subscription, also of a client that goes on, and leaves another's alone.
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
			testkit.Await(t, "all listen", func() bool { return mine() == 1 && listeners("other:resets", server) == 1 })
			s.Close()
			r := &resetter{t: t, back: sluice.All, asked: same, other: open(t, server.URL())}
			testkit.Await(t, "that of the same prefix listens again", func() bool { return mine() == 2 })
			r.expectHeard(plan(t, sluice.FixedWindow, "3/10d"))
			r.other.Close()
			same.Close()
			testkit.Await(t, "none listens", func() bool { return mine() == 0 })
			if n := listeners("other:resets", server); n != 1 {
				t.Errorf("%d listen for the other prefix", n)
			}
			another.Close()
			goleak.VerifyNone(t, append(pipes, others)...) // the client's own are not meant
			if err := c.Do(t.Context(), c.B().Ping().Build()).Error(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nothing that is published makes a store refuse or fail, and keys do not show where they are
// secret.
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

// Keys do not show in what is published where they are secret.
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
		testkit.Await(t, "the test listens", func() bool { return listeners(prefix+"resets", server) == 1 })
		s := over(t, clientOf(server), redisstore.Keys{Prefix: prefix, HashKey: []byte(secret)})
		for _, cost := range []int64{1, 40, -1, sluice.All} { // only All is published, because the state is not nearly full
			plantest.One(t, s, "alice", p, cost)
		}
		s.Close() // when all is told
		if m := <-heard; strings.Contains(m, "alice") != shows || len(heard) > 0 {
			t.Errorf("secret %q: %q was published, and %d more", secret, m, len(heard))
		}
		stop()
		listening.Wait()
	}
}

// However much is given back, few messages tell of it.
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
	r.expectHeard(p) // by now all before it is published
	calls := int(commandCalls("publish", server))
	if most := 1 + int(time.Since(began)/redisstore.GatherFor); calls < 1 || calls > most {
		t.Errorf("%d messages, want 1 to %d: one in %v", calls, most, redisstore.GatherFor)
	}
}
