package spoe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// document is a policy with rule names so long that a whole answer does not fit into the smallest frame.
const document = `
version: 1
cors: {origins: ["https://app.example"]}
rules:
  - {name: per-address-0000000000000000000000000000000000000000000000000, key: [client_ip], limit: 2/minute, algorithm: fixed_window}
  - {name: everybody-000000000000000000000000000000000000000000000000000, limit: 1000000/minute}
  - {name: login, match: POST /login, key: [body:user], limit: 1/minute, algorithm: fixed_window}
  - {name: country, match: /country, key: [attr:country], limit: 1/minute, algorithm: fixed_window}
`

// peer is HAProxy's end of a connection, implemented from the description of the protocol.
type peer struct {
	testing.TB
	net.Conn
	agent *Agent
	log   *lines
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// serve runs an agent and returns a connection to it on which nothing has been sent.
func serve(tb testing.TB, engine *policy.Engine) peer {
	tb.Helper()
	log := new(lines)
	agent := New(door.Config{Engine: engine, Logger: slog.New(slog.NewTextHandler(log, nil))})
	l, ended := testkit.NewPipes(), make(chan error)
	go func() { ended <- agent.Serve(l) }()
	ours, err := l.Dial(tb.Context(), "", "")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ours.Close()
		if err := agent.Close(); err != nil {
			tb.Error(err)
		}
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return peer{tb, ours, agent, log}
}

// framed returns a frame, preceded by its length.
func framed(kind byte, stream, frame uint64, payload string) string {
	b := append([]byte{kind, 0, 0, 0, flagFin}, appendVarint(appendVarint(nil, stream), frame)...)
	b = append(b, payload...)
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(b)))) + string(b)
}

func text(s string) string { return string(appendText(nil, s)) }

func stringArg(name, s string) string { return text(name) + "\x08" + text(s) }
func numberArg(name string, n uint64) string {
	return text(name) + "\x03" + string(appendVarint(nil, n))
}
func nullArg(name string) string { return text(name) + "\x00" }

func helloOf(versions string, size uint64) string {
	return framed(haproxyHello, 0, 0, stringArg("supported-versions", versions)+numberArg("max-frame-size", size)+stringArg("capabilities", "pipelining,async"))
}

// asked returns the arguments of a message about a request from 192.0.2.1.
func asked(method, path string, headers ...string) []string {
	var bin string
	for _, h := range headers {
		bin += text(h)
	}
	return []string{
		stringArg("method", method), stringArg("path", path), stringArg("host", "api.example"),
		text("src") + "\x06\xc0\x00\x02\x01", text("headers") + "\x09" + text(bin+"\x00\x00"),
	}
}

func message(stream uint64, args ...string) string {
	return framed(notify, stream, 1, text("request")+string(rune(len(args)))+strings.Join(args, ""))
}

func (p peer) send(frames ...string) {
	p.Helper()
	if _, err := io.WriteString(p, strings.Join(frames, "")); err != nil {
		p.Fatal(err)
	}
}

// answered is a frame from the agent.
type answered struct {
	head
	set map[string]any // the variables of an ACK, or the key-value pairs of another frame
}

func (p peer) receive() (f answered) {
	p.Helper()
	f, err := readFrame(p)
	if err != nil {
		p.Fatal(err)
	}
	return f
}

func readFrame(r io.Reader) (f answered, err error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return f, err
	}
	b := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return f, err
	}
	d := decoder{rest: string(b)}
	f.head, f.set = d.head(), map[string]any{}
	for d.rest != "" {
		if f.kind == ack && d.take(3) != "\x01\x03\x02" {
			return f, fmt.Errorf("an action is not set-var in the scope of the transaction: %q", b)
		}
		name, v := d.text(), d.value()
		switch v.kind {
		case typeString:
			f.set[name] = v.text
		case typeBool:
			f.set[name] = v.number != 0
		default:
			f.set[name] = int(v.number)
		}
	}
	if d.broken {
		return f, errBroken
	}
	return f, nil
}

