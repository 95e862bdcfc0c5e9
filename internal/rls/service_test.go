package rls_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/rls"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// serve returns a client of a server.
func serve(t testing.TB, c rls.Config) pb.RateLimitServiceClient {
	t.Helper()
	socket := bufconn.Listen(1 << 16)
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
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return socket.DialContext(ctx) }
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
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

func TestTokens(t *testing.T) {
	client := byConfig(t, "{domain: edge, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10}}]}", func(c *rls.Config) {
		c.Authorize = func(_, token string) error {
			if token != "good" {
				return errors.New("another token")
			}
			return nil
		}
	})
	r := &pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{of("user", "a")}}
	for _, c := range []struct {
		pairs []string
		code  codes.Code
	}{
		{nil, codes.Unauthenticated},
		{[]string{"authorization", "Bearer bad"}, codes.Unauthenticated},
		{[]string{"authorization", "good"}, codes.Unauthenticated},
		{[]string{"authorization", "Bearer good", "authorization", "Bearer good"}, codes.Unauthenticated},
		{[]string{"authorization", "bearer good"}, codes.OK},
	} {
		_, err := client.ShouldRateLimit(metadata.AppendToOutgoingContext(t.Context(), c.pairs...), r)
		if status.Code(err) != c.code {
			t.Errorf("%v: %v, want %v", c.pairs, err, c.code)
		}
	}
}

// leavingStore has a caller leave while it decides, once, and fails for those who have left, as a
// store does that is asked over the network.
type leavingStore struct {
	sluice.Store
	leave atomic.Pointer[context.CancelFunc]
	again chan struct{} // what is asked after that has been answered
}

func (s *leavingStore) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := ctx.Err(); err != nil {
		s.again <- struct{}{}
		return err
	}
	err := s.Store.Take(ctx, charges, receipts)
	if leave := s.leave.Swap(nil); leave != nil {
		(*leave)()
		<-ctx.Done()
	} else {
		s.again <- struct{}{}
	}
	return err
}

// What a refused request was charged is given back although its caller has left meanwhile.
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
	store := &leavingStore{Store: memory.New(), again: make(chan struct{}, 8)}
	client := serve(t, rls.Config{Engine: policy.NewEngine(store, p), Limits: func() *rls.Limits { return limits }, Algorithm: sluice.FixedWindow})
	ask(t, client, "edge", of("small", ""))
	<-store.again

	ctx, cancel := context.WithCancel(t.Context())
	store.leave.Store(&cancel)
	_, err = client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		hits(0, of("small", "")), of("large", ""),
	}})
	if status.Code(err) != codes.Canceled {
		t.Fatalf("a caller that has left: %v", err)
	}
	<-store.again
	if n := ask(t, client, "edge", hits(0, of("large", ""))).GetStatuses()[0].GetLimitRemaining(); n != 9 {
		t.Errorf("%d left of 9, of which none was used", n)
	}
}
