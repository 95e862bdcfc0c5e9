package redisstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// scripted is a connection on which a server has said something.
type scripted struct {
	net.Conn
	io.Reader
}

func (s scripted) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s scripted) Write(b []byte) (int, error) { return len(b), nil }

func written(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// However commands and replies are cut, the guard lets pass what servers say, and nothing else.
func TestGuardInPieces(t *testing.T) {
	t.Parallel()
	hello := written("HELLO", "3")
	for _, c := range []struct {
		name, commands, replies string
		passes                  bool
	}{
		{"RESP3", hello + written("GET", "a") + written("GET", strings.Repeat("k", 300)),
			"%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*1\r\n%1\r\n+name\r\n+json\r\n" + "$5\r\na\r\nbc\r\n" + "_\r\n", true},
		{"all types", strings.Repeat(written("X"), 12),
			"+OK\r\n-ERR no\r\n:-5\r\n,1.5\r\n(12345678901234567890\r\n#t\r\n=7\r\ntxt:abc\r\n~1\r\n+a\r\n$-1\r\n*-1\r\n$0\r\n\r\n*0\r\n", true},
		{"subscribed", hello + written("SUBSCRIBE", "a", "b") + written("PING"),
			"%0\r\n>3\r\n+subscribe\r\n+a\r\n:1\r\n>3\r\n+message\r\n+a\r\n+x\r\n>3\r\n+subscribe\r\n+b\r\n:2\r\n+PONG\r\n>3\r\n+message\r\n+b\r\n+y\r\n", true},
		{"subscribed by RESP2", written("SUBSCRIBE", "a") + written("PING"), "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n", true},
		{"refused to subscribe", hello + written("SUBSCRIBE", "a"), "%0\r\n-NOPERM no\r\n", true},
		{"unsubscribed", hello + written("UNSUBSCRIBE", "a") + written("PING"), "%0\r\n>3\r\n+unsubscribe\r\n+a\r\n:0\r\n+PONG\r\n", true},
		{"moved", written("GET", "a"), "-MOVED 3999 127.0.0.1:6381\r\n", true},
		{"a Sentinel's master", written("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"), "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n", true},
		{"no master", written("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"), "*-1\r\n", true},
		{"a Sentinel's message", hello + written("SUBSCRIBE", "+sentinel"), "%0\r\n>3\r\n+subscribe\r\n+x\r\n:1\r\n>3\r\n+message\r\n+" + "+sentinel\r\n+sentinel id 127.0.0.1 26379 @ m 127.0.0.1 6379\r\n", true},
		{"a large topology", written("CLUSTER", "SLOTS"), "*4096\r\n" + strings.Repeat("*3\r\n:1\r\n:2\r\n*4\r\n$9\r\n127.0.0.1\r\n:1\r\n$2\r\nid\r\n*0\r\n", 4096), true},

		{"unasked", written("GET", "a"), "+a\r\n+b\r\n", false},
		{"a confirmation that nothing asked for", hello + written("GET", "a"), "%0\r\n>3\r\n+subscribe\r\n+a\r\n:1\r\n", false},
		{"a text for a subscription", hello + written("SUBSCRIBE", "a"), "%0\r\n+QUEUED\r\n", false},
		{"another end of a subscription", hello + written("UNSUBSCRIBE", "a") + written("PING"), "%0\r\n-ERR no\r\n-ERR no\r\n", false},
		{"a message in a list", written("GET", "a"), "*1\r\n>1\r\n+a\r\n", false},
		{"no role", written("ROLE"), "*0\r\n", false},
		{"half a master", written("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"), "*1\r\n$9\r\n127.0.0.1\r\n", false},
		{"moved nowhere", written("GET", "a"), "-MOVED 1\r\n", false},
		{"a large list", written("GET", "a"), "*1025\r\n" + strings.Repeat("_\r\n", 1025), false},
		{"no boolean", written("GET", "a"), "#true\r\n", false},
		{"half an end", written("GET", "a"), "+a\n", false},
		{"a number in words", written("GET", "a"), ":one\r\n", false},
		{"too deep", written("GET", "a"), strings.Repeat("*1\r\n", 9) + "_\r\n", false},
	} {
		for name, cut := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
		} {
			g := newGuard(scripted{Reader: cut(strings.NewReader(c.replies))})
			if name == "bytes" {
				for i := range len(c.commands) {
					if _, err := g.Write([]byte(c.commands[i : i+1])); err != nil {
						t.Fatal(err)
					}
				}
			} else if _, err := g.Write([]byte(c.commands)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(g)
			_, refused := errors.AsType[*replyError](err)
			switch {
			case c.passes && (err != nil || string(got) != c.replies || g.first != len(g.pending)):
				t.Errorf("%s, %s: %v after %d of %d bytes", c.name, name, err, len(got), len(c.replies))
			case !c.passes && (!refused || len(got) == len(c.replies)):
				t.Errorf("%s, %s passes: %v", c.name, name, err)
			}
		}
	}
}

// A connection that is never idle keeps no commands that have been answered.
func TestGuardUnderLoad(t *testing.T) {
	t.Parallel()
	const commands, underway = 100_000, 3
	g := newGuard(scripted{Reader: strings.NewReader(strings.Repeat(":1\r\n", commands-underway))})
	command, reply := []byte(written("GET", "a")), make([]byte, 4)
	for i := range commands {
		if _, err := g.Write(command); err != nil {
			t.Fatal(err)
		}
		if i < underway {
			continue
		}
		if _, err := io.ReadFull(g, reply); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.pending)-g.first != underway || cap(g.pending) > 64 {
		t.Errorf("%d commands are under way of %d that are kept", len(g.pending)-g.first, cap(g.pending))
	}
}
