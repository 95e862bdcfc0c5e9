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

// What has been asked is answered, and who asks nothing is not waited for.
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
		for range 5 { // is under way still
			if got := busy.do("PING"); got != "+PONG" {
				t.Error(got)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		silent.closedAfter()
		busy.closedAfter()
		half.closedAfter()
	})
}

// Whoever goes on to send is not served for ever.
func TestShutdownUnderLoad(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, s *resp.Server) {
		c := dial(t, p)
		c.do("PING")
		var busy sync.WaitGroup
		busy.Go(func() {
			whole := request("PING")
			first, middle := whole[:5], append(whole[5:len(whole):len(whole)], whole[:5]...)
			for _, err := c.Write(first); err == nil; { // from now on, half a command is always there
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

// A client that does not read its replies keeps Shutdown waiting until its context ends, and Close
// ends it.
func TestShutdownStuck(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, s *resp.Server) {
		c := dial(t, p)
		if _, err := c.Write(request("PING")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // in its write of the reply
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

// Clients that send nonsense are told so and closed, and others do not notice. TCP drops what is not read
// yet where a server closes before it has read all.
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
			t.Errorf("%.20q: there is more", sent)
		}
		if got := healthy.do("PING"); got != "+PONG" {
			t.Errorf("%.20q: another client: %s", sent, got)
		}
	}
}

// Clients that send without reading are not read any more, so that they take no memory.
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

// A panic in what is asked costs the connection and nothing else.
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
