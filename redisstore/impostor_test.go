package redisstore_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// impostor is a proxy between a client and a server. It forwards commands and replies until a test sets other replies.
type impostor struct {
	Addr string
	// Handler, if set, answers each command in place of the server.
	Handler atomic.Pointer[func(w io.Writer, command string)]
	// Calls counts the calls of Handler since the last Handle.
	Calls atomic.Int64
	open  sync.Map // connections
}

// startImpostor starts an impostor in front of the server at an address. It stops when the test ends.
func startImpostor(t testing.TB, server string) *impostor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &impostor{Addr: l.Addr().String()}
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
		if handler := m.Handler.Load(); handler != nil {
			m.Calls.Add(1)
			(*handler)(c, name)
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
	_, _ = fmt.Sscanf(string(line), "*%d", &words)
	for i := range words {
		if line, err = r.ReadBytes('\n'); err != nil {
			return nil, "", err
		}
		var n int
		_, _ = fmt.Sscanf(string(line), "$%d", &n)
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

// Handle calls f once on every open connection, and then for each command in place of the server.
func (m *impostor) Handle(f func(w io.Writer, command string)) {
	m.Handler.Store(&f)
	m.Calls.Store(0)
	m.open.Range(func(c, _ any) bool {
		go f(c.(net.Conn), "") // on an idle connection, f may block until the connection is closed
		return true
	})
}

// Relay forwards everything again, over new connections. The old ones have replies without a command, after which the
// client would assign each reply to the wrong command.
func (m *impostor) Relay() {
	m.Handler.Store(nil)
	m.open.Range(func(c, _ any) bool {
		c.(net.Conn).Close()
		return true
	})
}

func text(s string) func(io.Writer, string) {
	return func(w io.Writer, _ string) { _, _ = io.WriteString(w, s) }
}

// hostile has replies that no Redis server sends to any command of a store.
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

// anyReply writes a random value in the protocol of Redis. The value may contain the given port of this machine.
func anyReply(b *strings.Builder, r *rand.Rand, port string) { randomReply(b, r, port, 0) }

func randomReply(b *strings.Builder, r *rand.Rand, port string, depth int) {
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
			randomReply(b, r, port, depth+1)
		}
	case '*', '~', '>':
		n := r.IntN(5)
		if depth > 3 {
			n = 0
		}
		fmt.Fprintf(b, "%c%d\r\n", "*~>***"[r.IntN(6)], n)
		for range n {
			randomReply(b, r, port, depth+1)
		}
	}
}
