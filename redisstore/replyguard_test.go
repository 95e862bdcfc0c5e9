package redisstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// impostor is between a store and a Redis. It passes on what both send until it is given something
// else to send instead of the replies to commands.
type impostor struct {
	addr string
	says atomic.Pointer[func(w io.Writer, command string)]
	told atomic.Int64 // how often it has said it
	open sync.Map     // connections
}

// between starts an impostor before the server at an address.
func between(t *testing.T, server string) *impostor {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &impostor{addr: l.Addr().String()}
	var connections sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		l.Close()
		cancel()
		connections.Wait()
	})
	connections.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			connections.Go(func() {
				defer stop()
				defer c.Close()
				m.serve(c, server)
			})
		}
	})
	return m
}

func (m *impostor) serve(c net.Conn, server string) {
	up, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer up.Close()
	m.open.Store(c, nil)
	defer m.open.Delete(c)
	go func() {
		defer c.Close()
		_, _ = io.Copy(c, up)
	}()
	for r := bufio.NewReader(c); ; {
		command, name, err := readCommand(r)
		if err != nil {
			return
		}
		if says := m.says.Load(); says != nil {
			m.told.Add(1)
			(*says)(c, name)
		} else if _, err := up.Write(command); err != nil {
			return
		}
	}
}

// readCommand returns the bytes of a command, and its name.
func readCommand(r *bufio.Reader) (command []byte, name string, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, "", err
	}
	command = line
	var words int
	fmt.Sscanf(string(line), "*%d", &words)
	for i := range words {
		if line, err = r.ReadBytes('\n'); err != nil {
			return nil, "", err
		}
		var n int
		fmt.Sscanf(string(line), "$%d", &n)
		text := make([]byte, n+2)
		if _, err = io.ReadFull(r, text); err != nil {
			return nil, "", err
		}
		if i == 0 {
			name = string(text[:n])
		}
		command = append(append(command, line...), text...)
	}
	return command, name, nil
}

// say says something on all connections, and then instead of each reply.
func (m *impostor) say(f func(w io.Writer, command string)) {
	m.says.Store(&f)
	m.told.Store(0)
	m.open.Range(func(c, _ any) bool {
		go f(c.(net.Conn), "") // an idle one is not read: it ends with the connection
		return true
	})
}

func text(s string) func(io.Writer, string) {
	return func(w io.Writer, _ string) { _, _ = io.WriteString(w, s) }
}

// hostile has what no Redis answers, whatever it is asked.
var hostile = map[string]func(io.Writer, string){
	"negative length":     text("$-5\r\n"),
	"negative map":        text("%-1\r\n"),
	"negative list":       text("*-2\r\n"),
	"long list":           text("*2000000000\r\n"),
	"long text":           text("$2000000000\r\n"),
	"overflow":            text("%9223372036854775807\r\n"),
	"long number":         text(":99999999999999999999\r\n"),
	"long lists in lists": text(strings.Repeat("*1000\r\n", 8)),
	"streamed text":       text("$?\r\n;-1\r\n"),
	"streamed list":       text("*?\r\n:1\r\n.\r\n"),
	"attribute":           text("|-1\r\n"),
	"redirect to nowhere": text("-MOVED\r\n"),
	"ask nobody":          text("-ASK 1\r\n"),
	"another protocol":    text("HTTP/1.1 400 Bad Request\r\n\r\n"),
	"five million lists": func(w io.Writer, _ string) {
		lists := bytes.Repeat([]byte("*1\r\n"), 1<<16)
		for range 5_000_000 / (1 << 16) {
			if _, err := w.Write(lists); err != nil {
				return
			}
		}
	},
	"a line without an end": func(w io.Writer, _ string) {
		for part := bytes.Repeat([]byte("+"), 1<<16); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	},
	"replies without end": func(w io.Writer, _ string) {
		for part := bytes.Repeat([]byte("+OK\r\n"), 1<<12); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	},
	"messages without end": func(w io.Writer, _ string) {
		for part := bytes.Repeat([]byte(">3\r\n+subscribe\r\n+x\r\n:1\r\n"), 1<<12); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	},
	"message of a Sentinel": text(">3\r\n+message\r\n$11\r\n+slave-role\r\n$1\r\nx\r\n>3\r\n+message\r\n$9\r\n+sentinel\r\n$1\r\nx\r\n"),
	"empty list":            text("*0\r\n"),
	"null":                  text("*-1\r\n"),
}

