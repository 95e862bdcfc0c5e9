package grpclimit_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// The service of the tests echoes texts, except orders: "code 16" fails with that code, "panic" panics, "think 300ms"
// waits before it obeys the rest, "header X 5" and "trailer X 5" set metadata, "settle" sets the verdict that the call
// does not count, and "wait" waits until the call ends.
var service = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Say", Handler: say}, {MethodName: "Login", Handler: say}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Talk", Handler: talk, ServerStreams: true, ClientStreams: true},
		{StreamName: "List", Handler: talk, ServerStreams: true},
	},
}

const (
	sayMethod   = "/test.Echo/Say"
	loginMethod = "/test.Echo/Login"
	talkMethod  = "/test.Echo/Talk"
	listMethod  = "/test.Echo/List"
)

func say(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	var in wrapperspb.StringValue
	if err := decode(&in); err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, req any) (any, error) {
		if err := obey(ctx, req.(*wrapperspb.StringValue).Value); err != nil {
			return nil, err
		}
		return req, nil
	}
	if interceptor == nil {
		return handler(ctx, &in)
	}
	return interceptor(ctx, &in, &grpc.UnaryServerInfo{FullMethod: method(ctx)}, handler)
}

func method(ctx context.Context) string {
	name, _ := grpc.Method(ctx)
	return name
}

func talk(_ any, stream grpc.ServerStream) error {
	for {
		var in wrapperspb.StringValue
		switch err := stream.RecvMsg(&in); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := obey(stream.Context(), in.Value); err != nil {
			return err
		}
		if err := stream.SendMsg(&in); err != nil {
			return err
		}
	}
}

func obey(ctx context.Context, order string) error {
	words := append(strings.Fields(order), "", "", "")
	switch words[0] {
	case "code":
		code, _ := strconv.Atoi(words[1])
		return status.Error(codes.Code(code), "as ordered")
	case "panic":
		panic("as ordered")
	case "think":
		d, _ := time.ParseDuration(words[1])
		time.Sleep(d)
		return obey(ctx, strings.Join(words[2:], " "))
	case "header":
		return grpc.SetHeader(ctx, metadata.Pairs(words[1], words[2]))
	case "trailer":
		return grpc.SetTrailer(ctx, metadata.Pairs(words[1], words[2]))
	case "settle":
		grpclimit.Settle(ctx, policy.Outcome{Verdict: policy.CountsNot})
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// recovered turns a panic of a handler into an error, like the interceptors that keep servers alive.
func recovered(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "panicked")
		}
	}()
	return handler(ctx, req)
}

// serve serves the service behind s until the test ends.
func serve(t *testing.T, s *grpclimit.Server) *testkit.Pipes {
	t.Helper()
	options := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(recovered)}, s.Options()...)
	return pipes(t, func(server *grpc.Server) { server.RegisterService(&service, nil) }, options...)
}

// piped returns a connection to the service behind s.
func piped(t *testing.T, s *grpclimit.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return connect(t, serve(t, s), options...)
}

// answered is the result of a call.
type answered struct {
	code            codes.Code
	status          *status.Status
	header, trailer metadata.MD
}

// call makes a unary call with metadata such as "x-api-key", "k".
func call(ctx context.Context, cc *grpc.ClientConn, method, text string, md ...string) (a answered) {
	ctx = metadata.AppendToOutgoingContext(ctx, md...)
	var reply wrapperspb.StringValue
	err := cc.Invoke(ctx, method, wrapperspb.String(text), &reply, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	a.status, _ = status.FromError(err)
	a.code = a.status.Code()
	return a
}
