// Package checkgrpc is the gRPC service for decisions. It has the API of package checkapi with smaller messages,
// and with streams of batches, which cost a fraction of single calls. check.proto defines the messages.
//
// The service does not delay answers: for a request in a queue, it returns the delay.
package checkgrpc

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative check.proto

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

type service struct {
	UnimplementedChecksServer
	*door.Base
}

// Register adds the service to a server.
func Register(server grpc.ServiceRegistrar, c door.Config) {
	RegisterChecksServer(server, &service{Base: door.New(c)})
}

// Check answers one check.
func (s *service) Check(ctx context.Context, in *CheckRequest) (_ *CheckResponse, err error) {
	defer door.Rescue(s.Logger, &err)
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	out := s.decide(ctx, []*CheckRequest{in})[0]
	if out.Error != "" {
		return nil, status.Error(codes.InvalidArgument, out.Error)
	}
	return out, nil
}

// CheckStream answers batches, one after another.
func (s *service) CheckStream(stream grpc.BidiStreamingServer[CheckBatch, CheckBatchResponse]) (err error) {
	defer door.Rescue(s.Logger, &err)
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	for {
		batch, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(batch.Checks) > door.MaxChecks:
			return status.Errorf(codes.InvalidArgument, "the batch has %d checks, more than the maximum of %d: send fewer at once", len(batch.Checks), door.MaxChecks)
		}
		if err := stream.Send(&CheckBatchResponse{Answers: s.decide(stream.Context(), batch.Checks)}); err != nil {
			return err
		}
	}
}

// Hold renews the permits of a place. A place comes from the answer to a check, and identifies the permits of the
// request and its turns in queues.
func (s *service) Hold(ctx context.Context, in *Place) (_ *HoldResponse, err error) {
	defer door.Rescue(s.Logger, &err)
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	held, err := s.Engine.HoldPlace(ctx, in.GetPlace())
	return &HoldResponse{Held: held}, placeError(err)
}

// Release gives back the permits of a place, and its turns in queues.
func (s *service) Release(ctx context.Context, in *Place) (_ *ReleaseResponse, err error) {
	defer door.Rescue(s.Logger, &err)
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	return &ReleaseResponse{}, placeError(s.Engine.ReleasePlace(ctx, in.GetPlace()))
}

// Settle settles a charge by the outcome of the request.
func (s *service) Settle(ctx context.Context, in *SettleRequest) (_ *SettleResponse, err error) {
	defer door.Rescue(s.Logger, &err)
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	var c check
	c.read(s.Engine, in.GetCheck())
	if c.err == nil {
		c.err = c.settled(in)
	}
	if c.err != nil {
		return nil, status.Error(codes.InvalidArgument, door.Reason(c.err))
	}
	switch err := s.Engine.SettleRequest(ctx, &c.request, outcomeOf(in.GetOutcome())); {
	case errors.Is(err, policy.ErrNothingToSettle):
		return &SettleResponse{}, nil
	case errors.Is(err, policy.ErrNotCharged):
		return nil, status.Error(codes.InvalidArgument, door.Reason(err))
	case err != nil:
		return nil, status.Error(codes.Unavailable, "the shared store is unavailable: try again")
	}
	return &SettleResponse{Settled: true}, nil
}

// placeError returns the status for a place that could not be held or released.
func placeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, policy.ErrNoPlace):
		return status.Error(codes.InvalidArgument, "this is not a place: send the place from the answer to the check")
	}
	return status.Error(codes.Unavailable, "the shared store is unavailable: try again, or let the place expire")
}

var errRefused = status.Error(codes.Unauthenticated, `authentication required: send one of the tokens of --door-tokens as "authorization: Bearer …"`)

// admit returns an error for callers without permission.
func (s *service) admit(ctx context.Context) error {
	return door.AdmitCall(ctx, s.Authorize, errRefused)
}

// decide answers all checks, if possible in one call of the store.
func (s *service) decide(ctx context.Context, in []*CheckRequest) []*CheckResponse {
	checks := make([]check, len(in))
	asked := make([]*policy.Request, 0, len(in))
	for i, one := range in {
		checks[i].read(s.Engine, one)
		if checks[i].err == nil && checks[i].fault == "" {
			checks[i].request.Door = "grpc"
			asked = append(asked, &checks[i].request)
		}
	}
	decisions := make([]policy.Decision, len(asked))
	s.Engine.DecideEach(ctx, asked, decisions)
	out := make([]*CheckResponse, len(in))
	for i := range checks {
		switch c := &checks[i]; {
		case c.err != nil:
			out[i] = &CheckResponse{Error: door.Reason(c.err)}
		case c.fault != "":
			out[i] = s.answer(c, &policy.Decision{})
		default:
			out[i] = s.answer(c, &decisions[0])
			decisions = decisions[1:]
		}
	}
	return out
}
