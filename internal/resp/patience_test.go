package resp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/resp"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// pipes is a listener without a network, for tests in virtual time.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes {
	return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t *testing.T) *client {
	ours, theirs := net.Pipe()
	p.accepted <- theirs
	t.Cleanup(func() { ours.Close() })
	return &client{t, ours, bufio.NewReader(ours)}
}

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

// virtual runs a test against a server in virtual time.
func virtual(t *testing.T, c resp.Config, test func(t *testing.T, p *pipes, s *resp.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		c.Engine, c.Patience, c.Idle = engineOf(t, memory.New()), patience, idle
		test(t, p, serveOn(t, p, c))
	})
}

func TestSilentFromTheBeginning(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, _ *resp.Server) {
		if after := p.dial(t).closedAfter(); after != patience {
			t.Errorf("closed after %v", after)
		}
	})
}

// Who never gets in is not waited for like a client.
func TestSilentWithoutToken(t *testing.T) {
	config := resp.Config{Authorize: func(string, string) error { return errors.New("no") }}
	virtual(t, config, func(t *testing.T, p *pipes, _ *resp.Server) {
		c := p.dial(t)
		time.Sleep(patience - time.Second)
		if got := c.do("PING"); !strings.HasPrefix(got, "-NOAUTH") {
			t.Error(got)
		}
		if after := c.closedAfter(); after != time.Second {
			t.Errorf("closed after another %v", after)
		}
	})
}

// A command whose bytes come one by one has to be whole in time, however steadily they come.
func TestHalfACommand(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, _ *resp.Server) {
		c := p.dial(t)
		c.do("PING")
		time.Sleep(3 * time.Minute)
		begin := time.Now()
		var sending sync.WaitGroup
		sending.Go(func() {
			for _, b := range request("ECHO", strings.Repeat("x", 100)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		c.closedAfter()
		if after := time.Since(begin); after != patience {
			t.Errorf("closed after %v", after)
		}
		sending.Wait()
	})
}

// A client that is slow but not too slow is served, for as long as it likes.
func TestSlowCommands(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, _ *resp.Server) {
		c := p.dial(t)
		for range 100 {
			whole := request("ECHO", "slow")
			for _, part := range [][]byte{whole[:7], whole[7:15], whole[15:]} {
				if _, err := c.Write(part); err != nil {
					t.Fatal(err)
				}
				time.Sleep(patience/2 - time.Second)
			}
			if got := c.read(); got != `"slow"` {
				t.Fatal(got)
			}
			time.Sleep(idle - time.Second)
		}
	})
}

func TestIdle(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, _ *resp.Server) {
		c := p.dial(t)
		for range 10 {
			c.do("PING")
			time.Sleep(idle - time.Second)
		}
		c.do("PING")
		if after := c.closedAfter(); after < idle || after > 2*idle {
			t.Errorf("closed after %v of silence", after)
		}
	})
}

// What has been asked is answered, and who asks nothing is not waited for.
func TestShutdown(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, s *resp.Server) {
		silent, busy, half := p.dial(t), p.dial(t), p.dial(t)
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
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, s *resp.Server) {
		c := p.dial(t)
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
	virtual(t, resp.Config{}, func(t *testing.T, p *pipes, s *resp.Server) {
		c := p.dial(t)
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

func TestAuth(t *testing.T) {
	const noAuth = "-NOAUTH Authentication required: send AUTH with a token"
	const wrong = "-WRONGPASS this is no token that lets anybody in"
	var good atomic.Value
	good.Store("secret")
	config := resp.Config{Authorize: func(_, token string) error {
		if token == "many" {
			return tooMany{}
		}
		if token != good.Load() {
			return errors.New("another token")
		}
		return nil
	}}
	virtual(t, config, func(t *testing.T, p *pipes, _ *resp.Server) {
		c := p.dial(t)
		for _, step := range []struct{ do, want string }{
			{"PING", noAuth}, {"CL.THROTTLE a 1 1 1", noAuth}, {"SLUICE.RESET a", noAuth}, {"GET a", noAuth}, {"COMMAND", noAuth},
			{"HELLO 3", "-NOAUTH Authentication required: send HELLO 3 AUTH default TOKEN, or AUTH TOKEN first"},
			{"AUTH Secret", wrong}, {"AUTH default secrets", wrong}, {"HELLO 3 AUTH default x", wrong},
			{"AUTH many", "-ERR too many: try again in 5 seconds"}, {"PING", noAuth},
			{"AUTH", `-ERR wrong number of arguments for "AUTH"`},
			{"AUTH secret", "+OK"}, {"PING", "+PONG"},
			{"AUTH x", wrong}, {"PING", "+PONG"}, // as it was
			{"RESET", "+RESET"}, {"PING", noAuth},
			{"AUTH default secret", "+OK"}, {"CL.THROTTLE a 1 1 1", "(:0 :2 :1 :-1 :1)"},
		} {
			if got := c.do(strings.Fields(step.do)...); got != step.want {
				t.Errorf("%s: %s, want %s", step.do, got, step.want)
			}
		}
		// A token that is taken back is noticed, on connections that are open, too.
		good.Store("another")
		time.Sleep(time.Second)
		if got := c.do("CL.THROTTLE", "a", "1", "1", "1"); got != noAuth {
			t.Errorf("with a token that was taken back: %s", got)
		}
		if got := p.dial(t).do("HELLO", "3", "AUTH", "default", "another"); !strings.HasPrefix(got, "{") {
			t.Errorf("HELLO with a token: %s", got)
		}
	})
}

// Clients that send nonsense are told so and closed, and others do not notice.
func TestNonsense(t *testing.T) {
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, memory.New())})
	healthy := dial(t, addr)
	for _, sent := range []string{
		"*-1\r\n", "*2147483648\r\n", "*1\r\n$-1\r\n", "*1\r\n$2147483648\r\n", "*1\r\n$9223372036854775807\r\n", "*1000000\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "\"\r\n", "*1\r\n+PING\r\n", strings.Repeat("x", 1<<20), strings.Repeat("*1\r\n$1\r\n", 1000),
		"*64\r\n" + strings.Repeat("$60000\r\n"+strings.Repeat("x", 60000)+"\r\n", 64),
	} {
		c := dial(t, addr)
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
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, memory.New())})
	const clients = 8
	before := heap()
	pipeline := []byte(strings.Repeat(string(request("ECHO", strings.Repeat("x", 1000))), 64))
	for range clients {
		c := dial(t, addr)
		// What the system keeps for both ends is a few megabytes; then nothing goes on.
		for {
			_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := c.Write(pipeline); err != nil {
				break
			}
		}
	}
	if each := (heap() - before) / clients; each > 256<<10 {
		t.Errorf("%d bytes for each client that does not read", each)
	}
	if got := dial(t, addr).do("PING"); got != "+PONG" {
		t.Error(got)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A panic in what is asked costs the connection and nothing else.
func TestPanic(t *testing.T) {
	engine := engineOf(t, memory.New())
	engine.Observe(func(_ context.Context, o *policy.Observation) {
		if o.Request.Cost == 13 {
			panic("unlucky")
		}
	})
	addr, _ := serve(t, resp.Config{Engine: engine})
	c := dial(t, addr)
	c.send("CL.THROTTLE", "a", "20", "1", "1", "13")
	if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if got := dial(t, addr).do("CL.THROTTLE", "a", "20", "1", "1", "1"); !strings.HasPrefix(got, "(:0 ") {
		t.Error(got)
	}
}

type tooMany struct{}

func (tooMany) Error() string     { return "too many: try again in 5 seconds" }
func (tooMany) RetrySeconds() int { return 5 }
