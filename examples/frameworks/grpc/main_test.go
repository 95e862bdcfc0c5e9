package main

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestServer(t *testing.T) {
	server, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	client := grpc_health_v1.NewHealthClient(cc)
	check := func(ctx context.Context, want codes.Code) (trailer metadata.MD) {
		t.Helper()
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
		if got := status.Code(err); got != want {
			t.Errorf("%v, want %v", err, want)
		}
		return trailer
	}
	check(t.Context(), codes.InvalidArgument) // the call lacks the key
	key := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "k-42")
	for range 5 {
		check(key, codes.OK)
	}
	if trailer := check(key, codes.ResourceExhausted); len(trailer.Get("grpc-retry-pushback-ms")) != 1 {
		t.Errorf("a denial has no time for a retry: %v", trailer)
	}
	for i := range 3 {
		stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if want := map[bool]codes.Code{true: codes.OK, false: codes.ResourceExhausted}[i < 2]; status.Code(err) != want {
			t.Errorf("stream %d: %v, want %v", i+1, err, want)
		}
	}
}