func (p peer) greet() {
	p.Helper()
	p.send(helloOf("1.0, 2.0", 16380))
	if f := p.receive(); f.kind != agentHello || f.set["version"] != "2.0" || f.set["max-frame-size"] != 16380 || f.set["capabilities"] != "pipelining" {
		p.Fatalf("hello: %v", f)
	}
}

// ask sends a message and returns its answer.
func (p peer) ask(args ...string) answered {
	p.Helper()
	p.send(message(7, args...))
	f := p.receive()
	if f.kind != ack || f.stream != 7 || f.frame != 1 || f.flags != flagFin {
		p.Fatalf("answer: %v", f)
	}
	return f
}

func (p peer) asks(want int, args ...string) answered {
	p.Helper()
	f := p.ask(args...)
	if f.set["status"] != want || f.set["allowed"] != (want == 200) {
		p.Errorf("%q: %v, want %d", args, f.set, want)
	}
	return f
}

// A request that waits in a queue is answered when its turn comes. Others are answered at once.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, policytest.Engine(t, "rules: [{name: queue, match: /queue, algorithm: leaky_bucket, limit: 1/second burst 3}]"))
		p.greet()
		queue := append(asked("GET", "/queue"), numberArg("wait", 1500))
		start := time.Now()
		p.asks(200, queue...)
		p.send(message(1, queue...), message(2, queue...), message(3, asked("GET", "/")...))
		got := map[uint64]string{}
		for range 3 {
			f := p.receive()
			got[f.stream] = fmt.Sprint(f.set["status"], " after ", time.Since(start), ", retry ", f.set["retry_after"])
		}
		// The second one would wait for two seconds, which is longer than its "wait".
		want := map[uint64]string{1: "200 after 1s, retry <nil>", 2: "429 after 0s, retry 2", 3: "200 after 0s, retry <nil>"}
		if !maps.Equal(got, want) {
			t.Errorf("answered %v, want %v", got, want)
		}
		// Its position in the queue was given back, so this request waits for only one second.
		again := time.Now()
		p.asks(200, queue...)
		if waited := time.Since(again); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		p.asks(429, asked("GET", "/queue")...) // without "wait", a request does not wait
	})
}

// At most maxWaiting requests wait at a time; further ones are denied.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, policytest.Engine(t, "rules: [{name: queue, algorithm: leaky_bucket, limit: 100/second burst 1000}]"))
		p.greet()
		queue := append(asked("GET", "/"), numberArg("wait", 60000))
		const n = maxWaiting + 50
		go func() {
			for i := range uint64(n) {
				if _, err := io.WriteString(p, message(i, queue...)); err != nil {
					return
				}
			}
		}()
		allowed := 0
		for range n {
			if p.receive().set["allowed"] == true {
				allowed++
			}
		}
		if allowed < maxWaiting || allowed == n {
			t.Errorf("%d requests were allowed; at most %d may wait at a time", allowed, maxWaiting)
		}
	})
}

func TestHealthCheck(t *testing.T) {
	p := serve(t, policytest.Engine(t, document))
	p.send(framed(haproxyHello, 0, 0, stringArg("supported-versions", "2.0")+numberArg("max-frame-size", 16380)+stringArg("capabilities", "")+text("healthcheck")+"\x11"))
	if f := p.receive(); f.kind != agentHello {
		t.Errorf("%v", f)
	}
	if _, err := readFrame(p); err != io.EOF {
		t.Errorf("the connection is still open: %v", err)
	}
}

