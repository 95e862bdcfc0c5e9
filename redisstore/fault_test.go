package redisstore_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// Each thing that a server can have has an error of its own, and passes.
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

// A server that answers nonsense gets an error, and nobody in.
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
			m := redistest.StartImpostor(t, redistest.Shared(t).Addr)
			store := open(t, "redis://"+m.Addr)
			says := func(w io.Writer, _ string) {
				_, _ = io.WriteString(w, reply)
				if reply == "" || strings.HasPrefix(reply, "$99999") {
					_ = w.(io.Closer).Close()
				}
			}
			m.Says.Store(&says)
			var r [1]sluice.Receipt
			err := store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, r[:])
			if kindOf(err) == 0 || notCharged(err) || r[0].Fits {
				t.Errorf("%+v, error %v", r[0], err)
			}
		})
	}
}

// When its master dies, a store that knows Sentinels goes to the next one, and resets are heard again.
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
