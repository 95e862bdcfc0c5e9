package resp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/resp"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// clocked is a store whose clock the test sets.
type clocked struct {
	*memory.Store
	now atomic.Int64 // in microseconds since the Unix epoch
}

func newClocked() *clocked {
	s := &clocked{Store: memory.New()}
	s.now.Store(1_800_000_000_000_000)
	return s
}

func (s *clocked) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.TakeAt(ctx, s.now.Load(), charges, receipts)
}

func (s *clocked) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	for i := range calls {
		c := &calls[i]
		c.Err = s.Take(ctx, c.Charges, c.Receipts)
	}
}

func engineOf(t *testing.T, store sluice.Store, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(policy.Document{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(store, p)
}

// serve starts a server on loopback that ends with the test, and returns its address.
func serve(t *testing.T, c resp.Config) (addr string, s *resp.Server) {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return socket.Addr().String(), serveOn(t, socket, c)
}

func serveOn(t *testing.T, socket net.Listener, c resp.Config) *resp.Server {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	if c.Idle == 0 {
		c.Idle = time.Minute
	}
	s := resp.New(c)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(socket) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// client speaks the protocol in the plainest way.
type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(args ...string) {
	c.t.Helper()
	if _, err := c.Write(request(args...)); err != nil {
		c.t.Fatal(err)
	}
}

func request(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

func (c *client) do(args ...string) string {
	c.t.Helper()
	c.send(args...)
	return c.read()
}

// read returns a reply as text: what is in an array or a map is put in parentheses or braces.
func (c *client) read() string {
	c.t.Helper()
	text, err := readReply(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	n, _ := strconv.Atoi(text)
	switch kind {
	case '+', '-', ':':
		return line[:len(line)-2], nil
	case '_':
		return "null", nil
	case '$':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return strconv.Quote(string(b[:n])), err
	case '*', '%':
		open, end := "(", ")"
		if kind == '%' {
			n, open, end = 2*n, "{", "}"
		}
		var all []string
		for range n {
			one, err := readReply(r)
			if err != nil {
				return "", err
			}
			all = append(all, one)
		}
		return open + strings.Join(all, " ") + end, nil
	}
	return "", fmt.Errorf("no reply begins with %q", line)
}

// What redis-cell's own documents show, and the rounding and the borders that it has.
func TestThrottleVectors(t *testing.T) {
	store := newClocked()
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, store)})
	c := dial(t, addr)
	for _, step := range []struct {
		after time.Duration
		args  string
		want  string
	}{
		{0, "user123 15 30 60 1", "(:0 :16 :15 :-1 :2)"}, // the example of its README
		{0, "user123 15 30 60", "(:0 :16 :14 :-1 :4)"},
		{0, "user123 15 30 60 14", "(:0 :16 :0 :-1 :32)"},
		{0, "user123 15 30 60", "(:1 :16 :0 :2 :32)"},
		{500 * time.Millisecond, "user123 15 30 60", "(:1 :16 :0 :2 :32)"}, // 1.5 s, rounded up
		{0, "user123 15 30 60 0", "(:0 :16 :0 :-1 :32)"},                   // only looks
		{1500 * time.Millisecond, "user123 15 30 60", "(:0 :16 :0 :-1 :32)"},
		{time.Minute, "user123 15 30 60 17", "(:1 :16 :16 :-1 :0)"}, // never fits
		{0, "user123 15 30 60 16", "(:0 :16 :0 :-1 :32)"},
		{0, "user123 31 30 60", "(:0 :32 :15 :-1 :34)"}, // another burst, the same count

		// The table of its tests: five at once, one a second.
		{0, "foo 4 1 1 6", "(:1 :5 :5 :-1 :0)"},
		{0, "foo 4 1 1", "(:0 :5 :4 :-1 :1)"},
		{0, "foo 4 1 1", "(:0 :5 :3 :-1 :2)"},
		{0, "foo 4 1 1", "(:0 :5 :2 :-1 :3)"},
		{0, "foo 4 1 1", "(:0 :5 :1 :-1 :4)"},
		{0, "foo 4 1 1", "(:0 :5 :0 :-1 :5)"},
		{0, "foo 4 1 1", "(:1 :5 :0 :1 :5)"},
		{3000 * time.Millisecond, "foo 4 1 1", "(:0 :5 :2 :-1 :3)"},
		{100 * time.Millisecond, "foo 4 1 1", "(:0 :5 :1 :-1 :4)"},
		{900 * time.Millisecond, "foo 4 1 1", "(:0 :5 :1 :-1 :4)"},
		{4000 * time.Millisecond, "foo 4 1 1", "(:0 :5 :4 :-1 :1)"},
		{1500 * time.Millisecond, "foo 4 1 1", "(:0 :5 :4 :-1 :1)"},
		{0, "foo 4 1 1 0", "(:0 :5 :4 :-1 :1)"},
		{0, "foo 4 1 1 2", "(:0 :5 :2 :-1 :3)"},
		{0, "foo 4 1 1 5", "(:1 :5 :2 :3 :3)"},

		{0, "none 0 3 60", "(:0 :1 :0 :-1 :20)"},
		{time.Second, "none 0 3 60", "(:1 :1 :0 :19 :19)"},
	} {
		store.now.Add(step.after.Microseconds())
		if got := c.do(append([]string{"CL.THROTTLE"}, strings.Fields(step.args)...)...); got != step.want {
			t.Errorf("after %v, %s: %s, want %s", step.after, step.args, got, step.want)
		}
	}
}

// cell is the generic cell rate algorithm in fractions of a second, as its definition has it, with
// the answers that redis-cell makes of it.
type cell struct{ tat *big.Rat }

func (k *cell) throttle(now *big.Rat, burst, count, period, quantity int64) string {
	interval := big.NewRat(period, count)
	tolerance := new(big.Rat).Mul(interval, big.NewRat(burst+1, 1))
	tat := new(big.Rat).Set(now)
	if k.tat != nil && k.tat.Cmp(now) > 0 {
		tat.Set(k.tat)
	}
	next := new(big.Rat).Add(tat, new(big.Rat).Mul(interval, big.NewRat(quantity, 1)))
	wait := new(big.Rat).Sub(new(big.Rat).Sub(next, tolerance), now)
	limited, retry := 0, int64(-1)
	if wait.Sign() > 0 {
		limited = 1
		if quantity <= burst+1 {
			retry = ceil(wait)
		}
	} else {
		k.tat, tat = next, next
	}
	owed := new(big.Rat).Sub(tat, now)
	room := new(big.Rat).Quo(new(big.Rat).Sub(tolerance, owed), interval)
	return fmt.Sprintf("(:%d :%d :%d :%d :%d)", limited, burst+1, floor(room), retry, ceil(owed))
}

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }
func ceil(r *big.Rat) int64  { return -floor(new(big.Rat).Neg(r)) }

// Random histories get the answers of the definition. Waits end on whole microseconds in a store,
// so periods are such that an interval is a whole number of them.
func TestThrottleOracle(t *testing.T) {
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	store := newClocked()
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, store)})
	c := dial(t, addr)
	counts := []int64{1, 2, 4, 5, 8, 10, 25, 64, 100, 1000, 1_000_000}
	limited := 0
	for history := range 60 {
		burst, count, period := random.Int64N(20), counts[random.IntN(len(counts))], 1+random.Int64N(100)
		interval := period * 1_000_000 / count
		var k cell
		for step := range 50 {
			store.now.Add(random.Int64N(2*interval + 2))
			quantity := random.Int64N(4)
			if random.IntN(10) == 0 {
				quantity = random.Int64N(burst + 3)
			}
			want := k.throttle(big.NewRat(store.now.Load(), 1_000_000), burst, count, period, quantity)
			args := []string{"CL.THROTTLE", fmt.Sprint("history ", history)}
			for _, n := range []int64{burst, count, period, quantity} {
				args = append(args, strconv.FormatInt(n, 10))
			}
			if got := c.do(args...); got != want {
				t.Fatalf("history %d, step %d, %q: %s, want %s", history, step, args, got, want)
			}
			if want[2] == '1' {
				limited++
			}
		}
	}
	if limited < 100 {
		t.Errorf("only %d of 3000 were limited: this tests little", limited)
	}
}