// After an invalid frame or a goodbye, the agent sends a disconnect frame with a reason. It first answers earlier
// messages.
func TestHostileFrames(t *testing.T) {
	hello, whole := helloOf("2.0", 16380), message(1, asked("GET", "/")...)
	fragment := []byte(message(2, asked("GET", "/")...))
	fragment[8] = 0
	for name, c := range map[string]struct {
		before, send string
		code         int
	}{
		"no version":         {"", framed(haproxyHello, 0, 0, numberArg("max-frame-size", 16380)), codeNoVersion},
		"old version":        {"", helloOf("1.0", 16380), codeUnsupported},
		"no size":            {"", framed(haproxyHello, 0, 0, stringArg("supported-versions", "2.0")), codeNoMaxSize},
		"small":              {"", helloOf("2.0", 255), codeBadMaxSize},
		"no hello":           {"", whole, codeInvalid},
		"a broken hello":     {"", framed(haproxyHello, 0, 0, "\xff\xff\xff\xff"), codeInvalid},
		"empty":              {"", "\x00\x00\x00\x00", codeInvalid},
		"huge":               {"", "\xff\xff\xff\xff\x01", codeTooBig},
		"just too big":       {"", "\x00\x01\x00\x01\x01", codeTooBig},
		"other":              {"", "GET / HTTP/1.1\r\n\r\n", codeTooBig},
		"two messages":       {hello, framed(notify, 2, 1, text("a")+"\x00"+text("b")+"\x00"), codeInvalid},
		"broken":             {hello, framed(notify, 2, 1, text("a")+"\x05"), codeInvalid},
		"huge length":        {hello, framed(notify, 2, 1, text("a")+"\x01"+text("path")+"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), codeInvalid},
		"unknown type":       {hello, framed(notify, 2, 1, text("a")+"\x01"+text("path")+"\x0b"), codeInvalid},
		"only a head":        {hello, "\x00\x00\x00\x01\x03", codeFragmented},
		"fragment":           {hello, string(fragment), codeFragmented},
		"larger than agreed": {hello, "\x00\x00\x40\x00\x03", codeTooBig},
		"another hello":      {hello, hello, codeInvalid},
		"from an agent":      {hello, framed(ack, 1, 1, ""), codeInvalid},
		"goodbye":            {hello, framed(haproxyDisconnect, 0, 0, numberArg("status-code", 0)+stringArg("message", "bye")), codeNormal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, policytest.Engine(t, document))
			if c.before != "" {
				p.greet()
				p.send(whole + c.send)
				if f := p.receive(); f.kind != ack || f.stream != 1 {
					t.Errorf("before: %v", f)
				}
			} else {
				p.send(c.send)
			}
			if f := p.receive(); f.kind != agentDisconnect || f.set["status-code"] != c.code || f.set["message"] == "" {
				t.Errorf("%v, want %d", f, c.code)
			}
			if c.code == codeNormal && strings.Contains(p.log.text(), "WARN") {
				t.Errorf("log: %s", &p.log.Buffer)
			}
		})
	}
}

// A peer has to send its hello, and the rest of each frame that it has begun, within the time patience. Between frames,
// it may be idle.
func TestHalfOpen(t *testing.T) {
	for name, send := range map[string]string{"nothing": "", "half a hello": helloOf("2.0", 16380)[:20]} {
		synctest.Test(t, func(t *testing.T) {
			p := serve(t, policytest.Engine(t, document))
			p.send(send)
			start := time.Now()
			if _, err := readFrame(p); err != io.EOF || time.Since(start) != patience {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, policytest.Engine(t, document))
		p.greet()
		time.Sleep(time.Hour) // idle between frames
		p.asks(200, asked("GET", "/")...)
		p.send("\x00\x00\x3f\x00\x03")
		start := time.Now()
		trickled := make(chan struct{})
		go func() { // single bytes do not extend the time
			defer close(trickled)
			for range 100 {
				time.Sleep(time.Second)
				if _, err := p.Write([]byte{0}); err != nil {
					return
				}
			}
		}()
		if f := p.receive(); f.kind != agentDisconnect || f.set["status-code"] != codeTimeout || time.Since(start) != patience {
			t.Errorf("%v after %v", f, time.Since(start))
		}
		p.Close()
		<-trickled
	})
}

// A buffer for a large frame is not kept for small ones. FuzzConnection checks how the buffer grows.
func TestBuffers(t *testing.T) {
	const announced = 60000
	f := frames{most: maxFrame, from: io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, announced)), bytes.NewReader(make([]byte, announced)))}
	var frame []byte
	for frame == nil {
		err := f.fill()
		if frame, _ = f.next(); err != nil {
			t.Fatal(err)
		}
	}
	f.from = strings.NewReader("x")
	if err := f.fill(); err != nil || len(frame) != announced || len(f.buf) > keptBuffer {
		t.Errorf("the buffer keeps %d bytes after a frame of %d: %v", len(f.buf), len(frame), err)
	}
}

