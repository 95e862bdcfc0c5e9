package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluicehq/sluice/internal/testkit"
)

// pipes starts a server in memory with the services that register adds, and stops it when the test ends.
func pipes(t testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) *testkit.Pipes {
	t.Helper()
	network, server := testkit.NewPipes(), grpc.NewServer(options...)
	register(server)
	go func() { _ = server.Serve(network) }()
	t.Cleanup(server.Stop)
	return network
}

// connect connects to a server until the test ends.
func connect(t testing.TB, network *testkit.Pipes, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	over := func(ctx context.Context, _ string) (net.Conn, error) { return network.Dial(ctx, "", "") }
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(over))
	conn, err := grpc.NewClient("passthrough:///test", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
