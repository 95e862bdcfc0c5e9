package resp_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/resp"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

func dial(t *testing.T, p *testkit.Pipes) *client {
	t.Helper()
	c, err := p.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

func newClient(t *testing.T, c net.Conn) *client {
	t.Cleanup(func() { c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

// virtual runs a test against a server in virtual time. Without an engine in c, the policy has no rules.
func virtual(t *testing.T, c resp.Config, test func(t *testing.T, p *testkit.Pipes, s *resp.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := testkit.NewPipes()
		test(t, p, serve(t, p, c))
	})
}

func serve(t *testing.T, l net.Listener, c resp.Config) *resp.Server {
	t.Helper()
	if c.Engine == nil {
		c.Engine = policytest.Engine(t, "")
	}
	c.Patience, c.Idle, c.Logger = cmp.Or(c.Patience, patience), idle, slog.New(slog.NewTextHandler(t.Output(), nil))
	s, ended := resp.New(c), make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// client is a simple client of the protocol.
type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

// try sends a command and returns the reply, or a text if the server has closed the connection.
func (c *client) try(args ...string) string {
	if _, err := c.Write(request(args...)); err != nil {
		return "the connection is closed"
	}
	return c.read()
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

// read returns a reply as text, with arrays in parentheses and maps in braces.
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
	return "", fmt.Errorf("unknown type of reply: %q", line)
}

func TestCommands(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/commands.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var config resp.Config
			token := strings.Join(c.Options("token"), "")
			if token != "" {
				config.Authorize = func(from, sent string) error { return testkit.Authorize(token)(from, sent) }
			} else {
				config.Engine = policytest.Engine(t, c.Setup)
			}
			virtual(t, config, func(t *testing.T, p *testkit.Pipes, _ *resp.Server) {
				client := dial(t, p)
				c.Play(t, func(step string) string {
					words := strings.Fields(step)
					switch words[0] {
					case "wait":
						d, err := time.ParseDuration(words[1])
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
					case "token":
						token = words[1]
					case "connect":
						client = dial(t, p)
					case "send":
						_, _ = io.WriteString(client, unquote(t, words[1]))
					case "read":
						return client.read()
					case "closed":
						return fmt.Sprint("after ", client.closedAfter())
					default:
						return client.try(words...)
					}
					return ""
				})
			})
		})
	}
}

func unquote(t *testing.T, text string) string {
	t.Helper()
	s, err := strconv.Unquote(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cell is the generic cell rate algorithm in fractions of a second, according to its definition, with the replies of
// redis-cell.
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

// For random histories, the replies agree with the definition. Waits end at whole microseconds in a store, so each
// interval is a whole number of microseconds.
func TestThrottleOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, _ *resp.Server) {
		c := dial(t, p)
		counts := []int64{1, 2, 4, 5, 8, 10, 25, 64, 100, 1000, 1_000_000}
		limited := 0
		for history := range 60 {
			burst, count, period := random.Int64N(20), counts[random.IntN(len(counts))], 1+random.Int64N(100)
			interval := period * 1_000_000 / count
			var k cell
			for step := range 50 {
				time.Sleep(time.Duration(random.Int64N(2*interval+2)) * time.Microsecond)
				quantity := random.Int64N(4)
				if random.IntN(10) == 0 {
					quantity = random.Int64N(burst + 3)
				}
				want := k.throttle(big.NewRat(time.Now().UnixMicro(), 1_000_000), burst, count, period, quantity)
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
			t.Errorf("only %d of 3000 commands were limited, want at least 100", limited)
		}
	})
}

// Pipelined commands of any kind are answered in order, and each command sees the charges of the earlier ones.
func TestPipelined(t *testing.T) {
	virtual(t, resp.Config{}, func(t *testing.T, p *testkit.Pipes, _ *resp.Server) {
		c := dial(t, p)
		var sent []byte
		var want []string
		for i := range 1000 {
			switch i % 5 {
			case 0:
				sent = append(sent, request("PING", strconv.Itoa(i))...)
				want = append(want, strconv.Quote(strconv.Itoa(i)))
			case 3: // an error behind decisions that are still batched
				sent = append(sent, request("CL.THROTTLE", "k", "x", "1", "1")...)
				want = append(want, `-ERR CL.THROTTLE: max_burst is "x": it must be a whole number from 0 to 9223372036854775806`)
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
	})
}
