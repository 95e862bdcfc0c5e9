package resp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/resp"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// closedAfter returns how long it takes until the server closes the connection.
func (c *client) closedAfter() time.Duration {
	c.t.Helper()
	begin := time.Now()
	if _, err := io.Copy(io.Discard, c.r); err != nil {
		c.t.Fatal(err)
	}
	return time.Since(begin)
}

const patience, idle = 10 * time.Second, 10 * time.Minute

// During Shutdown, a connection is still served for a short time while it sends commands. Idle connections and those
// with half a command are closed.
func TestShutdown(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, s *resp.Server) {
		silent, busy, half := dial(t, p), dial(t, p), dial(t, p)
		silent.do("PING")
		busy.do("PING")
		half.do("PING")
		if _, err := half.Write([]byte("*1\r\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		for range 5 { // still served
			if got := busy.do("PING"); got != "+PONG" {
				t.Error(got)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		silent.closedAfter()
		busy.closedAfter()
		half.closedAfter()
	})
}

// A client that keeps sending does not delay Shutdown forever.
func TestShutdownUnderLoad(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, s *resp.Server) {
		c := dial(t, p)
		c.do("PING")
		var busy sync.WaitGroup
		busy.Go(func() {
			whole := request("PING")
			first, middle := whole[:5], append(whole[5:len(whole):len(whole)], whole[:5]...)
			for _, err := c.Write(first); err == nil; { // from now on, half of a command is always waiting
				if _, err = c.Write(middle); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
		busy.Go(func() { _, _ = io.Copy(io.Discard, c.r) })
		begin := time.Now()
		if err := s.Shutdown(t.Context()); err != nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		busy.Wait()
	})
}

// A client that does not read its replies delays Shutdown until its context ends. Close ends the connection.
func TestShutdownStuck(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, s *resp.Server) {
		c := dial(t, p)
		if _, err := c.Write(request("PING")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the server blocks while it writes the reply
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A client that sends invalid commands gets an error, and its connection is closed. Others are not affected. The client
// must be able to read the error, although TCP discards data if a server closes before it has read all input.
func TestNonsense(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, resp.Config{Patience: time.Hour})
	connect := func() *client {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return newClient(t, c)
	}
	healthy := connect()
	for _, sent := range []string{
		"*-1\r\n", "*1\r\n$9223372036854775807\r\n", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("x", 1<<17),
		strings.Repeat("*1\r\n$1\r\n", 1000), "*64\r\n" + strings.Repeat("$60000\r\n"+strings.Repeat("x", 60000)+"\r\n", 2),
	} {
		c := connect()
		go func() { _, _ = io.WriteString(c, "PING\r\n"+sent) }()
		if got := c.read(); got != "+PONG" {
			t.Errorf("%.20q: %s", sent, got)
		}
		if got := c.read(); !strings.HasPrefix(got, "-ERR Protocol error: ") {
			t.Errorf("%.20q: %s", sent, got)
		}
		if _, err := c.r.ReadByte(); err == nil {
			t.Errorf("%.20q: the connection is still open", sent)
		}
		if got := healthy.do("PING"); got != "+PONG" {
			t.Errorf("%.20q: another client: %s", sent, got)
		}
	}
}

// The server stops reading from a client that does not read its replies, to limit its memory.
func TestNeverReads(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, _ *resp.Server) {
		const clients = 8
		before := heap()
		pipeline := request("ECHO", strings.Repeat("x", 1000))
		for range clients {
			c := dial(t, p)
			_ = c.SetWriteDeadline(time.Now().Add(patience / 2))
			sent := 0
			for err := error(nil); err == nil; sent++ {
				_, err = c.Write(pipeline)
			}
			if sent > 1000 {
				t.Errorf("%d commands of a client that does not read", sent)
			}
		}
		if each := (heap() - before) / clients; each > 256<<10 {
			t.Errorf("%d bytes for each client that does not read", each)
		}
		if got := dial(t, p).do("PING"); got != "+PONG" {
			t.Error(got)
		}
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A panic during a command closes the connection and affects nothing else.
func TestPanic(t *testing.T) {
	engine := policytest.Engine(t, "")
	engine.Observe(func(_ context.Context, o *policy.Observation) {
		if o.Request.Cost == 13 {
			panic("unlucky")
		}
	})
	virtual(t, resp.Config{Config: door.Config{Engine: engine}}, func(t *testing.T, p *testkit.Pipes, _ *resp.Server) {
		c := dial(t, p)
		c.send("CL.THROTTLE", "a", "20", "1", "1", "13")
		if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
		if got := dial(t, p).do("CL.THROTTLE", "a", "20", "1", "1", "1"); !strings.HasPrefix(got, "(:0 ") {
			t.Error(got)
		}
	})
}
