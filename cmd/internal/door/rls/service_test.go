package rls_test

import (
	"context"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/cmd/internal/grpctest"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// serve starts a server and returns a client of it.
func serve(t testing.TB, c rls.Config) pb.RateLimitServiceClient {
	t.Helper()
	register := func(s *grpc.Server) { rls.Register(s, c) }
	return pb.NewRateLimitServiceClient(grpctest.Dial(t, grpctest.Serve(t, register, grpc.ForceServerCodecV2(rls.Codec()))))
}

// byPolicy returns a client of a service that decides by a policy.
func byPolicy(t testing.TB, text string, change ...func(*rls.Config)) pb.RateLimitServiceClient {
	t.Helper()
	c := rls.Config{Engine: policytest.Engine(t, text)}
	for _, f := range change {
		f(&c)
	}
	return serve(t, c)
}

// byConfig returns a client of a service that decides by a configuration, with fixed windows.
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

// ask sends a step of testdata/decisions.txt.
func ask(t *testing.T, client pb.RateLimitServiceClient, step string) *pb.RateLimitResponse {
	t.Helper()
	r := requestOf(t, step)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// The charges of a denied request are given back even if its caller has left meanwhile.
func TestGivesBackToWhoHasLeft(t *testing.T) {
	limits := read(t, sluice.FixedWindow, `
domain: edge
descriptors:
  - {key: small, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: large, rate_limit: {unit: day, requests_per_unit: 9}}
`)
	p, err := policy.CompileAt(limits.Document, limits.Where)
	if err != nil {
		t.Fatal(err)
	}
	store, taken := faultstore.New(memory.New()), make(chan struct{}, 8)
	// Like a store behind a network, it fails after the context has ended.
	whileThere := func(ctx context.Context, c faultstore.Call) error {
		defer func() { taken <- struct{}{} }()
		if err := ctx.Err(); err != nil {
			return err
		}
		return c.Take()
	}
	store.Set(whileThere)
	client := serve(t, rls.Config{Engine: policy.NewEngine(store, p), Limits: func() *rls.Limits { return limits }, Algorithm: sluice.FixedWindow})
	ask(t, client, "edge small=")
	<-taken
	caller, leave := context.WithCancel(t.Context())
	store.Set(func(ctx context.Context, c faultstore.Call) error {
		store.Set(whileThere)
		err := c.Take()
		leave()
		<-ctx.Done()
		return err
	})
	_, err = client.ShouldRateLimit(caller, requestOf(t, "edge small= +0 | large="))
	if status.Code(err) != codes.Canceled {
		t.Fatalf("a caller that has left: %v", err)
	}
	<-taken
	if n := ask(t, client, "edge large= +0").GetStatuses()[0].GetLimitRemaining(); n != 9 {
		t.Errorf("%d left, want 9", n)
	}
}
