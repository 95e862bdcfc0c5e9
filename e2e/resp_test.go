package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const respPolicy = `
version: 1
rules:
  - name: per-key
    key: [api_key]
    limit: 10/minute
`

// serveRESP starts an instance with nothing but the Redis protocol, and returns its address.
func serveRESP(t *testing.T, args ...string) (g *gateway, addr string) {
	t.Helper()
	g = serve(t, append([]string{"--resp", "127.0.0.1:0", "--policy", write(t, "policy.yaml", respPolicy)}, args...)...)
	return g, g.await("it serves", func(r record) bool { return r.Resp != "" }).Resp
}

// output runs a program, which has to end with 0, and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), testkit.Program(t, name), args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// promptly fails the test with what f finds wrong, unless f was held up: answers have whole seconds
// in them, and are others a second later. Then f is tried again, with names of that try.
func promptly(t *testing.T, f func(try int) (wrong string)) {
	t.Helper()
	for try := range 100 {
		began := time.Now()
		wrong := f(try)
		if wrong == "" {
			return
		}
		if time.Since(began) < time.Second {
			t.Error(wrong)
			return
		}
	}
	t.Error("this machine is too slow for whole seconds")
}

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	_, addr := serveRESP(t)
	promptly(t, func(try int) (wrong string) {
		for _, c := range []struct{ args, want string }{
			{"CL.THROTTLE user# 15 30 60 1", "0\n16\n15\n-1\n2"},
			{"-3 CL.THROTTLE user# 15 30 60 15", "0\n16\n0\n-1\n32"},
			{"CL.THROTTLE user# 15 30 60", "1\n16\n0\n2\n32"},
			{"--json -3 SLUICE.CHECK per-key api_key k# COST 3", `{"allowed":1,"reason":"","rule":"per-key","limit":10,"remaining":7,"retry_after":0,"reset_after":18,"delay_ms":0,"limits":[["per-key",1,10,7,0,18]]}`},
			{"--json -2 SLUICE.PEEK per-key api_key k# COST 8", `["allowed",0,"reason","limit","rule","per-key","limit",10,"remaining",7,"retry_after",6,"reset_after",18,"delay_ms",0,"limits",[["per-key",0,10,7,6,18]]]`},
			{"SLUICE.RESET per-key api_key k#", "OK"},
			{"--json -3 SLUICE.PEEK per-key api_key k#", `{"allowed":1,"reason":"","rule":"per-key","limit":10,"remaining":10,"retry_after":0,"reset_after":0,"delay_ms":0,"limits":[["per-key",1,10,10,0,0]]}`},
			{"PING", "PONG"},
			{"GET x", `ERR unknown command "GET": Sluice knows CL.THROTTLE, SLUICE.CHECK, SLUICE.PEEK and SLUICE.RESET`},
		} {
			args := strings.ReplaceAll(c.args, "#", fmt.Sprint(try))
			if got := output(t, "", "redis-cli", append([]string{"-p", port(addr)}, strings.Fields(args)...)...); got != c.want {
				wrong += fmt.Sprintf("redis-cli %s\n%s\nwant\n%s\n", args, got, c.want)
			}
		}
		return wrong
	})
}

// As people use it: typed line by line, with the help that it asks for when it begins.
func TestRedisCLITyped(t *testing.T) {
	t.Parallel()
	_, addr := serveRESP(t)
	promptly(t, func(try int) string {
		c := exec.CommandContext(t.Context(), testkit.Program(t, "redis-cli"), "-p", port(addr))
		throttle := fmt.Sprintf("CL.THROTTLE \"user %d\" 0 1 60\n", try)
		c.Stdin = strings.NewReader("HELLO 3\n" + throttle + throttle + "COMMAND DOCS\nQUIT\n")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "0\n1\n0\n-1\n60\n1\n1\n0\n60\n60\n") {
			return fmt.Sprintf("%v\n%s", err, out)
		}
		return ""
	})
}

