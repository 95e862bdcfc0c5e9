package checkapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// serverVariable makes the test binary a server of a benchmark, of the handler that it names.
const serverVariable = "CHECKAPI_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(serverVariable); kind != "" {
		serveBench(kind)
		return
	}
	os.Exit(m.Run())
}

// serveBench serves until its standard input ends.
func serveBench(kind string) {
	doc := policy.Document{Rules: []policy.Rule{
		{Name: "per-address", Key: []string{"client_ip"}, Limit: "100000000/second"},
		{Name: "per-key", Key: []string{"header:X-API-Key"}, Limit: "100000000/second"},
	}}
	p, err := policy.Compile(doc)
	if err != nil {
		panic(err)
	}
	h := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), p)})
	if like, is := strings.CutPrefix(kind, "constant/"); is {
		once := false
		h = constant(callWhile(func() bool { once = !once; return once }, h, benchBodies[like]))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() { _ = http.Serve(l, h) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// load sends n requests on a connection, and reads the answers.
func load(b *testing.B, addr, text string, n int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	request := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	r := bufio.NewReader(conn)
	for range n {
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		response, err := http.ReadResponse(r, nil)
		if err != nil || response.StatusCode != 200 {
			b.Fatal(err, response)
		}
		_, _ = io.Copy(io.Discard, response.Body)
	}
}

// serverTime is the processor time that a server needs for n requests.
func serverTime(b *testing.B, kind, text string, n int) time.Duration {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), serverVariable+"="+kind)
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err, log.String())
	}
	load(b, strings.TrimSpace(addr), text, n)
	in.Close()
	if err := c.Wait(); err != nil {
		b.Fatal(err, log.String())
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// BenchmarkServer is the processor time of a server of the API, and how many times that of one which
// reads the body and answers a constant of the same size: the least of several rounds in turn, as
// others use the machine, too. Run it with -benchtime 10000x.
func BenchmarkServer(b *testing.B) {
	const rounds = 5
	for _, kind := range []string{"request", "rule"} {
		b.Run(kind, func(b *testing.B) {
			text := benchBodies[kind]
			of := func(server string) time.Duration {
				return serverTime(b, server, text, b.N+1) - serverTime(b, server, text, 1)
			}
			own, constant := of(kind), of("constant/"+kind)
			for range rounds - 1 {
				own, constant = min(own, of(kind)), min(constant, of("constant/"+kind))
			}
			b.ReportMetric(float64(own.Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(own)/float64(constant), "ratio")
		})
	}
}
