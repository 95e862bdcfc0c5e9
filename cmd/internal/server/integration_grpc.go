package server

import (
	"context"
	"net"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/checkgrpc"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
)

// envoySettings configure Envoy's rate limit service, except the limits.
type envoySettings struct {
	countRefused bool
	answers      bool
	metadata     bool
}

func (s *envoySettings) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&s.countRefused, "envoy-count-refused", false, "count as envoyproxy/ratelimit does: each descriptor is charged even if another is denied, and a denied request uses up what is left of its limit")
	f.BoolVar(&s.answers, "envoy-answers", false, "make Envoy send the header fields and denial bodies that the gateway would send")
	f.BoolVar(&s.metadata, "envoy-metadata", false, "return dynamic metadata to Envoy: the domain and the descriptors that Envoy sent, and one object that merges the \"metadata\" of all configured limits that are not exceeded")
}

// Bounds for one connection. A client can make the server keep a message in memory for each stream.
const (
	grpcStreams = 256
	grpcMessage = 256 << 10
	grpcHeader  = 16 << 10
)

// openGRPC serves Envoy's rate limit service, and the gRPC form of the JSON API.
func (s *server) openGRPC(l *listeners.Listener, authorize authorizer) {
	g := grpc.NewServer(append(s.grpcOptions(), s.tracer.GRPC()...)...)
	envoy := &s.settings.integrations.envoy
	rls.Register(g, rls.Config{
		Engine:       s.engine,
		Authorize:    authorize,
		Limits:       s.rules.EnvoyLimits,
		Algorithm:    sluice.Algorithm(s.settings.rules.EnvoyAlgorithm),
		CountRefused: envoy.countRefused,
		Answers:      envoy.answers,
		Metadata:     envoy.metadata,
		Logger:       s.log,
	})
	checkgrpc.Register(g, s.doorConfig(authorize))
	probes := &drainableHealth{Server: health.NewServer(), draining: make(chan struct{})}
	healthpb.RegisterHealthServer(g, probes)
	reflection.Register(g)
	l.Socket = proxy.BoundHeads(l.Socket, time.Duration(s.settings.connections.headerTimeout))
	l.Serve(&grpcServer{g, probes})
}

func (s *server) grpcOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rls.Codec()),
		grpc.MaxConcurrentStreams(grpcStreams),
		grpc.MaxRecvMsgSize(grpcMessage),
		grpc.MaxHeaderListSize(grpcHeader),
		grpc.ConnectionTimeout(time.Duration(s.settings.connections.headerTimeout)),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 15 * time.Minute,
			// Because of the maximum age, clients behind a load balancer find new instances.
			MaxConnectionAge:      time.Hour,
			MaxConnectionAgeGrace: s.settings.drain.Timeout,
			Time:                  time.Minute,
			Timeout:               20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// grpcServer is a [listeners.Server].
type grpcServer struct {
	grpc   *grpc.Server
	health *drainableHealth
}

func (s *grpcServer) Serve(socket net.Listener) error { return s.grpc.Serve(socket) }

func (s *grpcServer) Shutdown(ctx context.Context) error {
	s.health.drain()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop() // makes GracefulStop return
		<-done
		return ctx.Err()
	}
}

func (s *grpcServer) Close() error {
	s.grpc.Stop()
	return nil
}

// drainableHealth ends the streams of Watch when the server drains. Otherwise, the drain would wait for these
// streams.
type drainableHealth struct {
	*health.Server
	draining chan struct{}
}

func (h *drainableHealth) drain() {
	h.Shutdown()
	close(h.draining)
}

func (h *drainableHealth) Watch(r *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Server.Watch(r, &watchStream{stream, ctx}) }()
	select {
	case err := <-ended:
		return err
	case <-h.draining:
		cancel()
		<-ended // wait, because Watch of the embedded server writes to the stream
		return stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
	}
}

// watchStream is a stream with another context.
type watchStream struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

func (w *watchStream) Context() context.Context { return w.ctx }