// TestImpostor is not parallel: it counts what the process allocates. A server that is taken over while
// a store uses it costs errors, and neither the process nor its memory.
func TestImpostor(t *testing.T) {
	p := plan(t, sluice.TokenBucket, "1000000/day")
	server := redistest.Start(t)
	m := between(t, server.Addr)
	store := open(t, "redis://"+m.addr)
	for name, say := range hostile {
		recovers(t, store, p)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m.say(say)
		for m.told.Load() < 4 {
			err := try(t, store, "k", p)
			e, ok := errors.AsType[*redisstore.Error](err)
			if !ok {
				t.Fatalf("%s: a Take returns %v", name, err)
			}
			if e.Kind == redisstore.BadReply && !strings.Contains(err.Error(), "no Redis sends") && !strings.Contains(err.Error(), "reply") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := store.Heartbeat(t.Context(), "me"); err == nil {
				t.Errorf("%s: the heartbeat succeeds", name)
			}
			if _, err := store.Posted(t.Context(), "now"); err == nil {
				t.Errorf("%s: posts are read", name)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: %d bytes were allocated", name, took)
		}
		m.says.Store(nil)
	}
	recovers(t, store, p)
}

// Open returns an error or a store that fails, whatever answers at the address.
func TestImpostorAtTheStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, say := range hostile {
		for _, url := range []string{"redis://%s", "redis-cluster://%s", "redis-sentinel://%s/mine"} {
			t.Run(name+" "+url, func(t *testing.T) {
				t.Parallel()
				m := between(t, server.Addr)
				m.say(say)
				store, err := redisstore.Open(t.Context(), fmt.Sprintf(url, m.addr))
				if err != nil {
					return
				}
				defer store.Close()
				if err := try(t, store, "k", plan(t, sluice.TokenBucket, "1000000/day")); err == nil {
					t.Error("it is taken for a Redis")
				}
			})
		}
	}
}

// A server that answers at random, in the terms of Redis, ends no process.
func TestImpostorAtRandom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := plan(t, sluice.TokenBucket, "1000000/day")
	for seed := range uint64(60) {
		url := []string{"redis://%s", "redis-cluster://%s", "redis-sentinel://%s/mine"}[seed%3]
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := between(t, server.Addr)
			var mu sync.Mutex
			r := rand.New(rand.NewPCG(seed, 1))
			m.say(func(w io.Writer, command string) {
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
					_, port, _ := net.SplitHostPort(m.addr)
					for range 1 + r.IntN(2) {
						value(&b, r, port, 0)
					}
				}
				_, _ = io.WriteString(w, b.String())
				if r.IntN(10) == 0 {
					w.(net.Conn).Close()
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			store, err := redisstore.Open(ctx, fmt.Sprintf(url, m.addr))
			if err != nil {
				return
			}
			defer store.Close()
			for range 20 {
				_ = tryFor(t, 20*time.Millisecond, store, "k", p)
				_, _ = store.Heartbeat(ctx, "me")
				_, _ = store.Posted(ctx, "now")
			}
		})
	}
}

// value writes a random value.
func value(b *strings.Builder, r *rand.Rand, port string, depth int) {
	words := []string{"", "OK", "PONG", "pong", "QUEUED", "message", "subscribe", "unsubscribe", "+sentinel", "+switch-master", "+reboot",
		"slave mine a b c d", "sentinel x 127.0.0.1 " + port, "mine 1 2 127.0.0.1 " + port, "master", "slots", "nodes", "role", "health", "online",
		"endpoint", "port", "ip", "127.0.0.1", port, "0", "5", "16383", "99999"}
	word := words[r.IntN(len(words))]
	switch kinds := "$$$+::*****%%>>~_#,(=-"; kinds[r.IntN(len(kinds))] {
	case '$':
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(word), word)
	case '=':
		b.WriteString("=7\r\ntxt:abc\r\n")
	case '+':
		b.WriteString("+" + word + "\r\n")
	case ':':
		fmt.Fprintf(b, ":%d\r\n", r.IntN(20000)-1000)
	case '_':
		b.WriteString([]string{"_\r\n", "*-1\r\n", "$-1\r\n"}[r.IntN(3)])
	case '#':
		b.WriteString("#t\r\n")
	case ',':
		b.WriteString(",1.5\r\n")
	case '(':
		b.WriteString("(1234567890123456789012345\r\n")
	case '-':
		b.WriteString([]string{"-ERR no\r\n", "-MOVED 5 127.0.0.1:" + port + "\r\n", "-ASK 5 127.0.0.1:" + port + "\r\n", "-NOSCRIPT\r\n", "-TRYAGAIN\r\n",
			"-MOVED\r\n", "-ERR unknown command 'HELLO'\r\n", "-LOADING\r\n", "-NOPERM 'ping'\r\n", "-PONG\r\n"}[r.IntN(10)])
	case '%':
		n := r.IntN(3)
		fmt.Fprintf(b, "%%%d\r\n", n)
		for range 2 * n {
			value(b, r, port, depth+1)
		}
	case '*', '~', '>':
		n := r.IntN(5)
		if depth > 3 {
			n = 0
		}
		fmt.Fprintf(b, "%c%d\r\n", "*~>***"[r.IntN(6)], n)
		for range n {
			value(b, r, port, depth+1)
		}
	}
}
