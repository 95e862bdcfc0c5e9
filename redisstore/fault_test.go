package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// try takes one unit, waiting a second at most.
func try(t testing.TB, s sluice.Store, key string, p *sluice.Plan) error {
	t.Helper()
	return tryFor(t, time.Second, s, key, p)
}

// patient is longer than any machine takes for what goes well.
const patient = time.Minute

func tryFor(t testing.TB, wait time.Duration, s sluice.Store, key string, p *sluice.Plan) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return s.Take(ctx, []sluice.Charge{{Key: key, Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
}

// becomes waits until a Take fails with an error of that kind.
func becomes(t *testing.T, s sluice.Store, p *sluice.Plan, kind redisstore.Kind) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("the last error was %v", last)
		}
	}()
	redistest.Eventually(t, "a Take fails: "+kind.String(), func() bool {
		last = try(t, s, "k", p)
		e, ok := errors.AsType[*redisstore.Error](last)
		return ok && e.Kind == kind
	})
}

// recovers waits until Takes are decided again.
func recovers(t *testing.T, s sluice.Store, p *sluice.Plan) {
	t.Helper()
	redistest.Eventually(t, "the store answers again", func() bool { return try(t, s, "k", p) == nil })
}

// Each thing that a server can have has an error of its own, and passes.
func TestFaults(t *testing.T) {
	p := plan(t, sluice.TokenBucket, "1000000/day")
	for _, tt := range []struct {
		name     string
		kind     redisstore.Kind
		settings []string
		begin    func(*redistest.Server)
		end      func(*redistest.Server)
	}{
		{"killed", redisstore.Unavailable, nil, (*redistest.Server).Kill, func(s *redistest.Server) { s.Restart() }},
		{"loading", redisstore.Loading, []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"},
			func(s *redistest.Server) {
				s.Do("DEBUG", "POPULATE", "3000", "x", "100")
				s.Do("SAVE")
				s.Restart("--key-load-delay", "1000")
			},
			func(*redistest.Server) {}},
		{"busy", redisstore.Busy, []string{"--lua-time-limit", "20"},
			func(s *redistest.Server) { go s.Try("EVAL", "while true do end", "0") },
			func(s *redistest.Server) { s.Do("SCRIPT", "KILL") }},
		{"replica", redisstore.ReadOnly, nil,
			func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{"cannot save", redisstore.ReadOnly, []string{"--repl-diskless-sync", "yes"},
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }},
		{"out of memory", redisstore.OutOfMemory, nil,
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
		{"denied", redisstore.Denied, []string{"--user", "app", "on", ">pw", "~*", "+@all"},
			func(s *redistest.Server) { s.Do("ACL", "SETUSER", "app", "-@scripting") },
			func(s *redistest.Server) { s.Do("ACL", "SETUSER", "app", "+@all") }},
		{"password changed", redisstore.Denied, []string{"--user", "app", "on", ">pw", "~*", "+@all"},
			func(s *redistest.Server) {
				s.Do("ACL", "SETUSER", "app", "resetpass", ">other")
				s.Do("CLIENT", "KILL", "USER", "app")
			},
			func(s *redistest.Server) { s.Do("ACL", "SETUSER", "app", ">pw") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tt.settings...)
			url := server.URL()
			if tt.kind == redisstore.Denied {
				url = strings.Replace(url, "://", "://app:pw@", 1)
			}
			store := open(t, url)
			take(t, store, "k", p)
			tt.begin(server)
			becomes(t, store, p, tt.kind)
			tt.end(server)
			recovers(t, store, p)
		})
	}
}

// A frozen server holds up nobody for longer than they like.
func TestFrozen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.TokenBucket, "1000000/day")
	take(t, store, "k", p)
	server.Freeze()
	becomes(t, store, p, redisstore.Unknown)
	server.Thaw()
	recovers(t, store, p)
}

// A server that answers nonsense gets an error, and nobody in.
func TestWrongReplies(t *testing.T) {
	t.Parallel()
	p := plan(t, sluice.TokenBucket, "10/day")
	number := func(b string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(b), b) }
	for _, reply := range []string{
		":1\r\n", "+OK\r\n", "$3\r\nabc\r\n", "$-1\r\n", "$0\r\n\r\n", "*0\r\n", "*2\r\n:1\r\n:2\r\n", "-ERR whatever\r\n", "_\r\n", "#t\r\n", "%1\r\n+a\r\n+b\r\n",
		number(strings.Repeat("\xff", 16)), number(strings.Repeat("\x00", 8)), number(strings.Repeat("\x00", 24)),
		number("\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\xe0\x3f"), // 1 and 0.5
		"garbage\r\n", "", "$99999\r\nx",
	} {
		t.Run(fmt.Sprintf("%.20q", reply), func(t *testing.T) {
			t.Parallel()
			store := open(t, "redis://"+liar(t, reply))
			var r [1]sluice.Receipt
			err := store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, r[:])
			e, ok := errors.AsType[*redisstore.Error](err)
			if !ok || e.NotCharged() || r[0].Fits {
				t.Errorf("%+v, error %v", r[0], err)
			}
		})
	}
}

// liar starts a server that gives one reply to every EVALSHA with a key, and returns its address.
func liar(t *testing.T, reply string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go lie(conn, reply)
		}
	}()
	return l.Addr().String()
}

func lie(conn net.Conn, reply string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		var n int
		if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
			return
		}
		var command, keys string
		for i := range n {
			var size int
			if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
				return
			}
			b := make([]byte, size+2)
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			switch i {
			case 0:
				command = string(b[:size])
			case 2:
				keys = string(b[:size])
			}
		}
		answer := "+OK\r\n"
		switch {
		case command == "HELLO":
			answer = "-ERR unknown command 'HELLO'\r\n"
		case command == "EVALSHA" && keys == "0": // no right is missing
			answer = "*0\r\n"
		case command == "EVALSHA":
			answer = reply
			if answer == "" || strings.HasPrefix(answer, "$99999") {
				io.WriteString(conn, answer)
				return
			}
		}
		io.WriteString(conn, answer)
	}
}

// When its master dies, a store that knows Sentinels goes to the next one.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	watched := redistest.StartSentinel(t, "mymaster")
	store := open(t, "redis-sentinel://"+watched.Addr+"/mymaster")
	p := plan(t, sluice.TokenBucket, "1000000/day")
	take(t, store, "k", p)
	watched.Master.Kill()
	recovers(t, store, p)
	if role := watched.Replica.Info("role"); role != "master" {
		t.Errorf("the replica is a %s", role)
	}
}
