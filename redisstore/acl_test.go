package redisstore_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// What the error for a user without rights tells an operator to type is enough, and no
// more than is used.
func TestRights(t *testing.T) {
	t.Parallel()
	const user = "app"
	as := func(url string) string { return strings.Replace(url, "://", "://"+user+":pw@", 1) + "?prefix=mine:" }
	hint := regexp.MustCompile(`ACL SETUSER NAME (~mine:\* &mine:resets [^()]*) \(`)
	// allowed gives the user what the error asks for.
	allowed := func(t *testing.T, url string, servers ...*redistest.Server) (rights []string) {
		for _, s := range servers {
			s.Do("ACL", "SETUSER", user, "on", ">pw", "-@all", "+cluster|slots", "+cluster|shards")
		}
		_, err := redisstore.Open(t.Context(), as(url))
		if err == nil {
			t.Fatal("a user without rights opens a store")
		}
		found := hint.FindStringSubmatch(err.Error())
		if found == nil {
			t.Fatalf("error %q does not say what to allow", err)
		}
		rights = strings.Fields(found[1])
		for _, s := range servers {
			s.Do(append([]string{"ACL", "SETUSER", user, "reset", "on", ">pw"}, rights...)...)
			s.Do("ACL", "LOG", "RESET")
			s.Do("CONFIG", "RESETSTAT")
		}
		return rights
	}
	// uses makes use of all that a store can do.
	uses := func(t *testing.T, url string) {
		store := open(t, as(url))
		for _, a := range sluice.Algorithms() {
			p := plan(t, a, "5/1h")
			for _, cost := range []int64{1, 1, -1, 9, sluice.All} {
				charges := []sluice.Charge{{Key: "a/" + a.String(), Plan: p, Cost: cost}, {Key: "b/" + a.String(), Plan: p, Cost: 1}}
				if err := store.Take(t.Context(), charges, make([]sluice.Receipt, 2)); err != nil {
					t.Fatal(err)
				}
				take(t, store, "c/"+a.String(), p)
			}
		}
		for range 3 {
			take(t, store, "d", plan(t, sluice.TokenBucket, "1000/1h")) // is added to
		}
		for number := range uint64(3) {
			takeAll(t, store, aPlace(t, "places", 2, number, 1))
		}
		takeAll(t, store, aPlace(t, "places", 2, 1, -1))
		if n, err := store.Heartbeat(t.Context(), "me"); n != 1 || err != nil {
			t.Errorf("%d instances, error %v", n, err)
		}
		for i := range 258 { // one too many is forgotten
			post(t, store, "now", fmt.Sprint(i), "x", time.Minute)
		}
		posted(t, store, "now")
		if _, err := store.Dangers(t.Context()); err != nil {
			t.Error(err)
		}
	}
	denials := func(t *testing.T, servers ...*redistest.Server) {
		t.Helper()
		for _, s := range servers {
			if log := s.Do("ACL", "LOG"); log != "" {
				t.Errorf("what was hinted at is not enough: %s", log)
			}
		}
	}
	t.Run("single", func(t *testing.T) {
		server := redistest.Start(t)
		url := server.URL() + "/3"
		rights := allowed(t, url, server)
		uses(t, url)
		server.Do("FLUSHALL")
		testLongLog(t, server, redisstore.Timed(open(t, as(url))), time.Minute)
		long := plan(t, sluice.SlidingWindowLogExact, fmt.Sprintf("%d/2s", sluice.MaxLogCount))
		store := open(t, as(url))
		redistest.Eventually(t, "a long log lives longer", func() bool {
			charges := []sluice.Charge{{Key: "long", Plan: long, Cost: sluice.MaxLogCount / 40}}
			if err := store.Take(t.Context(), charges, make([]sluice.Receipt, 1)); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(server.Do("INFO", "commandstats"), "cmdstat_pexpireat:")
		})
		denials(t, server)
		stats := server.Do("INFO", "commandstats")
		for _, r := range rights[2:] { // behind the keys and the channel
			if !strings.Contains(stats, "cmdstat_"+strings.TrimPrefix(r, "+")+":") {
				t.Errorf("%s is asked for and not used", r)
			}
		}
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3, 0)
		allowed(t, c.URL(), c.Masters...)
		uses(t, c.URL())
		denials(t, c.Masters...)
	})
}
