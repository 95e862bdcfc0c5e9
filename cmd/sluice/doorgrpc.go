package main

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/checkgrpc"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/policy"
)

// Bounds of what one connection can have the server keep: streams times messages.
const (
	grpcStreams = 256
	grpcMessage = 256 << 10
	grpcHeader  = 16 << 10
)

// openGRPC makes the listener of --grpc serve.
func (s *serveSettings) openGRPC(l *listener, engine *policy.Engine) error {
	server := grpc.NewServer(append(s.grpcOptions(), s.tracing.grpc()...)...)
	rls.Register(server, s.rateLimitService(engine))
	checkgrpc.Register(server, checkgrpc.Config{Engine: engine, Authorize: s.doors.authorizer("--grpc"), DegradedField: s.degradedField, Logger: s.doors.log})
	alive := &watchedHealth{Server: health.NewServer(), draining: make(chan struct{})}
	healthpb.RegisterHealthServer(server, alive)
	reflection.Register(server)

	l.socket = proxy.BoundHeads(l.socket, time.Duration(s.headerTimeout))
	l.serve = func(socket net.Listener) error { return server.Serve(socket) }
	l.drain = func(ctx context.Context) error {
		alive.end()
		return drainGRPC(ctx, server)
	}
	l.close = func() error {
		server.Stop()
		return nil
	}
	return nil
}

// drainGRPC takes no new calls and lets those that have begun end.
func drainGRPC(ctx context.Context, server *grpc.Server) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		server.Stop() // which ends GracefulStop
		<-done
		return ctx.Err()
	}
}

func (s *serveSettings) grpcOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.MaxConcurrentStreams(grpcStreams),
		grpc.MaxRecvMsgSize(grpcMessage),
		grpc.MaxHeaderListSize(grpcHeader),
		grpc.ConnectionTimeout(time.Duration(s.headerTimeout)),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 15 * time.Minute,
			// So that clients behind a load balancer find new instances.
			MaxConnectionAge:      time.Hour,
			MaxConnectionAgeGrace: time.Duration(s.drainTimeout),
			Time:                  time.Minute,
			Timeout:               20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// watchedHealth ends those who watch when the server drains: it would wait for them.
type watchedHealth struct {
	*health.Server
	draining chan struct{}
}

func (h *watchedHealth) end() {
	h.Shutdown()
	close(h.draining)
}

func (h *watchedHealth) Watch(r *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Server.Watch(r, &watching{stream, ctx}) }()
	select {
	case err := <-ended:
		return err
	case <-h.draining:
		cancel()
		<-ended // it writes to the stream
		return stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
	}
}

// watching is a stream whose context ends earlier.
type watching struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

func (w *watching) Context() context.Context { return w.ctx }

func (s *serveSettings) rateLimitService(engine *policy.Engine) rls.Config {
	return rls.Config{
		Engine:       engine,
		Authorize:    s.doors.authorizer("--grpc"),
		Limits:       s.envoy.limits.now,
		Algorithm:    sluice.Algorithm(s.envoy.algorithm),
		CountRefused: s.envoy.countRefused,
		Answers:      s.envoy.answers,
		Metadata:     s.envoy.metadata,
		Logger:       s.doors.log,
	}
}