func TestRESPOverTLS(t *testing.T) {
	t.Parallel()
	certs := redistest.NewCerts(t)
	_, addr := serveRESP(t, "--door-tls-cert", certs.Cert, "--door-tls-key", certs.Key, "--door-tls-client-ca", certs.CA)
	with := []string{"-h", "127.0.0.1", "-p", port(addr), "--tls", "--cacert", certs.CA}
	if got := output(t, "", "redis-cli", append(with, "--cert", certs.Cert, "--key", certs.Key, "PING")...); got != "PONG" {
		t.Error(got)
	}
	if out, err := exec.CommandContext(t.Context(), testkit.Program(t, "redis-cli"), append(with, "PING")...).CombinedOutput(); err == nil || bytes.Contains(out, []byte("PONG")) {
		t.Errorf("without a certificate: %s", out)
	}
	// Who does not even shake hands is closed, and others go on.
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	pair, err := tls.LoadX509KeyPair(certs.Cert, certs.Key)
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr, TLSConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}})
	defer client.Close()
	if got, err := client.Do(t.Context(), "CL.THROTTLE", "k", 0, 1, 1).Int64Slice(); err != nil || !reflect.DeepEqual(got, []int64{0, 1, 0, -1, 1}) {
		t.Errorf("go-redis: %v, %v", got, err)
	}
}

// It ends at the first error that it is told.
func TestRedisBenchmark(t *testing.T) {
	t.Parallel()
	_, addr := serveRESP(t)
	for _, args := range []string{
		"-q -n 2000 -t ping_inline,ping_mbulk",
		"-q -n 20000 -P 64 -c 20 CL.THROTTLE user__rand_int__ 15 30 60 1",
		"-q -n 2000 -c 64 -r 100 SLUICE.CHECK per-key api_key k__rand_int__",
		"-q -n 2000 -3 -P 7 SLUICE.PEEK per-key api_key k",
	} {
		got := output(t, "", "redis-benchmark", append([]string{"-p", port(addr)}, strings.Fields(args)...)...)
		if !strings.Contains(got, "requests per second") || strings.Contains(got, "WARN") {
			t.Errorf("redis-benchmark %s\n%s", args, got)
		}
	}
}

func TestGoRedis(t *testing.T) {
	t.Parallel()
	_, addr := serveRESP(t)
	for _, proto := range []int{2, 3} {
		client := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: proto, ClientName: "test"})
		defer client.Close()
		key := fmt.Sprint("key ", proto)
		got, err := client.Do(t.Context(), "CL.THROTTLE", key, 9, 1, 60, 4).Int64Slice()
		if err != nil || !reflect.DeepEqual(got, []int64{0, 10, 6, -1, 240}) {
			t.Errorf("RESP%d: %v, %v", proto, got, err)
		}
		checked, err := client.Do(t.Context(), "SLUICE.CHECK", "per-key", "api_key", key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if all, ok := checked.(map[any]any); proto == 3 && (!ok || all["remaining"] != int64(9)) {
			t.Errorf("RESP3: %v", checked)
		}
		if all, ok := checked.([]any); proto == 2 && (!ok || all[9] != int64(9)) {
			t.Errorf("RESP2: %v", checked)
		}
		pipeline := client.Pipeline()
		var all []*goredis.Cmd
		for range 500 {
			all = append(all, pipeline.Do(t.Context(), "CL.THROTTLE", key, 9, 1, 60, 0))
		}
		if _, err := pipeline.Exec(t.Context()); err != nil {
			t.Error(err)
		}
		for _, one := range all {
			if got, err := one.Int64Slice(); err != nil || got[2] != 6 {
				t.Fatalf("in a pipeline: %v, %v", got, err)
			}
		}
		if err := client.Do(t.Context(), "CL.THROTTLE", key, 1, 1).Err(); err == nil || !strings.Contains(err.Error(), "count period") {
			t.Errorf("%v", err)
		}
	}
}

