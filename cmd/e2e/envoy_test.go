package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"syscall"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice/internal/testkit"
)

func dialGRPC(t *testing.T, g *gateway, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(g.Grpc, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// askEnvoy sends a query with one descriptor. entries are keys and values in turn.
func askEnvoy(t *testing.T, conn *grpc.ClientConn, domain string, entries ...string) (*pb.RateLimitResponse, error) {
	t.Helper()
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{d}})
}

// Calls need a certificate and a token. Health checks need no token.
func TestEnvoyAccess(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	cert, key := authority.Make("server")
	tokens := testkit.File(t, "tokens", fmt.Sprintf("envoy %x\n", sha256.Sum256([]byte("secret"))))
	policy := testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: users, key: [attr:user], limit: 5/hour}]\n")
	g := serve(t, "--grpc", "127.0.0.1:0", "--policy", policy, "--door-tls-cert", cert, "--door-tls-key", key, "--door-tls-client-ca", authority.CA, "--door-tokens", tokens)
	for _, c := range []credentials.TransportCredentials{insecure.NewCredentials(), credentials.NewTLS(authority.Client())} {
		if _, err := askEnvoy(t, dialGRPC(t, g, c), "edge", "user", "a"); status.Code(err) != codes.Unavailable {
			t.Errorf("without a certificate: %v", err)
		}
	}
	conn := dialGRPC(t, g, credentials.NewTLS(authority.Client(authority.Make("client"))))
	if _, err := askEnvoy(t, conn, "edge", "user", "a"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "a"}}}
	out, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{d}})
	if err != nil || out.GetStatuses()[0].GetLimitRemaining() != 4 {
		t.Errorf("with a token: %v %v", out, err)
	}
	if h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", h, err)
	}
}

// Reflection describes the service. Clients that watch the health are notified of the shutdown, and do not delay it.
func TestEnvoyHealthAndReflection(t *testing.T) {
	t.Parallel()
	policy := testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: users, key: [attr:user], limit: 5/hour}]\n")
	g := serve(t, "--grpc", "127.0.0.1:0", "--policy", policy, "--drain-timeout", "80s")
	conn := dialGRPC(t, g, insecure.NewCredentials())
	const name = "envoy.service.ratelimit.v3.RateLimitService"
	about, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := about.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}); err != nil {
		t.Fatal(err)
	}
	if r, err := about.Recv(); err != nil || len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection: %v, %v", r, err)
	}
	if err := about.CloseSend(); err != nil {
		t.Error(err)
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := watch.Recv(); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", h, err)
	}
	g.Signal(syscall.SIGTERM)
	if h, err := watch.Recv(); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health during the drain: %v %v", h, err)
	}
	if code := g.Wait(); code != 0 || strings.Contains(g.Logged(), "requests were cut off") {
		t.Errorf("exit code %d\n%s", code, g.Logged())
	}
}

// callHeaders returns the header fields of a call of the service.
func callHeaders(b *strings.Builder) string {
	b.Reset()
	enc := hpack.NewEncoder(b)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
		{":authority", "sluice"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	return b.String()
}
