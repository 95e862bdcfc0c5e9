package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// fill has a store make connections of which most are idle afterwards.
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

// Idle connections that the server has closed cost no decision.
func TestIdleConnectionsDie(t *testing.T) {
	p := plan(t, sluice.TokenBucket, "1000000/second")
	restart := func(s *redistest.Server) { s.Kill(); s.Restart() }
	cutOff := func(s *redistest.Server) { s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
	certs := redistest.NewCerts(t)
	settings := certs.Settings(t)
	encrypted := func(s *redistest.Server) string {
		return "rediss://" + s.TLSAddr + "?ca=" + certs.CA + "&cert=" + certs.Cert + "&key=" + certs.Key
	}
	for name, test := range map[string]struct {
		settings []string
		url      func(s *redistest.Server) string
		close    func(s *redistest.Server)
	}{
		"restarted":         {nil, (*redistest.Server).URL, restart},
		"cut off":           {nil, (*redistest.Server).URL, cutOff},
		"TLS 1.3 restarted": {settings, encrypted, restart},
		"TLS 1.3 cut off":   {settings, encrypted, cutOff},
		"TLS 1.2 cut off":   {append(settings, "--tls-protocols", "TLSv1.2"), encrypted, cutOff},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, test.settings...)
			store := open(t, test.url(server))
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

// A master that has become a replica refuses. Whoever connects to its address anew is led to
// its successor.
func TestAddressMoves(t *testing.T) {
	old, successor := redistest.Start(t), redistest.Start(t)
	px := redistest.StartProxy(t, old.Addr)
	store := open(t, "redis://"+px.Addr)
	p := plan(t, sluice.TokenBucket, "1000000/second")
	fill(t, store, p)
	px.Target(successor.Addr)
	old.Do("REPLICAOF", "127.0.0.1", "1")
	redistest.Eventually(t, "the successor is used", func() bool { return try(t, store, "k", p) == nil })
	if n := commandCalls(t, successor, "evalsha"); n == 0 {
		t.Error("the successor was not asked")
	}
}

// Connections from which no answer ever comes do not keep others from being made.
func TestConnectionsLeadNowhere(t *testing.T) {
	server := redistest.Start(t)
	px := redistest.StartProxy(t, server.Addr)
	store := open(t, "redis://"+px.Addr)
	p := plan(t, sluice.TokenBucket, "1000000/second")
	fill(t, store, p)
	px.Mute()
	begin := time.Now()
	redistest.Eventually(t, "new connections are made", func() bool { return try(t, store, "k", p) == nil })
	t.Logf("after %v", time.Since(begin))
}

// Close does not wait for a server that does not answer until it gives up by itself.
func TestCloseCutsOff(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.TokenBucket, "1000000/second")
	take(t, store, "k", p)
	redistest.Eventually(t, "its call is back", func() bool { return !store.Away() })
	server.Freeze()
	defer server.Thaw()
	told := make(chan error)
	go func() {
		var r [1]sluice.Receipt
		told <- store.Take(context.Background(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, r[:])
	}()
	redistest.Eventually(t, "the request is under way", store.Away)
	_ = store.Close()
	err := <-told
	if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.Unknown || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
