//go:build long

package rls_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// theirs generates configurations that envoyproxy/ratelimit and Sluice interpret in the same way: wildcards only at the
// end of a value, and no keys that envoyproxy/ratelimit would join with those of another descriptor.
func theirs(r *rand.Rand) *trees {
	return &trees{
		Rand: r, keys: []string{"a", "b", "c"}, values: []string{"", "", "x", "y", "*", "x*"},
		flags: []string{"shadow_mode", "detailed_metric", "value_to_metric"}, limit: func() string { return theirLimit(r) },
	}
}

// theirLimit returns a random limit. Its window, of a week or longer, is unlikely to end during the test.
func theirLimit(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return ""
	case 1:
		return ", rate_limit: {unlimited: true" + pick(r, "", ", replaces: [{name: one}]") + "}"
	}
	return fmt.Sprintf(", rate_limit: {unit: %s, requests_per_unit: %d%s}", pick(r, "WEEK", "Month", "year"), r.IntN(8),
		pick(r, "", "", ", name: one", ", name: two", ", name: two, replaces: [{name: one}]"))
}

// ratelimit starts envoyproxy/ratelimit with a configuration file for each text.
func ratelimit(t *testing.T, texts ...string) pb.RateLimitServiceClient {
	t.Helper()
	dir := t.TempDir()
	program, err := testkit.BuildModule("ratelimit", "cmd/internal/door/rls/testdata/ratelimit", "github.com/envoyproxy/ratelimit/src/service_cmd")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "root", "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(config, fmt.Sprintf("c%d.yaml", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	redis := strings.TrimPrefix(redistest.Start(t).URL(), "redis://")
	addr := testkit.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "RUNTIME_ROOT="+filepath.Join(dir, "root"), "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_WATCH_ROOT=false", "RESPONSE_DYNAMIC_METADATA=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT="+port, fmt.Sprintf("PORT=%d", testkit.Port(t)), fmt.Sprintf("DEBUG_PORT=%d", testkit.Port(t)))
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() })
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// theirRequest returns a request in which no two descriptors share a counter, with at least one hit for each: without
// hits, envoyproxy/ratelimit allows a request even if its limit is used up.
func theirRequest(r *rand.Rand, domain string) (step string) {
	step = fmt.Sprintf("%s +%d", domain, r.IntN(4))
	keys := []string{"a", "b", "c"}
	r.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	for i, key := range keys[:1+r.IntN(3)] {
		if i > 0 {
			step += " |"
		}
		step += " " + key + "=" + pick(r, "x", "y", "z", "xx")
		for range r.IntN(3) {
			step += " " + pick(r, "a", "b", "c") + "=" + pick(r, "x", "y", "z", "xx")
		}
		if r.IntN(4) == 0 {
			step += fmt.Sprintf(" +%d", 1+r.IntN(4))
		}
	}
	return step
}

// equalParts describes the parts of an answer that must be equal in both services.
func equalParts(out *pb.RateLimitResponse) string {
	text := out.GetOverallCode().String()
	for _, s := range out.GetStatuses() {
		l := s.GetCurrentLimit()
		text += fmt.Sprintf("\n%v %d/%v %q %d left", s.GetCode(), l.GetRequestsPerUnit(), l.GetUnit(), l.GetName(), s.GetLimitRemaining())
	}
	about := out.GetDynamicMetadata().AsMap()
	return fmt.Sprint(text, "\n", about["domain"], about["descriptors"], about["hitsAddend"])
}

// For random configurations and histories, the answers equal those of envoyproxy/ratelimit, if denied requests count as
// they do there.
func TestLongSameAsRatelimit(t *testing.T) {
	requests := 800
	if os.Getenv("SLUICE_RATELIMIT") != "" {
		requests = 4000
	}
	r := rand.New(rand.NewPCG(seed.Of(t), 2))
	var texts []string
	tree := theirs(r)
	for i := range 40 {
		texts = append(texts, fmt.Sprintf("{domain: d%d, descriptors: %s}", i, tree.list(3)))
	}
	limits := read(t, sluice.FixedWindow, texts...)
	p, err := policy.CompileAt(limits.Document, limits.Where)
	if err != nil {
		t.Fatal(err)
	}
	other := ratelimit(t, texts...)
	ours := serve(t, rls.Config{Engine: policy.NewEngine(memory.New(), p), Limits: func() *rls.Limits { return limits }, CountRefused: true, Metadata: true})
	over, matched := 0, 0
	for range requests {
		i := r.IntN(len(texts))
		q := theirRequest(r, fmt.Sprintf("d%d", i))
		a, b := ask(t, other, q), ask(t, ours, q)
		if equalParts(a) != equalParts(b) {
			t.Fatalf("%v\nenvoyproxy/ratelimit answers\n%s\nand Sluice\n%s\nwith %s", q, equalParts(a), equalParts(b), texts[i])
		}
		for k, s := range a.GetStatuses() {
			if s.GetCurrentLimit() == nil {
				continue
			}
			matched++
			if s.GetCode() == pb.RateLimitResponse_OVER_LIMIT {
				over++
			}
			// A request for more hits than the limit never fits, so Sluice sets no duration. envoyproxy/ratelimit sets
			// the time until the end of the window.
			if b.GetStatuses()[k].GetDurationUntilReset() == nil && hitsOf(requestOf(t, q), k) > uint64(s.GetCurrentLimit().GetRequestsPerUnit()) {
				continue
			}
			if x, y := reset(s), reset(b.GetStatuses()[k]); max(x-y, y-x) > 5*time.Second {
				t.Errorf("%v: duration until reset %v in envoyproxy/ratelimit, and %v here", q, x, y)
			}
		}
	}
	t.Logf("%d descriptors had a limit, %d were over it", matched, over)
	if matched < requests/8 || over < requests/40 {
		t.Error("too few to compare the services")
	}
}

func hitsOf(q *pb.RateLimitRequest, k int) uint64 {
	if d := q.GetDescriptors()[k]; d.GetHitsAddend() != nil {
		return d.GetHitsAddend().GetValue()
	}
	return max(1, uint64(q.GetHitsAddend()))
}

func reset(s *pb.RateLimitResponse_DescriptorStatus) time.Duration {
	return s.GetDurationUntilReset().AsDuration()
}
