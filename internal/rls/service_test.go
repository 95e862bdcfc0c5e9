package rls_test

import (
	"context"
	"net"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/rls"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// serve returns a client of a server over the network.
func serve(t testing.TB, c rls.Config) pb.RateLimitServiceClient {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rls.Codec()))
	rls.Register(server, c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(socket) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// byPolicy is a client of a service that decides by a policy.
func byPolicy(t testing.TB, text string, change ...func(*rls.Config)) pb.RateLimitServiceClient {
	t.Helper()
	p, err := policyfile.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := rls.Config{Engine: policy.NewEngine(memory.New(), p)}
	for _, f := range change {
		f(&c)
	}
	return serve(t, c)
}

// byConfig is a client of a service that decides by a configuration, of limits in fixed windows.
func byConfig(t testing.TB, text string, change ...func(*rls.Config)) pb.RateLimitServiceClient {
	t.Helper()
	limits := read(t, sluice.FixedWindow, text)
	p, err := policy.CompileAt(limits.Document, limits.Where)
	if err != nil {
		t.Fatal(err)
	}
	c := rls.Config{Engine: policy.NewEngine(memory.New(), p), Limits: func() *rls.Limits { return limits }, Algorithm: sluice.FixedWindow}
	for _, f := range change {
		f(&c)
	}
	return serve(t, c)
}

func read(t testing.TB, a sluice.Algorithm, texts ...string) *rls.Limits {
	t.Helper()
	limits, err := rls.Read(files(texts...), a)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

func files(texts ...string) (all []rls.File) {
	for i, text := range texts {
		all = append(all, rls.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
	}
	return all
}

// of returns a descriptor of keys and values in turn.
func of(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}

func hits(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func refund(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(n, d)
}

// ask asks, within a time in which any answer comes.
func ask(t testing.TB, client pb.RateLimitServiceClient, domain string, ds ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	return send(t, client, &pb.RateLimitRequest{Domain: domain, Descriptors: ds})
}

func send(t testing.TB, client pb.RateLimitServiceClient, r *pb.RateLimitRequest) *pb.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := client.ShouldRateLimit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.GetStatuses()) != len(r.GetDescriptors()) {
		t.Fatalf("%d statuses for %d descriptors", len(out.GetStatuses()), len(r.GetDescriptors()))
	}
	return out
}

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

// codes are the overall code of a response and those of its descriptors.
func allCodes(out *pb.RateLimitResponse) (all []pb.RateLimitResponse_Code) {
	all = append(all, out.GetOverallCode())
	for _, s := range out.GetStatuses() {
		all = append(all, s.GetCode())
	}
	return all
}

// A policy's rules see the entries of a descriptor as attributes, its domain and its keys too.
func TestPolicyByAttributes(t *testing.T) {
	client := byPolicy(t, `
version: 1
rules:
  - {name: per-address, attributes: {domain: edge, descriptor: remote_address}, key: [attr:remote_address], limit: 2/hour}
  - {name: second-path, attributes: {descriptor: path/path}, key: ["attr:path#2"], limit: 1/hour}
  - {name: own-names, attributes: {"domain#2": eu}, key: ["attr:limit#2"], limit: 1/hour}
`)
	for i, want := range []pb.RateLimitResponse_Code{ok, ok, over} {
		out := ask(t, client, "edge", of("remote_address", "192.0.2.1"))
		s := out.GetStatuses()[0]
		if out.GetOverallCode() != want || s.GetCode() != want || s.GetLimitRemaining() != uint32(max(0, 1-i)) {
			t.Errorf("request %d: %v", i, out)
		}
		if l := s.GetCurrentLimit(); l.GetName() != "per-address" || l.GetRequestsPerUnit() != 2 || l.GetUnit() != pb.RateLimitResponse_RateLimit_HOUR || l.GetUnitMultiplier() != nil {
			t.Errorf("current_limit: %v", l)
		}
	}
	if out := ask(t, client, "edge", of("remote_address", "192.0.2.2")); out.GetOverallCode() != ok {
		t.Errorf("another address: %v", out)
	}
	for _, d := range []*common.RateLimitDescriptor{of("remote_address", "192.0.2.1", "path", "/"), of("path", "/")} {
		if out := ask(t, client, "edge", d); out.GetOverallCode() != ok || out.GetStatuses()[0].GetCurrentLimit() != nil {
			t.Errorf("%v is of no rule: %v", d, out)
		}
	}
	if out := ask(t, client, "other", of("remote_address", "192.0.2.1")); out.GetOverallCode() != ok {
		t.Errorf("another domain: %v", out)
	}
	ask(t, client, "edge", of("path", "/a", "path", "/b"))
	if out := ask(t, client, "edge", of("path", "/c", "path", "/b")); out.GetOverallCode() != over {
		t.Errorf("the second path was not counted: %v", out)
	}
	// An entry that is called as an attribute of the door is numbered behind that.
	history(t, client, of("domain", "eu", "limit", "a"), ok, of("domain", "eu", "limit", "b"), ok, of("domain", "eu", "limit", "a"), over, of("domain", "us", "limit", "a"), ok)
}
