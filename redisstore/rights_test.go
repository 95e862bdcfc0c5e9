package redisstore_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/redisstore"
)

// asApp returns the URL with the user "app" and a prefix.
func asApp(url string) string { return strings.Replace(url, "://", "://app:pw@", 1) + "?prefix=mine:" }

func allowApp(s *redistest.Server, rights ...string) {
	s.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">pw"}, rights...)...)
}

// The error for a user without rights lists the rights to grant. They are sufficient, a single server needs all of its
// list, and docs/redis.md has them: the rights for a single server in one line, and the additional rights for a cluster
// or another database below it.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	database := redistest.Start(t)
	for name, test := range map[string]struct {
		url        string
		servers    []*redistest.Server
		additional string
	}{
		"single":   {server.URL(), []*redistest.Server{server}, ""},
		"cluster":  {cluster.URL(), cluster.Masters, " +cluster|slots +cluster|shards +asking"},
		"database": {database.URL() + "/1", []*redistest.Server{database}, " +select"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range test.servers {
				allowApp(s, "+cluster|slots", "+cluster|shards")
			}
			_, err := redisstore.Open(t.Context(), asApp(test.url))
			found := regexp.MustCompile(`ACL SETUSER NAME (~mine:\* &mine:resets [^()]*?) *\(`).FindStringSubmatch(fmt.Sprint(err))
			if found == nil {
				t.Fatalf("error %v does not list the rights to grant", err)
			}
			always, ok := strings.CutSuffix(found[1], test.additional)
			if !ok || !strings.Contains(string(page), strings.ReplaceAll("on >PASSWORD "+always+"\n", "mine:", "sluice:")) ||
				!strings.Contains(string(page), "`"+strings.TrimSpace(test.additional)+"`") {
				t.Errorf("docs/redis.md does not have %q, with %q listed separately", found[1], test.additional)
			}
			rights := strings.Fields(found[1])
			for _, s := range test.servers {
				allowApp(s, rights...)
				s.Do("ACL", "LOG", "RESET")
				s.Do("CONFIG", "RESETSTAT")
			}
			useAll(t, open(t, asApp(test.url)))
			if name == "single" {
				server.Do("FLUSHALL")
				testLongLog(t, server, redisstore.Timed(open(t, asApp(test.url))), time.Minute)
				lengthenLog(t, server, open(t, asApp(test.url)))
				stats := server.Do("INFO", "commandstats")
				for _, r := range rights[2:] { // after the keys and the channel
					if !strings.Contains(stats, "cmdstat_"+strings.TrimPrefix(r, "+")+":") {
						t.Errorf("%s is listed, but not used", r)
					}
				}
			}
			for _, s := range test.servers {
				if log := s.Do("ACL", "LOG"); log != "" {
					t.Errorf("the listed rights are not sufficient: %s", log)
				}
			}
			if test.additional == "" {
				return
			}
			for _, s := range test.servers {
				allowApp(s, strings.Fields(always)...)
			}
			if s, err := redisstore.Open(t.Context(), asApp(test.url)); kindOf(err) != redisstore.Misconfigured {
				t.Errorf("without%s: %v, %v", test.additional, s, err)
			}
		})
	}
}

// useAll uses every feature of a store.
func useAll(t *testing.T, store *redisstore.Store) {
	for _, a := range sluice.Algorithms() {
		p := plan(t, a, "5/1h")
		for _, cost := range []int64{1, 1, -1, 9, sluice.All} {
			takeAll(t, store, sluice.Charge{Key: "a/" + a.String(), Plan: p, Cost: cost}, sluice.Charge{Key: "b/" + a.String(), Plan: p, Cost: 1})
			take(t, store, "c/"+a.String(), p)
		}
	}
	for range 3 {
		take(t, store, "d", plan(t, sluice.TokenBucket, "1000/1h")) // the later Takes add to an existing state
	}
	for number := range uint64(3) {
		takeAll(t, store, aPlace(t, "places", 2, number, 1))
	}
	takeAll(t, store, aPlace(t, "places", 2, 1, -1))
	if n, err := store.Heartbeat(t.Context(), "me"); n != 1 || err != nil {
		t.Errorf("%d instances, error %v", n, err)
	}
	for i := range 258 { // two more than the board keeps
		post(t, store, "now", fmt.Sprint(i), "x", time.Minute)
	}
	posted(t, store, "now")
	if _, err := store.Dangers(t.Context()); err != nil {
		t.Error(err)
	}
}

