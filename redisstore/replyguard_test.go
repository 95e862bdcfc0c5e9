package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// TestImpostor replaces a server by a hostile one while a store uses it. Calls fail, but the process neither crashes
// nor allocates much memory. The test is not parallel, because it counts the allocations of the process.
func TestImpostor(t *testing.T) {
	p := plan(t, sluice.TokenBucket, "1000000/day")
	server := redistest.Shared(t)
	m := startImpostor(t, server.Addr)
	store := open(t, "redis://"+m.Addr)
	for name, handler := range hostile {
		recovers(t, store, p)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m.Handle(handler)
		for m.Calls.Load() < 4 {
			err := try(t, store, "k", p)
			kind := kindOf(err)
			if kind == 0 {
				t.Fatalf("%s: a Take returns %v", name, err)
			}
			if kind == redisstore.BadReply && !strings.Contains(err.Error(), "no Redis sends") && !strings.Contains(err.Error(), "reply") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := store.Heartbeat(t.Context(), "me"); err == nil {
				t.Errorf("%s: the heartbeat succeeds", name)
			}
			if _, err := store.Posted(t.Context(), "now"); err == nil {
				t.Errorf("%s: Posted succeeds", name)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: %d bytes were allocated", name, took)
		}
		m.Relay()
	}
	recovers(t, store, p)
}

// A server with random replies in the protocol of Redis does not crash the process, neither while a store is opened nor
// later.
func TestImpostorAtRandom(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(60) {
		url := []string{"redis://%s", "redis-cluster://%s", "redis-sentinel://%s/mine"}[seed%3]
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := startImpostor(t, server.Addr)
			at := fmt.Sprintf(url, m.Addr)
			var store *redisstore.Store
			if seed%6 == 0 {
				store = open(t, at)
			}
			m.Handle(atRandom(m, seed))
			for m.Calls.Load() < 20 { // counts commands, because a busy machine may take long for them
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				if store != nil {
					useAtRandom(ctx, t, store)
				} else if s, err := redisstore.Open(ctx, at); err == nil {
					useAtRandom(ctx, t, s)
					s.Close()
				}
				cancel()
			}
		})
	}
}

func useAtRandom(ctx context.Context, t *testing.T, store *redisstore.Store) {
	_ = tryFor(t, 20*time.Millisecond, store, "k", plan(t, sluice.TokenBucket, "1000000/day"))
	_, _ = store.Heartbeat(ctx, "me")
	_, _ = store.Posted(ctx, "now")
}

// atRandom answers commands with random replies. Some greetings and subscriptions also get the reply of a real server.
func atRandom(m *impostor, seed uint64) func(w io.Writer, command string) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	return func(w io.Writer, command string) {
		mu.Lock()
		defer mu.Unlock()
		var b strings.Builder
		switch {
		case command == "HELLO" && r.IntN(4) > 0:
			fmt.Fprintf(&b, "%%3\r\n+proto\r\n:%d\r\n+version\r\n+%d.0.0\r\n+mode\r\n+standalone\r\n", 2+r.IntN(2), 5+r.IntN(4))
		case command == "ROLE" && r.IntN(2) > 0:
			b.WriteString("*3\r\n+master\r\n:0\r\n*0\r\n")
		case command == "SUBSCRIBE" && r.IntN(2) > 0:
			for range 1 + r.IntN(8) {
				b.WriteString(">3\r\n+subscribe\r\n+x\r\n:1\r\n")
			}
		}
		if b.Len() == 0 || r.IntN(3) == 0 {
			_, port, _ := net.SplitHostPort(m.Addr)
			for range 1 + r.IntN(2) {
				anyReply(&b, r, port)
			}
		}
		_, _ = io.WriteString(w, b.String())
		if r.IntN(10) == 0 {
			w.(net.Conn).Close()
		}
	}
}
