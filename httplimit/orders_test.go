package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// obey follows the orders in the field Do, which are separated by ";".
func obey(w http.ResponseWriter, r *http.Request) {
	for order := range strings.SplitSeq(r.Header.Get("Do"), ";") {
		words := append(strings.Fields(order), "", "")
		n, _ := strconv.Atoi(words[1])
		text := strings.Repeat("x", max(n, 0))
		switch words[0] {
		case "status":
			w.WriteHeader(n)
		case "write":
			_, _ = w.Write([]byte(text))
		case "text":
			_, _ = io.WriteString(w, text)
		case "copy":
			_, _ = io.Copy(w, strings.NewReader(text))
		case "set":
			w.Header().Set(words[1], words[2])
		case "drop":
			w.Header().Del(words[1])
		case "flush":
			w.(http.Flusher).Flush()
		case "flush-error":
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
		case "panic":
			panic(http.ErrAbortHandler)
		case "hijack":
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_ = c.Close()
		case "settle":
			Settle(r.Context(), outcomeOf(words[1:]))
		}
	}
}

// outcomeOf parses "counts", "not", "status 401" and "cost 5".
func outcomeOf(words []string) (o policy.Outcome) {
	for i, word := range words {
		switch word {
		case "counts":
			o.Verdict = policy.Counts
		case "not":
			o.Verdict = policy.CountsNot
		case "status":
			o.Status, _ = strconv.Atoi(words[i+1])
		case "cost":
			o.Cost, _ = strconv.ParseInt(words[i+1], 10, 64)
		}
	}
	return o
}

// Handlers that follow the orders in testdata/outcomes.txt use up the units that the file has for them.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/outcomes.txt") {
		t.Run(c.Name, func(t *testing.T) {
			c.Play(t, func(step string) (used string) {
				synctest.Test(t, func(t *testing.T) {
					switch strings.TrimSpace(c.Setup) {
					case "limit":
						used = usedOfLimit(t, 1, step)
					case "limit by cost":
						used = usedOfLimit(t, 3, step)
					default:
						used = usedOfRules(t, c.Setup, step)
					}
				})
				return used
			})
		})
	}
}

func usedOfLimit(t *testing.T, cost int64, orders string) string {
	limiter := policytest.Limiter(t, memory.New(), "100/day as fixed_window")
	limit := Config{AwaitOutcome: true}.Limit(limiter, func(*http.Request) string { return "" })
	if cost > 1 {
		limit = Config{AwaitOutcome: true}.LimitBy(func(*http.Request) (Choice, error) {
			return Choice{Limiter: limiter, Cost: cost}, nil
		})
	}
	serveOrders(t, limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := left(t, limiter); n != 100-cost {
			t.Errorf("%s: %d units remain while the handler runs", orders, n)
		}
		obey(w, r)
	})), orders)
	return strconv.FormatInt(100-left(t, limiter), 10)
}

func usedOfRules(t *testing.T, rules, orders string) string {
	e := policytest.Engine(t, rules)
	serveOrders(t, Policy(e)(http.HandlerFunc(obey)), orders)
	return uses(t, e)
}

// serveOrders sends orders to a real server, and waits until its handler has returned.
func serveOrders(t *testing.T, h http.Handler, orders string) {
	t.Helper()
	network := testkit.NewPipes()
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(network) }()
	defer server.Close()
	conn, err := network.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	method := "GET"
	if rest, head := strings.CutPrefix(orders, "HEAD "); head {
		method, orders = "HEAD", rest
	}
	go fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nDo: %s\r\n\r\n", method, orders)
	_, _ = io.Copy(io.Discard, bufio.NewReader(conn))
	synctest.Wait()
}