// lengthenLog takes units until the server extends the expiry of a log that is too long to be read as a whole.
func lengthenLog(t *testing.T, server *redistest.Server, store *redisstore.Store) {
	long := plan(t, sluice.SlidingWindowLogExact, fmt.Sprintf("%d/2s", kernel.MaxLogCount))
	testkit.Await(t, "the expiry of a long log is extended", func() bool {
		plantest.One(t, store, "long", long, kernel.MaxLogCount/40)
		return strings.Contains(server.Do("INFO", "commandstats"), "cmdstat_pexpireat:")
	})
}

// If a right that decisions need is missing, opening a store fails, before the first request of a rule that needs the
// right.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t, "--save", "3600 1"), redistest.StartCluster(t, 3, 0)
	allow := func(s *redistest.Server, rights ...string) {
		allowApp(s, append([]string{"~mine:*", "&mine:*", "+@all"}, rights...)...)
	}
	needs := func(url, want string) {
		t.Helper()
		s, err := redisstore.Open(t.Context(), asApp(url))
		if err == nil {
			s.Close()
		}
		if kindOf(err) != redisstore.Misconfigured || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ACL SETUSER") {
			t.Errorf("%v, want kind misconfigured, with %s", err, want)
		}
	}
	for _, command := range strings.Fields("eval evalsha script|load time get mget set del incrby getrange setrange strlen append pexpireat " +
		"zadd zremrangebyscore zcard zcount zscore zrangebyscore zrem") {
		allow(server, "-"+command)
		needs(server.URL(), "+"+command)
	}
	allow(server, "resetkeys", "~yours:*")
	needs(server.URL(), "~mine:*")
	for _, command := range strings.Fields("hset hdel hget hstrlen zrange pexpire publish") {
		allow(server, "-"+command)
		found, err := open(t, asApp(server.URL())).Dangers(t.Context())
		if err != nil || len(found) != 1 || !strings.Contains(found[0], "+"+command) || !strings.Contains(found[0], server.Addr) {
			t.Errorf("dangers %q, error %v, want one with +%s", found, err, command)
		}
	}

	allow(server)
	store := open(t, asApp(server.URL()))
	if found, err := store.Dangers(t.Context()); len(found) > 0 || err != nil {
		t.Errorf("with all rights: dangers %q, error %v", found, err)
	}
	testkit.Await(t, "the keys of the trials are deleted", func() bool { return server.Do("KEYS", "*") == "" })
	allow(server, "-get") // after opening
	if err := tryFor(t, patient, store, "a", plan(t, sluice.TokenBucket, "5/1h")); kindOf(err) != redisstore.Denied || !notCharged(err) {
		t.Errorf("%v, want kind denied", err)
	}

	for _, s := range cluster.Masters {
		allow(s)
	}
	open(t, asApp(cluster.URL()))
	for _, s := range cluster.Masters {
		allow(s, "-zcount")
		needs(cluster.URL(), s.Addr+": ")
		needs(cluster.URL(), "+zcount")
		allow(s)
	}
}

// Dangers reports dangerous settings of a server, and nothing with the settings of docs/redis.md.
func TestDangers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	for _, step := range []struct{ setting, value, danger string }{
		{"save", "", "nothing is saved to disk"},
		{"save", "3600 1", ""},
		{"maxmemory-policy", "allkeys-lru", ""}, // nothing is evicted as long as memory has no bound
		{"maxmemory", "100mb", "maxmemory-policy is allkeys-lru"},
		{"maxmemory-policy", "volatile-ttl", ""},
	} {
		server.Do("CONFIG", "SET", step.setting, step.value)
		found, err := s.Dangers(t.Context())
		all := strings.Join(found, "\n")
		if err != nil || (len(found) > 0) != (step.danger != "") || len(found) > 1 || !strings.Contains(all, step.danger) {
			t.Errorf("%s %s: %q, %v, want %q", step.setting, step.value, found, err, step.danger)
		}
		if step.danger != "" && !strings.Contains(all, server.Addr) {
			t.Errorf("%q does not name the server", all)
		}
	}
	server.Kill()
	if found, err := s.Dangers(t.Context()); err == nil {
		t.Errorf("with a killed server: %q and no error", found)
	}

	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## Settings\n\n```\n(.*?)```").FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("docs/redis.md has no settings")
	}
	var settings []string
	for line := range strings.Lines(block[1]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		settings = append(settings, "--"+name, value)
	}
	if found, err := open(t, redistest.Start(t, settings...).URL()).Dangers(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("with the settings of docs/redis.md: %q (%v)", found, err)
	}
}
