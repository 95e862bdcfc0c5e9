package grpclimit_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// The service of the tests echoes texts, but for orders: "code 16" fails with that code, "panic"
// panics, "header X 5" and "trailer X 5" set metadata, "settle" says that the call does not count,
// and "wait" waits until the call ends.
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

// recovered answers calls whose handlers have panicked, as those do who keep their server alive.
func recovered(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "panicked")
		}
	}()
	return handler(ctx, req)
}

// serve serves the service behind s until the test ends, and returns its address.
func serve(t *testing.T, l net.Listener, s *grpclimit.Server) {
	t.Helper()
	options := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(recovered)}, s.Options()...)
	server := grpc.NewServer(options...)
	server.RegisterService(&service, nil)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// loopback serves the service on the network, and returns a connection to it.
func loopback(t *testing.T, s *grpclimit.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, s)
	return connect(t, l.Addr().String(), options...)
}

func connect(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// piped serves the service without a network, so that time can be virtual.
func piped(t *testing.T, s *grpclimit.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	p := testkit.NewPipes()
	serve(t, p, s)
	return connect(t, "passthrough:///test", append(options, dialer(p))...)
}

func dialer(p *testkit.Pipes) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.Dial(ctx, "", "") })
}

// answered is what a call has brought.
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
