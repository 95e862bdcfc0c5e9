package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// A right that decisions need is found to be missing when a store is opened, and not by the first
// request of the rule whose kernel needs it.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "3600 1")
	cluster := redistest.StartCluster(t, 3, 0)
	const own = "?prefix=mine:"
	as := func(url string) string { return strings.Replace(url, "://", "://app:pw@", 1) + own }
	allow := func(s *redistest.Server, rights ...string) {
		s.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">pw", "~mine:*", "&mine:*", "+@all"}, rights...)...)
	}
	refused := func(t *testing.T, url, want string) {
		t.Helper()
		s, err := redisstore.Open(t.Context(), as(url))
		if err == nil {
			s.Close()
			t.Fatalf("opens without %s", want)
		}
		if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.Misconfigured || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ACL SETUSER") {
			t.Errorf("%v, want what is misconfigured, with %s", err, want)
		}
	}
	for _, command := range strings.Fields("eval evalsha script|load time get mget set del incrby getrange setrange strlen append pexpireat " +
		"zadd zremrangebyscore zcard zcount zscore zrem") {
		t.Run(command, func(t *testing.T) {
			allow(server, "-"+command)
			refused(t, server.URL(), "+"+command)
		})
	}
	t.Run("keys", func(t *testing.T) {
		allow(server, "resetkeys", "~yours:*")
		refused(t, server.URL(), "~mine:*")
	})
	for _, command := range strings.Fields("hset hdel hget hstrlen zrange zrangebyscore pexpire publish") {
		t.Run(command, func(t *testing.T) {
			allow(server, "-"+command)
			found, err := open(t, as(server.URL())).Dangers(t.Context())
			if err != nil || len(found) != 1 || !strings.Contains(found[0], "+"+command) || !strings.Contains(found[0], server.Addr) {
				t.Errorf("dangers %q, error %v, want one with +%s", found, err, command)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		allow(server)
		store := open(t, as(server.URL()))
		if found, err := store.Dangers(t.Context()); len(found) > 0 || err != nil {
			t.Errorf("dangers %q, error %v", found, err)
		}
		redistest.Eventually(t, "nothing is left of the trials", func() bool { return server.Do("KEYS", "*") == "" })

		// One that is taken away later.
		allow(server, "-get")
		p := plan(t, sluice.TokenBucket, "5/1h")
		err := store.Take(t.Context(), []sluice.Charge{{Key: "a", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.Denied || !e.NotCharged() {
			t.Errorf("%v, want one of kind denied", err)
		}
	})
	t.Run("one node of a cluster", func(t *testing.T) {
		for _, s := range cluster.Masters {
			allow(s)
		}
		open(t, as(cluster.URL()))
		for _, s := range cluster.Masters {
			allow(s, "-zcount")
			refused(t, cluster.URL(), s.Addr+": ")
			refused(t, cluster.URL(), "+zcount")
			allow(s)
		}
	})
}