// Shutdown answers the messages that have arrived, including those in a queue, and then sends a disconnect frame.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve(t, policytest.Engine(t, "rules: [{name: queue, algorithm: leaky_bucket, limit: 1/second burst 3}]"))
		p.greet()
		queue := append(asked("GET", "/"), numberArg("wait", 5000))
		p.asks(200, queue...)
		p.send(message(1, queue...))
		synctest.Wait()
		start, ended := time.Now(), make(chan error)
		go func() { ended <- p.agent.Shutdown(context.Background()) }()
		if f := p.receive(); f.stream != 1 || f.set["allowed"] != true || time.Since(start) != time.Second {
			t.Errorf("%v after %v", f, time.Since(start))
		}
		if f := p.receive(); f.kind != agentDisconnect || f.set["status-code"] != codeNormal {
			t.Errorf("goodbye: %v", f)
		}
		p.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A request that is canceled while it waits gives its position in the queue back.
func TestShutdownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := policytest.Engine(t, "rules: [{name: queue, algorithm: leaky_bucket, limit: 1/minute burst 3}]")
		p := serve(t, engine)
		p.greet()
		queue := append(asked("GET", "/"), numberArg("wait", 60000))
		p.asks(200, queue...)
		p.send(message(1, queue...))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		go func() { _, _ = io.Copy(io.Discard, p) }()
		if err := p.agent.Shutdown(ctx); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if err := p.agent.Close(); err != nil {
			t.Error(err)
		}
		d := engine.Decide(context.Background(), &policy.Request{Method: "GET", Path: "/"})
		if !d.Allowed || d.Delay > time.Minute {
			t.Errorf("the next request waits for %v", d.Delay)
		}
	})
}

// counting counts the calls of a store.
type counting struct {
	*memory.Store
	calls atomic.Int64
}

func (c *counting) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	c.calls.Add(1)
	return c.Store.Take(ctx, charges, receipts)
}

func (c *counting) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	c.calls.Add(1)
	sluice.TakeEach(ctx, c.Store, calls)
}

// Messages that arrive together cause one call of the store, with the arguments that HAProxy sends with deploy/haproxy.
func TestBatchIsOneCall(t *testing.T) {
	form := text("body") + "\x09" + text("user=alice")
	for name, args := range map[string][]string{
		"no body":     append(asked("GET", "/"), nullArg("body")),
		"with an ID":  append(asked("POST", "/login", "content-length", "10", "content-type", "application/x-www-form-urlencoded"), form, stringArg("id", "1")),
		"no argument": append(asked("GET", "/"), stringArg("id", "1")),
	} {
		t.Run(name, func(t *testing.T) {
			engine := policytest.Engine(t, document)
			store := &counting{Store: memory.New()}
			p := serve(t, policy.NewEngine(store, engine.Policy()))
			p.greet()
			// A failed write shows below as a missing answer.
			go func() { _, _ = io.WriteString(p, strings.Repeat(message(1, args...), 10)) }()
			for range 10 {
				p.receive()
			}
			if n := store.calls.Load(); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// A long list of marking rules leaves room in the frame for the decision.
func TestLongMark(t *testing.T) {
	doc := "version: 1\nrules:\n"
	for i := range 4 {
		doc += fmt.Sprintf("  - {name: soft-%d%s, limit: 1/day, over: mark}\n", i, strings.Repeat("0", 50))
	}
	p := serve(t, policytest.Engine(t, doc))
	p.send(helloOf("2.0", minFrame))
	p.receive()
	for i := range uint64(2) {
		p.send(message(i+1, asked("GET", "/")...))
		if f := p.receive(); f.set["allowed"] != true || f.set["status"] != 200 {
			t.Errorf("request %d: %v", i+1, f.set)
		}
	}
}
