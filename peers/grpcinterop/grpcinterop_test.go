// Package grpcinterop runs the interoperability tests of grpc-go behind grpclimit, and through the gateway.
package grpcinterop

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// fatal panics where the tests of grpc-go log a fatal error, because that would end the process.
type fatal struct{ grpclog.LoggerV2 }

type failure string

func (fatal) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (fatal) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (fatal) Fatalln(args ...any)               { panic(failure(fmt.Sprintln(args...))) }

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(fatal{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	os.Exit(m.Run())
}

// cases are the tests that need no cloud account.
var cases = map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
	"empty unary":                 interop.DoEmptyUnaryCall,
	"large unary":                 interop.DoLargeUnaryCall,
	"client streaming":            interop.DoClientStreaming,
	"server streaming":            interop.DoServerStreaming,
	"ping pong":                   interop.DoPingPong,
	"empty stream":                interop.DoEmptyStream,
	"timeout on sleeping server":  interop.DoTimeoutOnSleepingServer,
	"cancel after begin":          interop.DoCancelAfterBegin,
	"cancel after first response": interop.DoCancelAfterFirstResponse,
	"custom metadata":             interop.DoCustomMetadata,
	"status code and message":     interop.DoStatusCodeAndMessage,
	"special status message":      interop.DoSpecialStatusMessage,
}

func run(t *testing.T, addr string, creds credentials.TransportCredentials) {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	client := testgrpc.NewTestServiceClient(cc)
	try := func(name string, call func(ctx context.Context)) {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Error(p)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			call(ctx)
		})
	}
	for name, call := range cases {
		try(name, func(ctx context.Context) { call(ctx, client) })
		try(name+", compressed", func(ctx context.Context) { call(ctx, client, grpc.UseCompressor(gzip.Name)) })
	}
	try("unimplemented method", func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, cc) })
	try("unimplemented service", func(ctx context.Context) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
	})
}

// serve starts the server that the tests call.
func serve(t *testing.T, options ...grpc.ServerOption) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// rules apply to every call. The second counts by the outcome.
const rules = `version: 1
rules:
  - {name: all, key: [client_ip], limit: 1000000/minute}
  - {name: failures, key: [client_ip], limit: 1000000/minute, count: {status: [4xx, 5xx]}}
  - {name: calls, key: [client_ip], in_flight: 1000}
`

func TestGrpclimit(t *testing.T) {
	limit := grpclimit.Config{PerMessage: true}.Policy(policytest.Engine(t, rules))
	run(t, serve(t, limit.Options()...), insecure.NewCredentials())
}

func TestGateway(t *testing.T) {
	t.Setenv("GOWORK", "") // testkit builds the program in the workspace of the repository
	authority := testkit.NewAuthority(t)
	cert, key := authority.Make("gateway")
	g := testkit.Serve(t, "--tls-cert", cert, "--tls-key", key, "--upstream", "h2c://"+serve(t),
		"--policy", testkit.File(t, "policy.yaml", rules))
	run(t, g.Addr, credentials.NewTLS(authority.Client()))
}