func TestRueidis(t *testing.T) {
	t.Parallel()
	_, addr := serveRESP(t)
	for name, option := range map[string]rueidis.ClientOption{
		"as it comes":      {InitAddress: []string{addr}, ForceSingleClient: true},
		"without tracking": {InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true},
		"RESP2":            {InitAddress: []string{addr}, ForceSingleClient: true, AlwaysRESP2: true, DisableCache: true},
	} {
		client, err := rueidis.NewClient(option)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer client.Close()
		got, err := client.Do(t.Context(), client.B().Arbitrary("CL.THROTTLE").Keys(name).Args("9", "1", "60", "4").Build()).AsIntSlice()
		if err != nil || !reflect.DeepEqual(got, []int64{0, 10, 6, -1, 240}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		var many []rueidis.Completed
		for range 300 {
			many = append(many, client.B().Arbitrary("SLUICE.CHECK", "per-key", "api_key", name).Build())
		}
		allowed := int64(0)
		for _, r := range client.DoMulti(t.Context(), many...) {
			answer, err := r.AsMap()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			said := answer["allowed"]
			n, err := said.AsInt64()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			allowed += n
		}
		if allowed != 10 {
			t.Errorf("%s: %d of 300 allowed, want 10", name, allowed)
		}
	}
}

// The examples, with the clients that people have in other languages.
func TestRESPExamples(t *testing.T) {
	t.Parallel()
	const want = "allowed and 15 left of 16\nallowed and 8 left of per-key\n16 of 20 allowed, again in 2 s"
	dir, err := filepath.Abs("../examples/clients")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"python": {"/usr/bin/python3", "resp_throttle.py"},
		"node":   {"node", "resp_throttle.mjs"},
	} {
		promptly(t, func(int) string {
			_, addr := serveRESP(t)
			got := output(t, filepath.Join(dir, name), command[0], append(command[1:], "redis://"+addr)...)
			if got != want {
				return fmt.Sprintf("%s\n%s\nwant\n%s", name, got, want)
			}
			return ""
		})
	}
}

// A pipeline is one call of the shared store, whatever it asks for.
func TestRESPGathers(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	_, addr := serveRESP(t, "--store", store.URL(), "--store-timeout", "5s")
	client := goredis.NewClient(&goredis.Options{Addr: addr})
	defer client.Close()
	ask := func() (allowed int) {
		pipeline := client.Pipeline()
		var all []*goredis.Cmd
		for i := range 64 {
			all = append(all, pipeline.Do(t.Context(), "CL.THROTTLE", fmt.Sprint("key ", i%4), 9, 1, 3600))
		}
		if _, err := pipeline.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if got, err := one.Int64Slice(); err != nil {
				t.Fatal(err)
			} else if got[0] == 0 {
				allowed++
			}
		}
		return allowed
	}
	if allowed := ask(); allowed != 40 {
		t.Errorf("%d of 64 allowed, want 10 of each of 4 keys", allowed)
	}
	// What was refused is remembered: ask for others.
	before := scriptCalls(store)
	for round := range 10 {
		pipeline := client.Pipeline()
		for i := range 64 {
			pipeline.Do(t.Context(), "CL.THROTTLE", fmt.Sprint("round ", round, i), 9, 1, 3600)
		}
		if _, err := pipeline.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A pipeline may reach us in two pieces.
	if made := scriptCalls(store) - before; made < 10 || made > 40 {
		t.Errorf("%d calls for 10 pipelines of 64", made)
	}
}

// scriptCalls returns how many scripts the store has run.
func scriptCalls(store *redistest.Server) (n int) {
	for _, command := range []string{"eval", "evalsha"} {
		var one int
		_, _ = fmt.Sscanf(store.Info("cmdstat_"+command), "calls=%d", &one)
		n += one
	}
	return n
}

