package redisstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// scripted is a connection on which the server sends the bytes of a Reader.
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

// The guard passes the replies that servers send and no others, in whatever chunks commands and replies arrive.
func TestGuardInPieces(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("testdata/replies.txt")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "\n= ")[1:]
	if len(parts) < 20 {
		t.Errorf("testdata/replies.txt has %d replies", len(parts))
	}
	for _, part := range parts {
		lines := strings.Split(strings.TrimSpace(part), "\n")
		verdict, list, _ := strings.Cut(lines[1], ": ")
		commands := ""
		for command := range strings.SplitSeq(list, "; ") {
			commands += written(strings.Fields(command)...)
		}
		replies, err := strconv.Unquote(`"` + lines[2] + `"`)
		if err != nil {
			t.Fatal(err)
		}
		testGuard(t, lines[0], commands, replies, verdict == "passes")
	}
	null := strings.Repeat("_\r\n", 1025)
	testGuard(t, "a large list", written("GET", "a"), "*1025\r\n"+null, false)
	slot := "*3\r\n:1\r\n:2\r\n*4\r\n$9\r\n127.0.0.1\r\n:1\r\n$2\r\nid\r\n*0\r\n"
	testGuard(t, "a large topology", written("CLUSTER", "SLOTS"), "*4096\r\n"+strings.Repeat(slot, 4096), true)
	testGuard(t, "a long key", written("GET", strings.Repeat("k", 300)), "_\r\n", true)
}

func testGuard(t *testing.T, what, commands, replies string, passes bool) {
	t.Helper()
	for cutting, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		g := newGuard(scripted{Reader: cut(strings.NewReader(replies))})
		piece := len(commands)
		if cutting == "bytes" {
			piece = 1
		}
		for part := range slices.Chunk([]byte(commands), piece) {
			if _, err := g.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		got, err := io.ReadAll(g)
		_, refused := errors.AsType[*replyError](err)
		switch {
		case passes && (err != nil || string(got) != replies || g.first != len(g.pending)):
			t.Errorf("%s, %s: %v after %d of %d bytes", what, cutting, err, len(got), len(replies))
		case !passes && (!refused || len(got) == len(replies)):
			t.Errorf("%s, %s: the guard passed the reply: %v", what, cutting, err)
		}
	}
}

// A connection that is never idle drops commands that have been answered.
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
		t.Errorf("%d commands are in flight, and there is space for %d", len(g.pending)-g.first, cap(g.pending))
	}
}
