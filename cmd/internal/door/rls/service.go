package rls

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

const serviceName = "envoy.service.ratelimit.v3.RateLimitService"

// Config configures the service.
type Config struct {
	Engine *policy.Engine
	// Limits returns the configuration from which the engine's policy was made. It is nil or returns nil if the
	// policy was not made from a configuration.
	Limits func() *Limits
	// Authorize returns nil if the caller with this address and token has permission. Its error becomes
	// RESOURCE_EXHAUSTED if it has a method RetrySeconds. If Authorize is nil, all callers have permission.
	Authorize func(from, token string) error
	// Algorithm and OnError apply to limits that requests carry.
	Algorithm sluice.Algorithm
	OnError   sluice.OnError
	// CountRefused makes the service count as envoyproxy/ratelimit does: each descriptor is decided separately, and
	// a denied descriptor uses up the remaining units.
	CountRefused bool
	// Answers adds the header fields and the body of the gateway's answer to responses.
	Answers bool
	// Metadata adds dynamic metadata to responses: the request, and the metadata of the limits that it does not
	// exceed.
	Metadata bool
	Logger   *slog.Logger // slog.Default() if nil
}

// service implements the service.
type service struct {
	Config
	encoder answer.Encoder
	outage  answer.Outage
	plans   door.Cache[overrideLimit, *sluice.Plan] // the plans of limits that requests carried
	calls   sync.Pool                               // of *call
}

// Register registers the service. The server needs [Codec].
func Register(server grpc.ServiceRegistrar, c Config) {
	if c.Limits == nil {
		c.Limits = func() *Limits { return nil }
	}
	if err := describe(); err != nil {
		cmp.Or(c.Logger, slog.Default()).Warn("gRPC reflection does not list Envoy's service", "error", err)
	}
	s := &service{Config: c, outage: answer.Outage{Logger: c.Logger}}
	s.calls.New = func() any { return &call{service: s} }
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
		Metadata:    "envoy/service/ratelimit/v3/rls.proto",
	}, s)
}

func shouldRateLimit(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (_ any, err error) {
	s := srv.(*service)
	if err := door.AdmitCall(ctx, s.Authorize, errUnauthorized); err != nil {
		return nil, err
	}
	c := s.calls.Get().(*call)
	defer door.Rescue(s.Logger, &err) // c is not reused after a panic
	c.request.reset()
	if err := decode(&c.request); err != nil {
		return nil, err
	}
	out, err := c.answer(ctx)
	c.end()
	s.calls.Put(c)
	if err != nil {
		return nil, err
	}
	return out, nil
}

var errUnauthorized = grpcstatus.Error(codes.Unauthenticated, "sluice: authentication required: send a token of --door-tokens as metadata \"authorization: Bearer TOKEN\"")

// invalid returns the error for an invalid request.
func invalid(err error) error {
	return grpcstatus.Error(codes.InvalidArgument, "sluice: "+err.Error())
}