// While the shared store is away, CL.THROTTLE lets pass: its callers have no on_error to say else.
func TestRESPWithoutStore(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	_, addr := serveRESP(t, "--store", store.URL(), "--store-timeout", "100ms")
	client := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	store.Kill()
	for range 5 {
		if got, err := client.Do(t.Context(), "CL.THROTTLE", "k", 9, 1, 3600).Int64Slice(); err != nil || got[0] != 0 || got[1] != 10 {
			t.Errorf("%v, %v", got, err)
		}
	}
	if err := client.Do(t.Context(), "SLUICE.RESET", "per-key", "api_key", "k").Err(); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("SLUICE.RESET: %v", err)
	}
}

// SIGTERM under load: what was sent is answered, in order and without a gap, or not taken at all.
func TestRESPDrains(t *testing.T) {
	t.Parallel()
	g, addr := serveRESP(t)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			text := fmt.Sprint(i)
			if _, err := fmt.Fprintf(conn, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(text), text); err != nil {
				return
			}
		}
	}()
	var all bytes.Buffer
	buf := make([]byte, 1<<16)
	for signalled := false; ; {
		n, err := conn.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			break
		}
		if all.Len() > 1<<20 && !signalled {
			signalled = true
			g.signal(syscall.SIGTERM)
		}
	}
	replies := strings.Split(strings.TrimSuffix(all.String(), "\r\n"), "\r\n")
	for i := 0; i+1 < len(replies); i += 2 {
		if want := fmt.Sprint(i / 2); replies[i+1] != want || replies[i] != fmt.Sprintf("$%d", len(want)) {
			t.Fatalf("reply %d is %q %q", i/2, replies[i], replies[i+1])
		}
	}
	if len(replies)%2 != 0 {
		t.Errorf("the last reply is cut: %q", replies[len(replies)-1])
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Whoever types what the documents say into redis-cli gets what the documents say.
func TestReadmeRedis(t *testing.T) {
	t.Parallel()
	g := serve(t, "--resp", "127.0.0.1:0", "--policy", "example")
	addr := g.await("it serves", func(r record) bool { return r.Resp != "" }).Resp
	for _, block := range blocks(t, "redis") {
		for _, example := range strings.Split("\n"+block, "\n> ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			got := output(t, "", "redis-cli", append([]string{"-3", "--no-raw", "-p", port(addr)}, strings.Fields(command)...)...)
			if got = strings.ReplaceAll(got, " \n", "\n"); got != strings.TrimSpace(want) {
				t.Errorf("> %s\n%s\n\nand the document has\n\n%s", command, got, want)
			}
		}
	}
}

func TestRESPTokens(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("a long secret"))
	tokens := write(t, "tokens", fmt.Sprintf("shop %x\n", hash))
	_, addr := serveRESP(t, "--door-tokens", tokens)
	in := goredis.NewClient(&goredis.Options{Addr: addr, Password: "a long secret", PoolSize: 1})
	defer in.Close()
	if err := in.Do(t.Context(), "CL.THROTTLE", "k", 9, 1, 60).Err(); err != nil {
		t.Errorf("with a token: %v", err)
	}
	if got := output(t, "", "redis-cli", "-p", port(addr), "--no-auth-warning", "-a", "a long secret", "PING"); got != "PONG" {
		t.Error(got)
	}
	for _, password := range []string{"", "another"} {
		out := goredis.NewClient(&goredis.Options{Addr: addr, Password: password, MaxRetries: -1})
		defer out.Close()
		if err := out.Do(t.Context(), "CL.THROTTLE", "k", 9, 1, 60).Err(); err == nil {
			t.Errorf("with the token %q it was let in", password)
		}
	}
	// A token that is taken back ends with the connections that it has opened.
	overwrite(t, tokens, "")
	redistest.Eventually(t, "the token is of no use", func() bool { return in.Do(t.Context(), "CL.THROTTLE", "k", 9, 1, 60, 0).Err() != nil })
}