var perKey = policy.Rule{Name: "per-key", Key: []string{"header:X-Key", "method"}, Limits: []string{"10/minute", "100/hour"}}

// Every command and its replies, in both versions of the protocol.
func TestReplies(t *testing.T) {
	long := strings.Repeat("k", 1000)
	for _, c := range []struct{ do, resp2, resp3 string }{
		{"PING", "+PONG", "+PONG"},
		{"ping hi", `"hi"`, `"hi"`},
		{"ECHO hi", `"hi"`, `"hi"`},
		{"SELECT 0", "+OK", "+OK"},
		{"SELECT 1", "-ERR there is no database but 0", ""},
		{"CLIENT SETNAME me", "+OK", ""},
		{"CLIENT GETNAME", `""`, ""},
		{"CLIENT SETNAME " + long, "-ERR a client's name has at most 128 printable characters and no spaces", ""},
		{"CLIENT SETINFO LIB-NAME x", "+OK", ""},
		{"CLIENT TRACKING ON", "+OK", ""},
		{"CLIENT KILL x", `-ERR unknown subcommand or wrong number of arguments for CLIENT "KILL"`, ""},
		{"CLIENT SETNAME", `-ERR unknown subcommand or wrong number of arguments for CLIENT "SETNAME"`, ""},
		{"CONFIG GET save appendonly nothing", `("save" "" "appendonly" "no")`, `{"save" "" "appendonly" "no"}`},
		{"CONFIG SET save x", "-ERR settings are those of sluice serve: here CONFIG GET is all there is", ""},
		{"COMMAND DOCS", "()", "{}"},
		{"COMMAND INFO cl.throttle nothing", `(("cl.throttle" :-5 (+fast) :1 :1 :1) nil)`, `(("cl.throttle" :-5 (+fast) :1 :1 :1) null)`},
		{"COMMAND COUNT", ":18", ""},
		{"MULTI", "-ERR there are no transactions here: pipeline without one, as with pipeline(transaction=False)", ""},
		{"EXEC", "-ERR there are no transactions here: pipeline without one, as with pipeline(transaction=False)", ""},
		{"HELLO 4", "-NOPROTO unsupported protocol version: there are 2 and 3", ""},
		{"HELLO 2 SETNAME", `-ERR syntax error in HELLO option "SETNAME"`, ""},
		{"AUTH x", "-ERR nobody needs a token here: --door-tokens is not set", ""},
		{"GET x", `-ERR unknown command "GET": Sluice knows CL.THROTTLE, SLUICE.CHECK, SLUICE.PEEK and SLUICE.RESET`, ""},
		{long, `-ERR unknown command "` + long[:64] + `"...: Sluice knows CL.THROTTLE, SLUICE.CHECK, SLUICE.PEEK and SLUICE.RESET`, ""},
		{"CL.THROTTLE a 1 1", `-ERR wrong number of arguments for "CL.THROTTLE": write CL.THROTTLE key max_burst count period [quantity]`, ""},
		{"CL.THROTTLE a 1 1 1 1 1", `-ERR wrong number of arguments for "CL.THROTTLE": write CL.THROTTLE key max_burst count period [quantity]`, ""},
		{"CL.THROTTLE a x 1 1", `-ERR CL.THROTTLE: max_burst is "x": it is a whole number from 0 to 9223372036854775806`, ""},
		{"CL.THROTTLE a -1 1 1", `-ERR CL.THROTTLE: max_burst is "-1": it is a whole number from 0 to 9223372036854775806`, ""},
		{"CL.THROTTLE a 9223372036854775807 1 1", `-ERR CL.THROTTLE: max_burst is "9223372036854775807": it is a whole number from 0 to 9223372036854775806`, ""},
		{"CL.THROTTLE a 1 0 1", `-ERR CL.THROTTLE: count is "0": it is a whole number from 1 to 9223372036854775807`, ""},
		{"CL.THROTTLE a 1 1 0", `-ERR CL.THROTTLE: period is "0": it is a whole number from 1 to 9223372036`, ""},
		{"CL.THROTTLE a 1 1 9223372037", `-ERR CL.THROTTLE: period is "9223372037": it is a whole number from 1 to 9223372036`, ""},
		{"CL.THROTTLE a 1 1 1 -1", `-ERR CL.THROTTLE: quantity is "-1": it is a whole number from 0 to 9223372036854775807`, ""},
		{"CL.THROTTLE a 1 1 1 9223372036854775807", "(:1 :2 :2 :-1 :0)", "(:1 :2 :2 :-1 :0)"},
		{"CL.THROTTLE " + long + " 1 1 1", "(:0 :2 :1 :-1 :1)", "(:0 :2 :1 :-1 :1)"},
		{
			"SLUICE.CHECK per-key header:X-Key k method GET",
			`("allowed" :1 "reason" "" "rule" "per-key-1m" "limit" :10 "remaining" :9 "retry_after" :0 "reset_after" :6 "delay_ms" :0` +
				` "limits" (("per-key-1m" :1 :10 :9 :0 :6) ("per-key-1h" :1 :100 :99 :0 :36)))`,
			`{"allowed" :1 "reason" "" "rule" "per-key-1m" "limit" :10 "remaining" :9 "retry_after" :0 "reset_after" :6 "delay_ms" :0` +
				` "limits" (("per-key-1m" :1 :10 :9 :0 :6) ("per-key-1h" :1 :100 :99 :0 :36))}`,
		},
		{
			"SLUICE.PEEK per-key header:X-Key k method GET COST 11",
			`("allowed" :0 "reason" "limit" "rule" "per-key-1m" "limit" :10 "remaining" :10 "retry_after" :-1 "reset_after" :0 "delay_ms" :0` +
				` "limits" (("per-key-1m" :0 :10 :10 :-1 :0) ("per-key-1h" :1 :100 :100 :0 :0)))`, "",
		},
		{"SLUICE.RESET per-key header:X-Key k method GET", "+OK", ""},
		{"SLUICE.RESET per-key header:X-Key k method GET COST 2", "-ERR SLUICE.RESET forgets everything: it has no COST and no ID", ""},
		{"SLUICE.CHECK per-key header:X-Key", "-ERR the parts of the key, COST and ID each have a value behind them: one is missing", ""},
		{"SLUICE.CHECK per-key header:X-Key k", "-ERR rule \"per-key\": which method? Its key is \"header:X-Key\" or \"method\"", ""},
		{"SLUICE.CHECK per-key header:X-Key k header:X-Key l", `-ERR "header:X-Key" is there twice`, ""},
		{"SLUICE.CHECK per-key COST 0", `-ERR COST is "0": it is a whole number of at least 1`, ""},
		{"SLUICE.CHECK perkey", `-ERR there is no rule "perkey": did you mean "per-key"?`, ""},
	} {
		for proto, want := range map[string]string{"2": c.resp2, "3": c.resp3} {
			if want == "" {
				want = c.resp2
				if proto == "3" && !strings.HasPrefix(want, "-") {
					continue
				}
			}
			addr, _ := serve(t, resp.Config{Engine: engineOf(t, newClocked(), perKey)})
			client := dial(t, addr)
			client.do("HELLO", proto)
			if got := client.do(strings.Fields(c.do)...); got != want {
				t.Errorf("RESP%s, %.80s\n got %s\nwant %s", proto, c.do, got, want)
			}
		}
	}
}

