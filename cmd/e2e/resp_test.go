package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice/internal/testkit"
)

// output runs a program, which must exit with code 0, and returns its output.
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

// Clients of Redis understand the answers, in both versions of the protocol, one by one and in pipelines.
func TestRESPClients(t *testing.T) {
	t.Parallel()
	const policy = "version: 1\nrules: [{name: per-key, key: [api_key], limit: 10/day}]\n"
	addr := serve(t, "--resp", "127.0.0.1:0", "--policy", testkit.File(t, "policy.yaml", policy)).Resp
	t.Run("go-redis", func(t *testing.T) { testGoRedis(t, addr) })
	t.Run("rueidis", func(t *testing.T) { testRueidis(t, addr) })
	t.Run("examples", func(t *testing.T) { testRESPExamples(t, addr) })
}

func testGoRedis(t *testing.T, addr string) {
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
	}
}

func testRueidis(t *testing.T, addr string) {
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

// The examples use clients of other languages. They share limits, so one of them finds fewer units.
func testRESPExamples(t *testing.T, addr string) {
	dir, err := filepath.Abs("../../examples/clients")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`^(allowed|limited) and \d+ left of 16\n(allowed|refused) and \d+ left of per-key\n\d+ of 20 allowed, again in \d+ s$`)
	for name, command := range map[string][]string{
		"python": {"/usr/bin/python3", "resp_throttle.py"},
		"node":   {"node", "resp_throttle.mjs"},
	} {
		got := output(t, filepath.Join(dir, name), command[0], append(command[1:], "redis://"+addr)...)
		if !said.MatchString(got) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// redis-cli prints the answers that the documents show.
func TestReadmeRedis(t *testing.T) {
	t.Parallel()
	g := serve(t, "--resp", "127.0.0.1:0", "--policy", "example")
	for _, block := range blocks(t, "redis") {
		for _, example := range strings.Split("\n"+block, "\n> ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			got := output(t, "", "redis-cli", append([]string{"-3", "--no-raw", "-p", port(g.Resp)}, strings.Fields(command)...)...)
			if got = strings.ReplaceAll(got, " \n", "\n"); got != strings.TrimSpace(want) {
				t.Errorf("> %s\n%s\n\nand the document has\n\n%s", command, got, want)
			}
		}
	}
}
