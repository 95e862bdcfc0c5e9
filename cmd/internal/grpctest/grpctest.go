// Package grpctest serves gRPC in memory, so that tests can run in virtual time.
package grpctest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Serve starts a server with the services that register adds. The server is stopped when the test ends.
func Serve(t testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) *testkit.Pipes {
	t.Helper()
	network, server := testkit.NewPipes(), grpc.NewServer(options...)
	register(server)
	go func() { _ = server.Serve(network) }()
	t.Cleanup(server.Stop)
	return network
}

// Dial returns a connection to a server of Serve. The connection is closed when the test ends.
func Dial(t testing.TB, network *testkit.Pipes, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return network.Dial(ctx, "", "") }
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	conn, err := grpc.NewClient("passthrough:///test", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