// A connection keeps what it was told, and RESET makes it forget.
func TestConnectionState(t *testing.T) {
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, newClocked())})
	c := dial(t, addr)
	hello := `"server" "sluice" "version" "7.0.0" "proto" :%d "id" :1 "mode" "standalone" "role" "master" "modules" ()`
	for _, step := range [][2]string{
		{"HELLO", "(" + fmt.Sprintf(hello, 2) + ")"},
		{"HELLO 3 SETNAME me", "{" + fmt.Sprintf(hello, 3) + "}"},
		{"HELLO", "{" + fmt.Sprintf(hello, 3) + "}"},
		{"CLIENT GETNAME", `"me"`},
		{"CLIENT ID", ":1"},
		{"RESET", "+RESET"},
		{"CLIENT GETNAME", `""`},
		{"CONFIG GET save", `("save" "")`},
		{"QUIT", "+OK"},
	} {
		if got := c.do(strings.Fields(step[0])...); got != step[1] {
			t.Errorf("%s: %s, want %s", step[0], got, step[1])
		}
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after QUIT: %v", err)
	}
}

// Replies come in the order of the commands, whatever they are, and the later of them meet what the
// earlier have taken.
func TestPipelined(t *testing.T) {
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, newClocked(), perKey)})
	c := dial(t, addr)
	var sent []byte
	var want []string
	for i := range 1000 {
		switch i % 5 {
		case 0:
			sent = append(sent, request("PING", strconv.Itoa(i))...)
			want = append(want, strconv.Quote(strconv.Itoa(i)))
		case 3: // behind decisions that have not been asked for yet
			sent = append(sent, request("CL.THROTTLE", "k", "x", "1", "1")...)
			want = append(want, `-ERR CL.THROTTLE: max_burst is "x": it is a whole number from 0 to 9223372036854775806`)
		default:
			sent = append(sent, request("CL.THROTTLE", "k", "99", "1", "100")...)
			n := i/5*3 + i%5 - i%5/4
			want = append(want, fmt.Sprintf("(:0 :100 :%d :-1 :%d)", 100-n, 100*n))
			if n > 100 {
				want[i] = "(:1 :100 :0 :100 :10000)"
			}
		}
	}
	go func() { _, _ = c.Write(sent) }()
	for i := range want {
		if got := c.read(); got != want[i] {
			t.Fatalf("reply %d is %s, want %s", i, got, want[i])
		}
	}
}

// A repeated question is free by its ID.
func TestRepeated(t *testing.T) {
	addr, _ := serve(t, resp.Config{Engine: engineOf(t, newClocked(), policy.Rule{Name: "all", Limit: "10/minute"})})
	c := dial(t, addr)
	for range 3 {
		c.do("SLUICE.CHECK", "all", "COST", "2", "ID", "request 1")
	}
	if got := c.do("SLUICE.CHECK", "all", "ID", "request 2"); !strings.Contains(got, `"remaining" :7 `) {
		t.Error(got)
	}
}
